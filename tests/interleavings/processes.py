"""Processes that can be put back to any point of their run.

A coroutine can't be copied, so a process that is to go on from one point in several ways is run again from its start,
and told what it was told before: real code, whose every step follows from the answers that the store gave it. The
first call that has no answer yet ends the run, and is the point where the process stands.
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

READS = frozenset(
    ["tables", "get", "newest", "timestamps", "scan", "scan_versions", "read", "peek", "read_rows", "scan_registers"]
)


class Actor(NamedTuple):
    """Somebody who works on the store: who it is, and what it does. The same each time, given the same answers."""

    name: str
    work: Callable[[Store], object]
    holds: Record | None = None
    """What it may rely on once it was told that it is accepted."""
    lets_go_of: str | None = None
    """The record that may be gone, or elsewhere, once this one has begun."""
    reads_at: int | None = None
    """The timestamp of a reader, whose result is what it was told of each cell."""
    settles: bool = False
    """It may finish what another has begun, who then is not told."""
    commits: bool = False
    """It is a transaction, the only one here."""


@dataclass(frozen=True, slots=True)
class Answer:
    call: str
    value: Any = None
    error: SweepflowError | None = None
    shown: tuple[bytes | None, ...] = ()
    """What an update found and handed to the caller's function, who may have kept it."""

    def key(self) -> Hashable:
        """Equal for answers that a process can't tell apart."""
        failed = None if self.error is None else (type(self.error), str(self.error))
        return _frozen(self.value), failed, self.shown

    @property
    def is_lost(self) -> bool:
        return isinstance(self.error, OutcomeUnknown)

    def lost(self) -> Answer:
        """The work is done, and the caller does not hear of it."""
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
        """Without what it says: a schedule is read for who did what to which table."""
        tables = [each for each in self.arguments if isinstance(each, TableRef)]
        written = [table for each in self.arguments if isinstance(each, Mapping) for table in each]
        of = sorted({str(table) for table in [*tables, *written] if isinstance(table, TableRef)})
        return f"{self.name} {', '.join(of)}".strip()


class Position:
    """How far a process has come, by the answers it has had: before its next call, or at its end."""

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
            assert store.stands_before, f"{actor.name} is gone without having made a call"
        except SweepflowError as error:
            self.error = error
        self.call = store.stands_before
        assert store.calls == len(answers), f"{actor.name} did something else when it was run again"

    @property
    def ended(self) -> bool:
        return self.call is None

    @property
    def has_begun(self) -> bool:
        return bool(self.answers)

    def has_called(self, name: str) -> bool:
        return any(answer.call == name for answer in self.answers)

    def after(self, answer: Answer) -> Position:
        """One object for all who were told the same: their futures are the same."""
        key = answer.key()
        found = self._further.get(key)
        if found is None:
            found = self._further[key] = Position(self.actor, (*self.answers, answer))
        return found


class _Recounting(FaultyStore):
    """Answers as it is told to, and ends the process that asks for more."""

    def __init__(self, answers: tuple[Answer, ...]) -> None:
        super().__init__(MemoryStore())
        self._answers = answers
        self.stands_before: Call | None = None

    def call(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self.calls == len(self._answers):
            if self.stands_before is None:
                once = tuple(list(each) if isinstance(each, Iterator) else each for each in arguments)
                self.stands_before = Call(name, once, named)
            raise ProcessCrashed(f"{name} has no answer yet")
        answer = self._answers[self.calls]
        assert answer.call == name, f"called {name}, and before that with the same answers {answer.call}"
        self.calls += 1
        return answer.give(arguments)


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
    """Whoever is given an answer may change it."""
    if isinstance(value, dict):
        return {key: _own_copy(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(value)
    return Page(list(value.items), value.resume) if isinstance(value, Page) else value
