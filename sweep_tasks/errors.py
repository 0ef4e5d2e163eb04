"""What can go wrong, each with the way out in its message.

Every error a caller may meet is one of these. `code` is the word a script matches on (the scenario language prints
it), `exit_code` is what the command ends with, `retryable` says whether the same call may succeed when made again.
No message carries a row, a column or a value: they are the user's data, and messages end up in logs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_NOT_FOUND = 3
EXIT_UNAVAILABLE = 4
EXIT_CONFLICT = 5
EXIT_ATTENTION = 6
EXIT_BEHIND = 7


UNREADABLE_ADDRESS = "an address that can't be read"


def without_secrets(url: str) -> str:
    """An address as it may be shown: scheme, host, port and path. Users, passwords and keys stand in front of the host
    or behind the path."""
    try:
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        host = None
    return f"{parts.scheme}://{host}{port}{parts.path}" if host and parts.scheme else UNREADABLE_ADDRESS


class SweepflowError(Exception):
    """The root of everything raised on purpose.

    Scripts and tests read attributes, never the message: `code`, `field` (the argument or setting that is wrong) and
    `reason`, a word that separates the causes which share a code and a field.
    """

    code: ClassVar[str] = "failed"
    exit_code: ClassVar[int] = EXIT_FAILED
    retryable: ClassVar[bool] = False

    def __init__(self, message: str = "", *, field: str | None = None, reason: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.reason = reason


class BadValue(SweepflowError):
    """An argument is not acceptable; nothing was changed."""

    code = "bad_value"
    exit_code = EXIT_BAD_INPUT

    field: str

    def __init__(self, field: str, problem: str, *, reason: str | None = None) -> None:
        super().__init__(f"{field}: {problem}", field=field, reason=reason)


class NotYet(SweepflowError):
    """Asked for something this version or this store does not do."""

    code = "not_yet"
    exit_code = EXIT_BAD_INPUT


# --- tables -----------------------------------------------------------------------------------------------------


class UnknownTable(SweepflowError):
    code = "unknown_table"
    exit_code = EXIT_NOT_FOUND

    def __init__(self, table: object) -> None:
        super().__init__(f"table: {table} does not exist; 'sweepflow tables list' shows those that do")
        self.table = table


class AlreadyExists(SweepflowError):
    code = "exists"
    exit_code = EXIT_CONFLICT


class TableProtected(BadValue):
    """Protections hold what the table shows; nothing was changed."""

    def __init__(self, table: object, records: Sequence[str]) -> None:
        shown = f"{', '.join(records[:5])}{' and others' if len(records) > 5 else ''}"
        super().__init__(
            "table", f"{table} is protected by {shown}; release that first, or force it", reason="protected"
        )
        self.records = tuple(records)


# --- the store itself -------------------------------------------------------------------------------------------


class StoreError(SweepflowError):
    """The store could not do what was asked; what was asked may be fine."""

    code = "unavailable"
    exit_code = EXIT_UNAVAILABLE


class NotInitialised(StoreError):
    def __init__(self, where: str) -> None:
        super().__init__(f"store: {where} is not initialised; run 'sweepflow init --store {where}' once")
        self.where = where


class ForeignStore(StoreError):
    """The place named holds something, but not a store of ours: touching it could destroy it."""


class NewerSchema(StoreError):
    def __init__(self, where: str, found: int, known: int) -> None:
        super().__init__(
            f"store: {where} has schema {found}, this version knows up to {known}; upgrade sweepflow to open it"
        )
        self.found = found
        self.known = known


class OlderSchema(StoreError):
    def __init__(self, where: str, found: int, known: int) -> None:
        super().__init__(
            f"store: {where} has schema {found}, this version needs {known}; run 'sweepflow init --store {where}' once"
        )
        self.where = where
        self.found = found
        self.known = known


class StoreBusy(StoreError):
    """Somebody else held the store longer than we were willing to wait; nothing was changed."""

    retryable = True


class StoreUnavailable(StoreError):
    """The call was not carried out."""

    retryable = True


class OutcomeUnknown(StoreError):
    """The call was sent and not answered: it may have been carried out, wholly or in part."""

    retryable = True


# --- transactions -----------------------------------------------------------------------------------------------


class TransactionError(SweepflowError):
    """`start` is the timestamp of the transaction, `table` the one that caused the error, `threshold` how far that
    table was swept."""

    exit_code = EXIT_CONFLICT

    def __init__(
        self,
        message: str = "",
        *,
        reason: str | None = None,
        start: int | None = None,
        table: object = None,
        threshold: int | None = None,
    ) -> None:
        super().__init__(message, reason=reason)
        self.start = start
        self.table = table
        self.threshold = threshold


class TransactionEnded(TransactionError):
    """The transaction was used after it was committed or aborted."""


class WriteConflict(TransactionError):
    """Somebody who was open at the same time wrote one of our cells first."""

    code = "conflict"
    retryable = True


class TransactionAborted(TransactionError):
    """The transaction did not commit and never will; run it again."""

    code = "aborted"
    retryable = True


class LeaseLost(TransactionAborted):
    """The lease ran out before the commit, so others took this writer for dead."""


class CommitUnknown(TransactionError):
    """The store did not answer at the deciding step, nor when asked how it ended."""

    code = "unavailable"
    exit_code = EXIT_UNAVAILABLE

    start: int

    def __init__(self, start: int) -> None:
        super().__init__(
            f"transaction: whether the one started at {start} committed is not known, the store does not answer; "
            "ask again with the start timestamp when it does, before running it a second time",
            start=start,
        )


class WriterStillCommitting(TransactionError):
    """A live writer stands in the way for longer than we were willing to wait."""

    code = "unavailable"
    exit_code = EXIT_UNAVAILABLE
    retryable = True


class ReadOnlyRefused(TransactionError):
    """A read-only transaction takes no lease, so on a thorough table nothing would hold the sweep back for it."""

    code = "bad_value"
    exit_code = EXIT_BAD_INPUT


class SnapshotSwept(TransactionError):
    """What the reader's snapshot held may be gone: an error is right, a guess is not."""

    code = "snapshot_swept"
    retryable = True

    threshold: int

    def __init__(self, table: object, at: int, threshold: int) -> None:
        super().__init__(
            f"table: {table} was swept up to {threshold}, a snapshot at {at} can no longer be read; "
            f"read at {threshold} or later, or protect the timestamp before it is swept",
            table=table,
            threshold=threshold,
        )
        self.at = at


