"""The journal: who did what to a store, when and why, as a chain of entries that can be verified.

An act is recorded in two entries: the intent before it, and the outcome after it. If the intent can't be recorded, the
act is refused. An intent without an outcome belongs to a process that died in between. Each entry holds the hash of the
previous one, so that no entry can be changed or removed later without a trace.

The newest entry (the head) is one register that is changed by compare-and-set, which orders all writers. A writer first
copies the current head to its place in the table of entries, and only then replaces it with its own entry. Nothing is
lost if it stops in between, and two writers copy the same bytes. Entries are read by number.

So at any moment, and after a crash between any two calls, the table holds no entry with a greater number than the head,
and none at all if there is no head. The head is never removed, and its number only rises. Anything else shows that
the head was removed or set back.

Pruning is recorded before it removes anything, with the hash of the last entry that it removes. The chain of the
remaining entries starts at that hash. Every entry is also logged, so that a log system can collect it.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import structlog

from sweep_tasks import retries
from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.errors import OutcomeUnknown, StoreBusy, StoreError, SweepflowError
from sweep_tasks.journal.actors import MOST_CHARACTERS, SCHEDULER, Process, checked_reason, current_actor, shown_name
from sweep_tasks.logs import JOURNAL_LINE
from sweep_tasks.model import MAX_TS, Cell, Span
from sweep_tasks.store.contract import Change, Store, chunks, every
from sweep_tasks.store.schema import JOURNAL, JOURNAL_HEAD
from sweep_tasks.texts import printable

ASKED, DONE, FAILED = "asked", "done", "failed"
DEFECT = "defect"
"""The code of an act that ended with an error that is not a `SweepflowError`."""
INTERRUPTED = "interrupted"
"""The code of an act that its caller stopped before the end."""
QUARANTINED_ENTRIES = "quarantined entries"
"""The subject of a retry of quarantined entries."""
PRUNE = "prune"

_HEAD = Cell(b"journal", b"head")
_ENTRY = b"entry"
"""The rows of entries begin like this, followed by the number."""
_OLD_NOTES = b"notes"
"""The row of the entries of older versions, which had no chain."""
_ENTRY_TS = 1
"""The timestamp that every entry is stored at. It never changes, and a removal has a later one."""
_PAGE = 200
_TOO_MANY = 2**63

log = structlog.get_logger(__name__)


Detail: TypeAlias = "str | int | float | Sequence[Detail] | Mapping[str, Detail] | None"
"""A JSON value."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One entry of the journal: an intent or an outcome. Serialised by `Link.of`, parsed by `Link.load`."""

    number: int
    """The position in the chain, from 1."""
    at_ms: int
    by: str
    what: str
    """The kind of act, named like its command."""
    about: str
    """The table, record or shards that it is about; empty for the whole store."""
    reason: str
    outcome: str = ASKED
    intent: int | None = None
    """The number of the intent that this is the outcome of; None for an intent."""
    process: Process = field(default_factory=Process.current)
    details: Mapping[str, Any] = field(default_factory=dict)
    """Plain JSON values, such as timestamps and counts. Which ones there are depends on the kind of act."""
    kept_from: int = 1
    """The least number that was not pruned when this entry was written."""
    previous: str = ""
    """The hash of the previous entry."""
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))
    """Distinguishes entries that two processes write at the same moment."""


class Link(NamedTuple):
    """An entry and the bytes that it is stored as, which its hash is computed from."""

    entry: JournalEntry
    stored: bytes

    @classmethod
    def of(cls, entry: JournalEntry) -> Link:
        """Serialise an entry."""
        return cls(entry, json.dumps(asdict(entry), sort_keys=True, separators=(",", ":")).encode())

    @classmethod
    def load(cls, number: int | None, stored: bytes) -> Link:
        """Parse a stored entry. Unknown fields of a later version are ignored."""
        try:
            plain = json.loads(stored)
            known = {each.name: plain[each.name] for each in fields(JournalEntry)}
            _check(known)
            return cls(JournalEntry(**known | {"process": Process(*known["process"])}), stored)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise _broken(number, "unreadable") from error

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.stored).hexdigest()


