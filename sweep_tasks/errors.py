"""The kinds of failure that a caller can tell apart. Each message names the next action.

Every error that sweepflow raises on purpose is a `SweepflowError`. Scripts, retry rules and tests read its attributes,
never its message:

- `code`: the word that a script matches on; the scenario language prints it
- `exit_code`: what the command ends with, by the code (`EXITS_BY_CODE`)
- `retryable`: the same call may succeed when it is repeated
- `field`: the argument or setting that is wrong
- `reason`: a word that separates causes which share a code and a field
- `details`: values that belong to one cause

A kind is a class only if a caller, an `except` clause or a retry rule treats it differently. Everything else is a
message, written where it is raised. No message contains a row, a column or a value: they are the user's data, and
messages end up in logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_NOT_FOUND = 3
EXIT_UNAVAILABLE = 4
EXIT_CONFLICT = 5
EXIT_ATTENTION = 6
EXIT_BEHIND = 7
EXIT_DEFECT = 70
EXIT_INTERRUPTED = 130

EXITS_BY_CODE = {
    "bad_value": EXIT_BAD_INPUT,
    "not_confirmed": EXIT_BAD_INPUT,
    "not_yet": EXIT_BAD_INPUT,
    "refused": EXIT_BAD_INPUT,
    "too_large": EXIT_BAD_INPUT,
    "too_slow": EXIT_BAD_INPUT,
    "not_a_form": EXIT_BAD_INPUT,
    "not_found": EXIT_NOT_FOUND,
    "unknown_table": EXIT_NOT_FOUND,
    "unavailable": EXIT_UNAVAILABLE,
    "too_many_requests": EXIT_UNAVAILABLE,
    "aborted": EXIT_CONFLICT,
    "already_swept": EXIT_CONFLICT,
    "changed": EXIT_CONFLICT,
    "conflict": EXIT_CONFLICT,
    "exists": EXIT_CONFLICT,
    "limit_exceeded": EXIT_CONFLICT,
    "paused": EXIT_CONFLICT,
    "shards_lowered": EXIT_CONFLICT,
    "snapshot_swept": EXIT_CONFLICT,
    "journal_broken": EXIT_ATTENTION,
}
"""The exit code of each error code. A code that is not listed has the exit code of its kind."""
EXITS_BY_VERDICT = {"ok": 0, "attention": EXIT_ATTENTION, "behind": EXIT_BEHIND}
"""The exit code of `sweepflow status`."""


class SweepflowError(Exception):
    """The base class of every error that is raised on purpose."""

    code: str = "failed"
    exit_code: int = EXIT_FAILED
    retryable: bool = False

    def __init_subclass__(cls) -> None:
        if "code" in vars(cls):
            cls.exit_code = EXITS_BY_CODE.get(cls.code, cls.exit_code)

    def __init__(
        self,
        message: str = "",
        *,
        code: str | None = None,
        exit_code: int | None = None,
        retryable: bool | None = None,
        field: str | None = None,
        reason: str | None = None,
        **details: Any,
    ) -> None:
        """`code`, `exit_code` and `retryable` are those of the class unless given."""
        super().__init__(message)
        self.field = field
        self.reason = reason
        self.details = details
        if code is not None:
            self.code, self.exit_code = code, EXITS_BY_CODE.get(code, self.exit_code)
        if exit_code is not None:
            self.exit_code = exit_code
        if retryable is not None:
            self.retryable = retryable


# --- what was asked for ---------------------------------------------------------------------------------------------


class BadValue(SweepflowError):
    """An argument or a setting is not acceptable. Nothing was changed."""

    code = "bad_value"

    field: str

    def __init__(self, field: str, problem: str, *, reason: str | None = None, **more: Any) -> None:
        super().__init__(f"{field}: {problem}", field=field, reason=reason, **more)


class NotYet(SweepflowError):
    """This version or this store does not support what was asked for."""

    code = "not_yet"


class NotFound(SweepflowError):
    """What was named does not exist, or exists no longer."""

    code = "not_found"


class UnknownTable(SweepflowError):
    """There is no such table."""

    code = "unknown_table"

    def __init__(self, table: object) -> None:
        super().__init__(f"table: {table} does not exist; 'sweepflow tables list' shows the tables that do")
        self.table = table


class AlreadyExists(SweepflowError):
    """What was to be created or started exists or runs already. Nothing was changed."""

    code = "exists"


class LimitExceeded(SweepflowError):
    """A configured or fixed maximum would be exceeded. Nothing was changed."""

    code = "limit_exceeded"


# --- the store --------------------------------------------------------------------------------------------------


class StoreError(SweepflowError):
    """The store could not do what was asked for. The request itself may be correct."""

    code = "unavailable"


class NotInitialised(StoreError):
    """There is a database, or a place for one, and it is not a store yet."""

    def __init__(self, where: str) -> None:
        super().__init__(f"store: {where} is not initialised; run 'sweepflow init --store {where}' once")
        self.where = where


class StoreMissing(StoreError):
    """The file of an existing store, or the folder for a new one, was not found. Nothing was created."""

    def __init__(self, where: str, problem: str, *, reason: str) -> None:
        super().__init__(f"store: {where} {problem}", field="store", reason=reason)
        self.where = where


class OtherSchema(StoreError):
    """The store was created by another version of sweepflow, whose schema this version does not use."""

    def __init__(self, where: str, found: int, known: int) -> None:
        action = f"run 'sweepflow init --store {where}' once" if found < known else "upgrade sweepflow to open it"
        super().__init__(f"store: {where} has schema version {found}, this version uses {known}; {action}")
        self.where = where
        self.found = found
        self.known = known

    @property
    def is_older(self) -> bool:
        """True if `sweepflow init` brings the store up to date."""
        return self.found < self.known


class StoreBusy(StoreError):
    """Another process or writer used the store for longer than this one waits. Nothing was changed."""

    retryable = True


class StoreUnavailable(StoreError):
    """The store did not carry out the call."""

    retryable = True


class OutcomeUnknown(StoreError):
    """The call was sent and not answered. It may have been carried out, in full or in part."""

    retryable = True


# --- transactions -----------------------------------------------------------------------------------------------


class TransactionError(SweepflowError):
    """A transaction could not do what was asked for.

    `start` is the start timestamp of the transaction, `table` the table that caused the error, `threshold` the
    timestamp that the table was swept up to."""

    exit_code = EXIT_CONFLICT

    def __init__(
        self,
        message: str = "",
        *,
        start: int | None = None,
        table: object = None,
        threshold: int | None = None,
        **more: Any,
    ) -> None:
        super().__init__(message, **more)
        self.start = start
        self.table = table
        self.threshold = threshold


class WriteConflict(TransactionError):
    """Another transaction that was open at the same time wrote one of the same cells first."""

    code = "conflict"
    retryable = True


class TransactionAborted(TransactionError):
    """The transaction did not commit and never will. It can be run again."""

    code = "aborted"
    retryable = True


class CommitUnknown(TransactionError):
    """The store answered neither the deciding step of the commit nor the question for its outcome."""

    code = "unavailable"

    start: int

    def __init__(self, start: int) -> None:
        super().__init__(
            f"transaction: the store does not answer, so it is not known whether the transaction started at {start} "
            "committed; when the store answers again, look up the outcome by the start timestamp before you run the "
            "transaction a second time",
            start=start,
        )


class SnapshotSwept(TransactionError):
    """Versions that the snapshot showed may have been removed, so it can't be read any more."""

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


