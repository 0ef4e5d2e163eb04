"""Processes that can be put back to any point of their run.

A coroutine can't be copied. So a process that continues from one point in several ways is run again from its start
with the same answers as before: it is real code, and every step follows from the answers of the store. The first call
without an answer ends the run, and is the current position of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sweep_tasks.errors import OutcomeUnknown, SweepflowError
from sweep_tasks.model import TableRef
from sweep_tasks.protection.records import Record
from sweep_tasks.store import Store
from sweep_tasks.store.contract import Page
from sweep_tasks.store.faults import FaultyStore, ProcessCrashed
from sweep_tasks.store.memory import MemoryStore
from tests.support.simulation import InPieces, of_journal

READS = frozenset(
    [
        "tables", "catalog_rows", "get", "newest", "timestamps", "scan", "scan_versions", "read", "peek", "read_rows",
        "scan_registers",
    ]
)  # fmt: skip


class Actor(NamedTuple):
    """A process: its name and what it does. It does the same each time, given the same answers."""

    name: str
    work: Callable[[Store], object]
    holds: Record | None = None
    """What it may rely on after the acceptance of its record."""
    lets_go_of: str | None = None
    """The record that may be released or moved after this process has started."""
    reads_at: int | None = None
    """The timestamp of a reader. Its result is the value of each cell."""
    settles: bool = False
    """It may complete the work of another process, which is then not informed."""
    commits: bool = False
    """It is the only transaction."""
    forces: bool = False
    """It empties the table despite protections."""
    writes: bytes | None = None
    """It is the only transaction, and writes this to the first cell."""


def in_pieces(actor: Actor, backwards: bool = False) -> Actor:
    """The same process, whose bulk calls are one call for each cell: no bulk call is atomic across cells."""
    return actor._replace(work=lambda store: actor.work(InPieces(store, backwards)))


@dataclass(frozen=True, slots=True)
class Answer:
    call: str
    value: Any = None
    error: SweepflowError | None = None
    shown: tuple[bytes | None, ...] = ()
    """What an update read and passed to the caller's function, which may have kept it."""

    def key(self) -> Hashable:
        """Equal for answers that a process can't distinguish."""
        failed = None if self.error is None else (type(self.error), str(self.error))
        return _frozen(self.value), failed, self.shown

    @property
    def is_lost(self) -> bool:
        return isinstance(self.error, OutcomeUnknown)

    def lost(self) -> Answer:
        """The call is applied, but its caller gets no answer."""
        return replace(self, value=None, error=OutcomeUnknown(f"store: {self.call} was not answered in time"))

    def give(self, arguments: tuple[Any, ...]) -> Any:
        for current in self.shown:
            arguments[2](current)
        if self.error is not None:
            raise self.error.with_traceback(None)
        return _own_copy(self.value)


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]

    @property
    def only_reads(self) -> bool:
        return self.name in READS

    def make(self, store: MemoryStore) -> Answer:
        shown: list[bytes | None] = []
        arguments = self.arguments
        if self.name == "update":
            table, cell, change = arguments

            def watched(current: bytes | None) -> Any:
                shown.append(current)
                return change(current)

            arguments = (table, cell, watched)
        try:
            value = getattr(store, self.name)(*arguments, **self.named)
        except SweepflowError as error:
            return Answer(self.name, None, error, tuple(shown))
        return Answer(self.name, value, None, tuple(shown))

    def __str__(self) -> str:
        """Without its values: a schedule shows which process did what to which table."""
        tables = [each for each in self.arguments if isinstance(each, TableRef)]
        written = [table for each in self.arguments if isinstance(each, Mapping) for table in each]
        of = sorted({str(table) for table in [*tables, *written] if isinstance(table, TableRef)})
        return f"{self.name} {', '.join(of)}".strip()


class Position:
    """The position of a process, given by its answers so far: before its next call, or at its end."""

    def __init__(self, actor: Actor, answers: tuple[Answer, ...] = ()) -> None:
        self.actor = actor
        self.answers = answers
        self.lost_answers = sum(answer.is_lost for answer in answers)
        self.call: Call | None = None
        self.result: object = None
        self.error: SweepflowError | None = None
        self._further: dict[Hashable, Position] = {}
        store = _Recounting(answers)
        try:
            self.result = actor.work(store)
        except ProcessCrashed:
            assert store.is_next, f"{actor.name} ended without a call"
        except SweepflowError as error:
            self.error = error
        self.call = store.is_next
        assert store.calls == len(answers), f"{actor.name} did something else when it was run again"

    @property
    def ended(self) -> bool:
        return self.call is None

    @property
    def has_started(self) -> bool:
        return bool(self.answers)

    def has_called(self, name: str) -> bool:
        return any(answer.call == name for answer in self.answers)

    def after(self, answer: Answer) -> Position:
        """One object for all positions with the same answers: their futures are the same."""
        key = answer.key()
        found = self._further.get(key)
        if found is None:
            found = self._further[key] = Position(self.actor, (*self.answers, answer))
        return found


class _Recounting(FaultyStore):
    """Returns recorded answers, and ends the process when there are no more."""

    def __init__(self, answers: tuple[Answer, ...]) -> None:
        super().__init__(MemoryStore())
        self._answers = answers
        self.is_next: Call | None = None

    def call(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self.is_next is None and of_journal(arguments):
            return _JOURNAL_ANSWERS[name]
        if self.calls == len(self._answers):
            if self.is_next is None:
                once = tuple(list(each) if isinstance(each, Iterator) else each for each in arguments)
                self.is_next = Call(name, once, named)
            raise ProcessCrashed(f"{name} has no answer yet")
        answer = self._answers[self.calls]
        assert answer.call == name, f"called {name}, and before that with the same answers {answer.call}"
        self.calls += 1
        return answer.give(arguments)


_JOURNAL_ANSWERS: Mapping[str, Any] = {
    "read": {}, "put": None, "compare_and_set": True, "scan": Page([], None)
}  # fmt: skip
"""The journal is always empty and accepts every entry: entries differ each time that a process runs again."""


def _frozen(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return tuple((key, _frozen(each)) for key, each in value.items())
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    if isinstance(value, Page):
        return _frozen(value.items), value.resume
    assert isinstance(value, Hashable)
    return value


def _own_copy(value: Any) -> Any:
    """Copy an answer, because its receiver may change it."""
    if isinstance(value, dict):
        return {key: _own_copy(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(value)
    return Page(list(value.items), value.resume) if isinstance(value, Page) else value