class Note(NamedTuple):
    """An act as it is displayed: the intent, with the outcome if there is one."""

    at_ms: int
    by: str
    what: str
    about: str
    reason: str
    outcome: str = ASKED
    number: int | None = None
    """The number of the intent. None, like all that follows, in the entries of older versions."""
    process: Process | None = None
    details: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    """The details of the outcome."""

    def document(self) -> dict[str, Any]:
        """Return the act as JSON types."""
        return self._asdict() | {"process": self.process and self.process._asdict()}


class Act:
    """An act in progress: collects the details and the outcome that are recorded when it ends."""

    def __init__(self) -> None:
        self.details: dict[str, Detail] = {}
        self.outcome = DONE

    def add(self, **details: Detail) -> None:
        """Add details to the outcome."""
        self.details |= details

    def fail(self, error: Exception) -> None:
        """Mark the act as failed, with the code of the error. Its message is left out: it may contain anything."""
        if not isinstance(error, SweepflowError):
            self.refuse(DEFECT)
            return
        self.refuse(error.code)
        self.add(**{name: value for name, value in (("field", error.field), ("reason", error.reason)) if value})

    def refuse(self, code: str) -> None:
        """Mark the act as refused. For an act whose caller gets a return value instead of an error."""
        self.outcome = f"{FAILED}: {code}"


class Verified(NamedTuple):
    """The result of a verification."""

    entries: int
    kept_from: int
    head: str
    """The hash of the newest entry. If it is kept elsewhere, it proves later that no entry was cut off."""