# --- sweeping and protections -----------------------------------------------------------------------------------


class LegacySweepOutdated(SweepflowError):
    """The table has changed since its legacy sweep started, so that run can't be resumed. Nothing was deleted."""

    code = "changed"

    def __init__(self, table: object, run: str) -> None:
        super().__init__(
            f"table: run {run} of {table} can't be resumed, because the strategy of the table was changed or a "
            f"retention was raised since it started; start again with 'sweepflow legacy-sweep {table} --restart'"
        )
        self.table = table
        self.run = run


class AlreadySwept(SweepflowError):
    """Versions that a protection was to keep may have been removed already. Nothing was changed."""

    code = "already_swept"

    def __init__(self, ts: int, earliest: int) -> None:
        super().__init__(
            f"protection: {ts} can no longer be protected, sweeps have reached {earliest}; "
            f"protect {earliest} or a later timestamp"
        )
        self.ts = ts
        self.earliest = earliest


class RecordChanged(SweepflowError):
    """A protection was changed after it was read, so the decision about it is outdated. Nothing was changed."""

    code = "changed"
    retryable = True

    def __init__(self, record_id: str) -> None:
        super().__init__(f"protection: record {record_id!r} was changed at the same time; check it and try again")


class OwnerSilent(SweepflowError):
    """The system that knows whether the owner of a protection has finished did not answer."""

    code = "unavailable"
    retryable = True