# --- the queue and the sweep ------------------------------------------------------------------------------------


class ShardsLowered(SweepflowError):
    code = "shards_lowered"
    exit_code = EXIT_CONFLICT

    def __init__(self, asked: int, standing: int) -> None:
        super().__init__(
            f"shards: there are {standing} and never fewer again, {asked} was asked for; "
            f"leave the number at {standing} or raise it"
        )
        self.asked = asked
        self.standing = standing


class TransactionTooLarge(SweepflowError):
    """More writes than the queue can hold for one transaction."""

    code = "limit_exceeded"
    exit_code = EXIT_BAD_INPUT

    def __init__(self, shard: int, writes: int, most: int) -> None:
        super().__init__(
            f"transaction: {writes} writes fall to shard {shard}, at most {most} fit; split the transaction, or raise "
            "the number of shards"
        )
        self.shard = shard
        self.writes = writes
        self.most = most


class LegacySweepRunning(AlreadyExists):
    """Somebody is sweeping the table by scanning it, or was cut off while doing so; nothing was changed."""

    def __init__(self, table: object, run: str, owner: str, since: str, heard_of: str) -> None:
        super().__init__(
            f"table: {table} is being swept by run {run} of {owner} since {since}, last heard of at {heard_of}; wait "
            f"for it, or cancel it ('sweepflow legacy-sweep {table} --cancel'), then the next start by hand goes on "
            "with it; one that stays silent was cut off and is gone on with by itself (setting legacy_silent_s)"
        )
        self.table = table
        self.run = run
        self.owner = owner


class LegacySweepOutdated(SweepflowError):
    """What a run of a scan went by has changed since it began; nothing was deleted, and nothing more will be."""

    code = "changed"
    exit_code = EXIT_CONFLICT

    def __init__(self, table: object, run: str) -> None:
        super().__init__(
            f"table: run {run} of {table} can't be gone on with, since it began the strategy of the table was changed, "
            f"or a retention was raised; begin anew: 'sweepflow legacy-sweep {table} --anew'"
        )
        self.table = table
        self.run = run