class Journal:
    """The journal of one store."""

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()

    # --- recording ----------------------------------------------------------------------------------------------

    @contextmanager
    def record(self, what: str, about: str, **details: Detail) -> Iterator[Act]:
        """Record the block as an act of the current actor: the intent before it, the outcome after it. If the intent
        can't be recorded, the block does not run."""
        actor = current_actor()
        with self.record_as(actor.name, what, printable(about, MOST_CHARACTERS), actor.reason, **details) as act:
            yield act

    @contextmanager
    def record_as(self, by: str, what: str, about: str, reason: str, **details: Detail) -> Iterator[Act]:
        """Like `record`, but for the given user and reason."""
        intent = self.begin(by, what, about, reason, **details)
        act = Act()
        try:
            yield act
        except Exception as error:
            act.fail(error)
            self.end(intent, act)
            raise
        except GeneratorExit:  # the act is done step by step, and its caller wants no more steps
            act.refuse(INTERRUPTED)
            self.end(intent, act)
            raise
        self.end(intent, act)

    def begin(self, by: str, what: str, about: str, reason: str, **details: Detail) -> JournalEntry:
        """Record an intent, for an act that another function or process ends."""
        given = checked_reason(reason)
        intent = JournalEntry(0, self._clock.now_ms(), shown_name(by), what, about, given, details=_plain(details))
        return self._append(intent)

    def end(self, intent: JournalEntry, act: Act) -> None:
        """Record the outcome of an act. The act is already done: if its outcome can't be recorded, it is logged, and
        the intent stays without an outcome."""
        try:
            self._append(self._outcome(intent, act.outcome, act.details))
        except StoreError as lost:
            log.error("could not record an outcome in the journal", code="outcome_not_recorded", number=intent.number,
                      what=intent.what, outcome=act.outcome, error=lost.code)  # fmt: skip

    def entry(self, number: int) -> JournalEntry | None:
        """Return an entry by its number, or None if it was pruned or never written."""
        head = self._head()
        if head and head.entry.number == number:
            return head.entry
        found = self._stored([number]).get(number)
        return found.entry if found else None

    def outcome_of(self, intent: JournalEntry) -> JournalEntry | None:
        """Return the outcome that was recorded for an intent, or None. Reads the entries since then."""
        for number, link in self._links():
            if number <= intent.number:
                return None
            if link and link.entry.intent == intent.number:
                return link.entry
        return None

    def _outcome(self, intent: JournalEntry, outcome: str, details: Mapping[str, Detail]) -> JournalEntry:
        return replace(
            intent,
            at_ms=self._clock.now_ms(),
            outcome=outcome,
            intent=intent.number,
            details=_plain(details),
            process=Process.current(),
            nonce=secrets.token_hex(8),
        )

    def _append(self, entry: JournalEntry, kept_from: int = 1) -> JournalEntry:
        """Add an entry to the chain, log it, and return it with its number."""
        for attempt in range(retries.JOURNAL.attempts):
            head = self._head()
            if head:
                self._store.put(_ENTRY_TS, {JOURNAL: {_cell(head.entry.number): head.stored}})
                entry = replace(
                    entry,
                    number=head.entry.number + 1,
                    previous=head.hash,
                    kept_from=max(kept_from, head.entry.kept_from),
                )
            elif self._greatest_stored() is None:
                entry = replace(entry, number=1)
            elif self._head() is None:
                raise _broken(None, "missing")
            else:
                continue  # another process has written the first entries meanwhile
            if self._replace_head(head, Link.of(entry)):
                log.info("journal", code=JOURNAL_LINE, **asdict(entry) | {"process": entry.process._asdict()})
                return entry
            self._clock.sleep(retries.JOURNAL.pause_s(attempt))
        raise StoreBusy(
            f"journal: other processes wrote to it {retries.JOURNAL.attempts} times before this entry was recorded; "
            "nothing was done, retry later",
            reason="journal",
        )

    def _replace_head(self, head: Link | None, new: Link) -> bool:
        """Replace the head. If the answer is lost, the journal is read: no other entry has this nonce."""
        change = Change(head.stored if head else None, new.stored)
        try:
            return self._store.compare_and_set(JOURNAL_HEAD, _HEAD.row, {_HEAD.column: change})
        except OutcomeUnknown:
            found = self._head()
            if found and found.entry.number > new.entry.number:
                found = self._stored([new.entry.number]).get(new.entry.number)
            return found == new

    # --- reading ------------------------------------------------------------------------------------------------

    def last(self, most: int = 20, *, of_people: bool = False) -> list[Note]:
        """Return the last acts, the newest first, including those of older versions. With `of_people`, only acts of
        users among the last hundred, which are mostly hourly runs."""
        if of_people:
            asked_for = (note for note in islice(self._notes(_PAGE), _PAGE // 2) if note.by != SCHEDULER)
            return list(islice(asked_for, most))
        notes = list(islice(self._notes(2 * most), most))
        if len(notes) < most:
            old = self._store.scan(JOURNAL, MAX_TS, Span.only(_OLD_NOTES), limit=most - len(notes)).items
            notes += [Note(*json.loads(version.value)) for _, version in old]
        return notes

    def _notes(self, page: int) -> Iterator[Note]:
        """Yield acts, the newest first. Most acts are two entries."""
        outcomes: dict[int, JournalEntry] = {}
        for _, link in self._links(min(page, _PAGE)):
            if link is None:
                return
            entry = link.entry
            if entry.intent is None:
                end = outcomes.pop(entry.number, None)
                yield Note(
                    entry.at_ms, entry.by, entry.what, entry.about, entry.reason, end.outcome if end else entry.outcome,
                    entry.number, entry.process, entry.details, end.details if end else None,
                )  # fmt: skip
            else:
                outcomes.setdefault(entry.intent, entry)

    def _links(self, page: int = _PAGE) -> Iterator[tuple[int, Link | None]]:
        """Yield entries by number, from the newest to the oldest that was not pruned; None for a missing one."""
        head = self._head()
        if head is None:
            return
        yield head.entry.number, head
        for numbers in chunks(range(head.entry.number - 1, head.entry.kept_from - 1, -1), page):
            found = self._stored(numbers)
            yield from ((number, found.get(number)) for number in numbers)

    def _head(self) -> Link | None:
        stored = self._store.read(JOURNAL_HEAD, [_HEAD]).get(_HEAD)
        return Link.load(None, stored) if stored else None

    def _stored(self, numbers: Collection[int]) -> dict[int, Link]:
        cells = {_cell(number): number for number in numbers}
        found = self._store.get(JOURNAL, dict.fromkeys(cells, MAX_TS))
        return {cells[cell]: Link.load(cells[cell], version.value) for cell, version in found.items()}

    def _greatest_stored(self) -> int | None:
        """Return the greatest number in the table of entries, or None if it has none. Scans the table: the order of
        rows is the store's own."""
        entries = every(lambda after: self._store.scan(JOURNAL, MAX_TS, limit=_PAGE, after=after))
        rows = (cell.row for cell, _ in entries)
        return max((_number(row) for row in rows if row.startswith(_ENTRY)), default=None)

    # --- verifying and pruning ----------------------------------------------------------------------------------

    def verify(self) -> Verified:
        """Check every entry from the newest to the oldest. Raise an error with the code `journal_broken` and the number
        of the newest entry that is missing or changed."""
        stored = self._greatest_stored()  # before the head is read: the head may rise meanwhile
        head = self._head()
        if stored is not None and (head is None or stored > head.entry.number):
            raise _broken(None, "missing") if head is None else _broken(stored, "detached")
        anchors = {0: ""}
        count, expected, newest = 0, "", None
        for number, link in self._links():
            if link is None:
                if number > max(anchors):
                    raise _broken(number, "missing")
                break  # removed by a prune that was interrupted
            if (newest and link.hash != expected) or link.entry.number != number:
                raise _broken(number, "changed")
            newest, count, expected = newest or link, count + 1, link.entry.previous
            if link.entry.what == PRUNE and link.entry.intent is None:
                anchors[link.entry.details["through"]] = link.entry.details["hash"]
            if anchors.get(number - 1, expected) != expected:
                raise _broken(number - 1, "changed")
        if newest is None:
            return Verified(0, 1, "")
        kept_from = newest.entry.kept_from
        if kept_from - 1 not in anchors:
            raise _broken(kept_from - 1, "missing")
        return Verified(count, kept_from, newest.hash)

    def prune(self, by: str, reason: str, before_ms: int) -> int:
        """Remove entries that are older than a moment, and return how many. The newest entry always stays."""
        head = self._head()
        if head is None:
            return 0
        first, kept = head.entry.kept_from, head
        for numbers in chunks(range(first, head.entry.number), _PAGE):
            young = [link for link in self._stored(numbers).values() if link.entry.at_ms >= before_ms]
            if young:
                kept = min(young, key=lambda link: link.entry.number)
                break
        through = kept.entry.number - 1
        if through < first:
            return 0
        about = f"entries {first} to {through}"
        intent = self.begin(by, PRUNE, about, reason, through=through, hash=kept.entry.previous)
        for numbers in chunks(range(first, through + 1), _PAGE):
            self._store.delete_versions(JOURNAL, [(_cell(number), _ENTRY_TS) for number in numbers])
        self._append(self._outcome(intent, DONE, {}), kept_from=through + 1)
        return through - first + 1


def _check(plain: Mapping[str, Any]) -> None:
    """Raise an error if a field of a stored entry has a wrong type or value, so that the chain can't be followed.
    Anyone who can write to the store can put anything there."""
    numbers = [plain["number"], plain["kept_from"], plain["at_ms"]]
    texts = [plain["previous"], plain["by"], plain["what"], plain["about"], plain["reason"], plain["outcome"]]
    details: Any = plain["details"]
    if plain["what"] == PRUNE and plain["intent"] is None:
        numbers.append(details["through"])
        texts.append(details["hash"])
    right = all(isinstance(each, int) for each in numbers) and all(isinstance(each, str) for each in texts)
    if not (right and isinstance(details, dict) and isinstance(plain["intent"], int | None)):
        raise TypeError
    if not 1 <= plain["kept_from"] <= plain["number"] < _TOO_MANY:
        raise ValueError


def _plain(details: Mapping[str, Detail]) -> dict[str, Any]:
    """Return details as they are stored: plain lists and dictionaries with plain strings, no enums."""
    found: dict[str, Any] = json.loads(json.dumps(details, sort_keys=True))
    return found


def _cell(number: int) -> Cell:
    return Cell(_ENTRY + number.to_bytes(8, "big"), b"v")


def _number(row: bytes) -> int:
    return int.from_bytes(row.removeprefix(_ENTRY), "big")


def _broken(number: int | None, reason: str) -> SweepflowError:
    """`number` is None for the newest entry."""
    which = "the newest entry" if number is None else f"entry {number}"
    return SweepflowError(
        f"journal: {which} is {reason}; compare the journal with the collected logs, and check who can write to the "
        "store",
        code="journal_broken",
        field="journal",
        reason=reason,
        number=number,
    )