class NeedsAttention(SweepflowError):
    """An operator has to decide or repair something.

    `about` names each problem in words that stay the same while the problem lasts, so that an alert about it is sent
    once. `reason` names the most serious kind of problem."""

    code = "needs_attention"

    def __init__(self, sentences: Sequence[str], about: Sequence[str], **more: Any) -> None:
        rest = [f"and {len(sentences) - 10} more, in the log"] if len(sentences) > 10 else []
        super().__init__(" | ".join([*sentences[:10], *rest]), **more)
        self.about = tuple(about)


# --- Airflow and the web page -----------------------------------------------------------------------------------


class AirflowNotReady(SweepflowError):
    """Airflow lacks something that a sweep needs: a pool, a connection, a login, an answer."""

    code = "unavailable"

    status: int | None = None
    """The HTTP status, if Airflow answered with an error."""


class AirflowUnreachable(AirflowNotReady):
    """Airflow did not answer, or answered with an error of its own."""

    retryable = True


class AirflowTimedOut(AirflowUnreachable):
    """Airflow did not answer in time. What was asked for may have been done."""


class AirflowHasNone(AirflowNotReady):
    """Airflow answered that what was named does not exist."""

    code = "not_found"


class RequestRefused(SweepflowError):
    """A request to the web page is not acceptable, or there are too many. Nothing was changed."""

    code = "refused"


# --- programs and servers on this machine -----------------------------------------------------------------------


class ProgramMissing(SweepflowError):
    """A program that Spark, Cassandra, PostgreSQL or Airflow needs is missing or too old. Nothing was started."""

    code = "unavailable"


class ServerNotReady(SweepflowError):
    """A local server was not started, does not answer, or has ended."""

    code = "unavailable"


# --- Cassandra's nodes and SSTables -----------------------------------------------------------------------------


class SSTableGone(SweepflowError):
    """The file existed when the files were listed. Cassandra has replaced or dropped it since."""

    code = "not_found"

    def __init__(self, file: object) -> None:
        super().__init__(
            f"file: {file} no longer exists, Cassandra has compacted or dropped it; list the files of the table again"
        )
        self.file = file


class SSTableUnreadable(SweepflowError):
    """A file is damaged or has an unknown format, or the tool that reads it failed. Nothing was changed.

    `command` is what an operator can run about it."""

    code = "unreadable"

    def __init__(self, file: object, problem: str, *, reason: str, command: str = "nodetool verify") -> None:
        super().__init__(f"file: {file} can't be measured, {problem}; run '{command}' on its table", reason=reason)
        self.file = file
        self.command = command


class NodeUnreachable(SweepflowError):
    """A program could not be run on the machine that holds a node's files. Nothing was changed."""

    code = "unavailable"
    retryable = True

    def __init__(self, prefix: Sequence[str], program: str, problem: str, *, reason: str, output: str = "") -> None:
        """`output`: the last line that the program, or the command that starts it there, has printed."""
        through = f"through '{prefix[0]}'" if prefix else "on this machine"  # the other arguments may be secret
        super().__init__(
            f"node: {program} can't be run {through}: {problem}; check setting compaction_nodes", reason=reason
        )
        self.program = program
        self.through = prefix[0] if prefix else None
        self.output = output


class NodetoolFailed(SweepflowError):
    """One of Cassandra's own tools failed."""