class LegacySweepOfOtherRows(AlreadyExists):
    """A run of the table could be gone on with, but not by this order, which would drop it; nothing was changed."""

    def __init__(self, table: object, run: str, owner: str, done: int, ranges: int) -> None:
        super().__init__(
            f"table: run {run} of {table}, of {owner}, has done {done} of {ranges} ranges; it is of other rows, or "
            f"goes further than asked for. Finish it first ('sweepflow legacy-sweep {table} --status' tells more), or "
            "drop what it has done and begin anew ('--anew', Anew in the form of the DAG)"
        )
        self.table = table
        self.run = run
        self.owner = owner
        self.done = done
        self.ranges = ranges


class LegacySweepCancelled(AlreadyExists):
    """Somebody cancelled the scan of a table; whoever was not told to go on with it does not. Nothing was changed."""

    def __init__(self, table: object, run: str) -> None:
        super().__init__(
            f"table: run {run} of {table} was cancelled; turns leave the table alone until somebody goes on with it "
            f"('sweepflow legacy-sweep {table}') or begins anew ('--anew')"
        )
        self.run = run


class AlreadyPaused(AlreadyExists):
    """`what` is a table or everything, `by` the user who paused it; nothing was changed."""

    def __init__(self, what: str, by: str) -> None:
        super().__init__(f"pause: {what} is paused already, by {by}")
        self.what = what
        self.by = by


class SweepingPaused(SweepflowError):
    """Somebody has paused it; nothing was changed. `what` is a table, or everything."""

    code = "paused"
    exit_code = EXIT_CONFLICT

    def __init__(self, what: str, by: str, why: str, lift: str) -> None:
        super().__init__(f"pause: {what} is paused by {by}: {why}; {lift} lifts it")
        self.what = what
        self.by = by
        self.why = why


class LagObjectiveMissed(SweepflowError):
    """Shards are further behind than their strategy's objective allows; `late` has strategy, shard and seconds of
    each."""

    code = "behind"

    def __init__(self, message: str, late: Sequence[tuple[str, int, int]] = ()) -> None:
        super().__init__(message)
        self.late = tuple(late)


class NotFound(SweepflowError):
    code = "not_found"
    exit_code = EXIT_NOT_FOUND


class AlreadySwept(SweepflowError):
    """What a protection was to keep may be gone already; nothing was changed."""

    code = "already_swept"
    exit_code = EXIT_CONFLICT

    def __init__(self, ts: int, earliest: int) -> None:
        super().__init__(
            f"protection: {ts} can no longer be protected, sweeps have gone up to {earliest}; "
            f"protect {earliest} or a later timestamp"
        )
        self.ts = ts
        self.earliest = earliest


class RecordChanged(SweepflowError):
    """A protection is not as it was when somebody decided about it; nothing was changed."""

    code = "changed"
    exit_code = EXIT_CONFLICT
    retryable = True

    def __init__(self, record_id: str) -> None:
        super().__init__(f"protection: record {record_id!r} was changed by somebody else meanwhile; look and try again")


class RecordExists(AlreadyExists):
    """A protection with this id stands already; nothing was changed."""

    def __init__(self, record_id: str, problem: str, *, reason: str) -> None:
        super().__init__(f"protection: a record {record_id!r} {problem}", field="id", reason=reason)
        self.record_id = record_id


class UnknownRecord(NotFound):
    def __init__(self, record_id: str) -> None:
        super().__init__(f"protection: there is no record {record_id!r}; 'sweepflow protections' lists them")
        self.record_id = record_id


class RecordReleased(NotFound):
    """A protection was released while it was being verified or moved."""

    def __init__(self, record_id: str) -> None:
        super().__init__(f"protection: record {record_id!r} was released meanwhile; protect again")


class LimitExceeded(SweepflowError):
    """One more protection would be too many; `field` is the setting that limits them."""

    code = "limit_exceeded"
    exit_code = EXIT_CONFLICT

    def __init__(self, what: str, used: int, more: int, limit: int) -> None:
        setting = f"max_protection_{what}"
        super().__init__(
            f"protection: limit exceeded: {used}+{more} > {limit} {what}; release records that are no longer "
            f"needed, or raise the setting {setting}",
            field=setting,
        )
        self.used = used
        self.more = more
        self.limit = limit


class OwnerSilent(SweepflowError):
    """Whoever should know whether the owner of a protection is done could not be asked."""

    code = "unavailable"
    exit_code = EXIT_UNAVAILABLE
    retryable = True


