"""Who did what to a store, when and why: what people did, not what sweeps do by themselves.

A note is written before the deed, as asked for, and again when its outcome is known. Whoever dies in between leaves a
note that says so. Newest first, so that the last few are one read however many there are; nothing is ever removed.
"""

from __future__ import annotations

import getpass
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.errors import BadValue, SweepflowError
from sweep_tasks.model import MAX_TS, Cell, Span
from sweep_tasks.store.contract import Store
from sweep_tasks.store.system import JOURNAL
from sweep_tasks.timestamps.service import TimestampService

ASKED, DONE, FAILED = "asked", "done", "failed"
NO_REASON = "none was given"
"""By a command that does not insist on one."""
QUARANTINED_ENTRIES = "quarantined entries"
"""What the retry of those is about."""
MOST_CHARACTERS = 500
_ROW = b"notes"
_LAST_MS = 2**63


class Note(NamedTuple):
    at_ms: int
    by: str
    what: str
    """The kind of deed, as the command names it."""
    about: str
    """The table, record or shards; empty for everything."""
    reason: str
    outcome: str = ASKED


class Begun(NamedTuple):
    cell: Cell
    note: Note


class Journal:
    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._timestamps = TimestampService(store)

    @contextmanager
    def noted(self, by: str, what: str, about: str, reason: str) -> Iterator[None]:
        """Whatever is done in the block was asked for by somebody, for a reason."""
        begun = self.begin(by, what, about, reason)
        try:
            yield
        except SweepflowError as error:
            self.end(begun, error)
            raise
        self.end(begun)

    def begin(self, by: str, what: str, about: str, reason: str) -> Begun:
        """For a deed that is not done by one thread in one go; to be ended by whoever knows the outcome."""
        note = Note(self._clock.now_ms(), by, what, about, checked_reason(reason))
        cell = Cell(_ROW, (_LAST_MS - note.at_ms).to_bytes(8, "big") + secrets.token_bytes(8))
        self._write(cell, note)
        return Begun(cell, note)

    def end(self, begun: Begun, error: SweepflowError | None = None) -> None:
        outcome = DONE if error is None else f"{FAILED}: {error.code}"
        self._write(begun.cell, begun.note._replace(outcome=outcome))

    def last(self, most: int = 20) -> list[Note]:
        """Newest first."""
        found = self._store.scan(JOURNAL, MAX_TS, Span.only(_ROW), limit=most).items
        return [Note(*json.loads(version.value)) for _, version in found]

    def _write(self, cell: Cell, note: Note) -> None:
        self._store.put(self._timestamps.fresh(), {JOURNAL: {cell: json.dumps(note).encode()}})


def me() -> str:
    """Whoever runs this process."""
    return getpass.getuser()


def checked_reason(reason: str) -> str:
    given = " ".join(reason.split())
    if not given:
        raise BadValue("reason", "is missing; say in a few words why, for whoever looks at it later")
    if len(given) > MOST_CHARACTERS:
        raise BadValue("reason", f"has {len(given)} characters, at most {MOST_CHARACTERS} are kept")
    return given