class NoOwner(SweepflowError):
    """No package answers for protections of a type, or the one that should can't be loaded."""

    def __init__(self, owner_type: str, problem: str, *, reason: str) -> None:
        super().__init__(problem, reason=reason)
        self.owner_type = owner_type


class NeedsAttention(SweepflowError):
    """A person has to decide something; `about` says what and why, the same for as long as nothing changes."""

    code = "needs_attention"

    def __init__(self, sentences: Sequence[str], about: Sequence[str]) -> None:
        more = [f"and {len(sentences) - 10} more, in the log"] if len(sentences) > 10 else []
        super().__init__(" | ".join([*sentences[:10], *more]))
        self.about = tuple(about)


class ProtectionsNeedAttention(NeedsAttention):
    """Of protections."""


class ReadsNearFailing(NeedsAttention):
    """Of partitions that a read soon gives up on, for all the dead cells in them."""


class CompactionFailed(NeedsAttention):
    """Of compactions that a node did not carry out."""


class FilesUnreadable(NeedsAttention):
    """Of nodes with files that nobody could read: how many tombstones are in them is not known."""


class MetricsNotTaken(SweepflowError):
    """A collector of figures refused them or did not answer; nothing was lost, the next time tells them again."""

    code = "unavailable"
    exit_code = EXIT_UNAVAILABLE
    retryable = True

    def __init__(self, endpoint: str) -> None:
        self.endpoint = without_secrets(endpoint)
        super().__init__(
            f"metrics: {self.endpoint} did not take them; see that an OpenTelemetry collector listens "
            "there, the path of most is /v1/metrics"
        )


# --- Airflow ----------------------------------------------------------------------------------------------------


class AirflowNotReady(SweepflowError):
    """Airflow lacks something that a sweep needs: a pool, a connection, a login, an answer."""

    code = "unavailable"
    exit_code = EXIT_UNAVAILABLE

    status: int | None = None
    """The HTTP status, where Airflow answered with an error."""


class AirflowUnreachable(AirflowNotReady):
    retryable = True


class AirflowHasOne(AirflowNotReady):
    """Airflow answered that there is such a thing already."""

    code = "exists"
    exit_code = EXIT_CONFLICT


class AirflowHasNone(AirflowNotReady):
    """Airflow answered that there is no such thing."""

    code = "not_found"
    exit_code = EXIT_NOT_FOUND


class RequestRefused(SweepflowError):
    """Another site may have made a browser send this to the page; nothing was changed."""

    code = "refused"
    exit_code = EXIT_BAD_INPUT

    def __init__(self, why: str, *, reason: str) -> None:
        super().__init__(f"request: refused, {why}", reason=reason)


# --- Spark ------------------------------------------------------------------------------------------------------


class JavaMissing(SweepflowError):
    """Spark or Cassandra can't start on this machine; nothing was begun."""

    code = "unavailable"
    exit_code = EXIT_UNAVAILABLE

    def __init__(self, message: str, *, reason: str, program: str | None = None, version: int | None = None) -> None:
        super().__init__(message, field="java", reason=reason)
        self.program = program
        self.version = version


class JobFailed(SweepflowError):
    """A Spark job ended with an error; what it had done by then stands, and the next one goes on from there."""


# --- exports ----------------------------------------------------------------------------------------------------


class ExportMissing(NotFound):
    """There is no finished export in a folder."""

    def __init__(self, folder: Path, needed_by: Path | None) -> None:
        needed = f", which {needed_by} builds on" if needed_by else ""
        super().__init__(f"export: there is none in {folder}{needed}; a finished one has a manifest.json")
        self.folder = folder
        self.needed_by = needed_by


class OtherExport(AlreadyExists):
    """A folder holds a finished export that is not the one asked for; nothing was changed."""

    def __init__(self, folder: Path, ts: int) -> None:
        super().__init__(f"to: {folder} holds another export already, of {ts}; name a new folder", field="to")
        self.folder = folder
        self.ts = ts


# --- SSTables ---------------------------------------------------------------------------------------------------


class SSTableGone(SweepflowError):
    """The file was there when somebody listed it; since then Cassandra has put others in its place."""

    code = "not_found"
    exit_code = EXIT_NOT_FOUND

    def __init__(self, file: object) -> None:
        super().__init__(f"file: {file} is gone, Cassandra has compacted or dropped it; list the table's files again")
        self.file = file


class SSTableUnreadable(SweepflowError):
    """A file is damaged, or the tool that reads it failed; nothing was changed."""

    code = "unreadable"
    command: ClassVar[str] = "nodetool verify"
    """What an operator may run about it."""

    def __init__(self, file: object, problem: str, *, reason: str) -> None:
        super().__init__(
            f"file: {file} can't be measured, {problem}; check it with '{self.command}' on its table", reason=reason
        )
        self.file = file


class SSTableTooOld(SSTableUnreadable):
    command = "nodetool upgradesstables"

    def __init__(self, file: object) -> None:
        SweepflowError.__init__(
            self,
            f"file: {file} has the format of an old Cassandra; run '{self.command}' on its table first",
            reason="old_format",
        )
        self.file = file


# --- nodes of Cassandra -----------------------------------------------------------------------------------------


class NodeUnreachable(SweepflowError):
    """A program could not be run where a node's files are; nothing was changed."""

    code = "unavailable"
    exit_code = EXIT_UNAVAILABLE
    retryable = True

    def __init__(self, prefix: Sequence[str], program: str, problem: str, *, reason: str, said: str = "") -> None:
        """`said`: the last line that the program, or what was to start it there, has printed."""
        through = f"through '{prefix[0]}'" if prefix else "on this machine"  # its other words may be nobody's business
        super().__init__(
            f"node: {program} can't be run {through}: {problem}; check setting compaction_nodes", reason=reason
        )
        self.program = program
        self.through = prefix[0] if prefix else None
        self.said = said


class UnknownNode(SweepflowError):
    code = "not_found"
    exit_code = EXIT_NOT_FOUND

    def __init__(self, name: str, known: Sequence[str]) -> None:
        there = f"there are {', '.join(known)}" if known else "it names none; docs/compaction.md says how it is written"
        super().__init__(f"node: {name!r} is not in setting compaction_nodes; {there}", field="node")
        self.name = name
        self.known = tuple(known)


class NoTombstones(NotYet):
    def __init__(self, store: str) -> None:
        super().__init__(
            f"store: {store} is not a Cassandra; what is deleted there leaves no tombstones, so nothing to compact. "
            "'sweepflow compaction vacuum' gives the room in a SQLite file back"
        )
        self.store = store


# --- servers of our own on this machine -------------------------------------------------------------------------


class PartMissing(SweepflowError):
    """A program that a cluster on this machine needs is not installed; nothing was begun."""

    code = "unavailable"
    exit_code = EXIT_UNAVAILABLE


class PartNotReady(SweepflowError):
    """A server that was started here does not answer, or has ended."""

    code = "unavailable"
    exit_code = EXIT_UNAVAILABLE


class SweptTooMuch(SweepflowError):
    """A check after a sweep found that something is gone which somebody can still see: report it as a defect."""

    code = "swept_too_much"


# --- a Cassandra on this machine --------------------------------------------------------------------------------


class JarsMissing(SweepflowError):
    """Cassandra could not be downloaded; nothing was begun."""

    code = "unavailable"
    exit_code = EXIT_UNAVAILABLE

    def __init__(
        self, message: str, *, field: str | None = None, reason: str, complaints: Mapping[str, str] | None = None
    ) -> None:
        """`complaints`: by downloader, what it said."""
        super().__init__(message, field=field, reason=reason)
        self.complaints = dict(complaints or {})


class ClusterNotReady(SweepflowError):
    """A node of the local cluster is not there, did not start, or does not answer."""

    code = "unavailable"
    exit_code = EXIT_UNAVAILABLE

    def __init__(self, message: str, *, field: str | None = None, reason: str, node: int | None = None) -> None:
        super().__init__(message, field=field, reason=reason)
        self.node = node


class NodetoolFailed(SweepflowError):
    """Cassandra's own tool could not do what was asked."""


class LocalNodetoolFailed(NodetoolFailed):
    """As `NodetoolFailed`, on a node of the local cluster."""

    def __init__(self, node: int, arguments: Sequence[str], said: str) -> None:
        super().__init__(f"nodetool: {' '.join(arguments)} failed on node {node}: {said}")
        self.node = node
        self.arguments = tuple(arguments)
        self.said = said
