"""Snapshot isolation under every kind of failure, checked on the history and not on the code.

Simulated processes run small transactions one store call at a time. Hypothesis chooses which one runs next, which one
crashes, whose answer is lost, when leases expire and when a sweep publishes. At the end the history is checked against
the definition of snapshot isolation, by a checker that does not know how the product works.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal, NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import CommitUnknown, SweepflowError
from sweep_tasks.model import Cell, ConflictHandling, SweepStrategy, TableMetadata, TableRef, Version
from sweep_tasks.store import Store
from sweep_tasks.store.faults import ProcessCrashed
from sweep_tasks.transactions import TransactionManager
from sweep_tasks.transactions.commit import Committer
from sweep_tasks.transactions.outcomes import ABORTED, CommitTable, Writers
from sweep_tasks.transactions.snapshot import Snapshot
from tests.conftest import memory_store
from tests.properties.searching import Searched, find_nothing, length, search
from tests.support.simulation import Process, SharedClock

CHECKED = TableRef.parse("bank.checked")
FREE = TableRef.parse("bank.free")
CELLS = [Cell(b"a", b"c"), Cell(b"b", b"c")]

Place = tuple[TableRef, Cell]
places = st.tuples(st.sampled_from([CHECKED, FREE]), st.sampled_from(CELLS))
operations = st.lists(
    st.tuples(st.sampled_from(["write", "write", "delete", "read", "read", "scan"]), places),
    min_size=1,
    max_size=3,
)
few_operations = st.lists(
    st.tuples(st.sampled_from(["write", "read"]), st.tuples(st.just(CHECKED), st.just(CELLS[0]))),
    min_size=1,
    max_size=2,
)


@dataclass
class Attempt:
    """What one transaction did and read. Values are unique, so a read shows which write it saw."""

    name: str
    start: int = 0
    committing: bool = False
    claim: int | Literal["unknown"] | None = "unknown"
    """The commit timestamp that it was given; None if the result was that it did not commit."""
    reads: list[tuple[Place, bytes | None, dict[Place, bytes]]] = field(default_factory=list)
    """Where it read, what it saw, and its own writes at that moment."""
    writes: dict[Place, bytes] = field(default_factory=dict)


class Bank(Searched):
    steps = 40

    def __init__(self) -> None:
        super().__init__()
        self.clock = SharedClock()
        self.shared = memory_store(self.clock)
        self.shared.create_table(CHECKED, TableMetadata())
        self.shared.create_table(FREE, TableMetadata(conflicts=ConflictHandling.NONE))
        self.running: list[Process[object]] = []
        self.attempts: list[Attempt] = []
        self.passed_by_a_sweep: list[Attempt] = []

    # --- what may happen ----------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.running) < 4)
    @rule(program=operations, has_start=st.booleans())
    def begin(self, program: list[tuple[str, Place]], has_start: bool) -> None:
        process = self._begin(program)
        while has_start and not self.attempts[-1].start:
            process.step()

    def _begin(self, program: list[tuple[str, Place]]) -> Process[object]:
        attempt = Attempt(f"t{len(self.attempts)}")
        self.attempts.append(attempt)
        process: Process[object] = Process(self.shared, lambda store: self._transact(store, attempt, program))
        self.running.append(process)
        self.clock.processes.append(process)
        return process

    @precondition(lambda self: self.running)
    @rule(who=st.integers(0, 3), steps=st.integers(1, 12))
    def go_on(self, who: int, steps: int) -> None:
        process = self.running[who % len(self.running)]
        for _ in range(steps):
            process.step()
        self._sort_out()

    @precondition(lambda self: self.running)
    @rule(who=st.integers(0, 3), call=st.sampled_from(["tables", "put", "newest", "update", "put_if_absent"]))
    def go_on_up_to(self, who: int, call: str) -> None:
        """Run up to a call: where the interesting things happen."""
        self._up_to(self.running[who % len(self.running)], call)

    def _up_to(self, process: Process[object], call: str) -> None:
        while process.step() and process.next_call != call:
            pass
        self._sort_out()

    @rule(program=operations)
    def transact_at_once(self, program: list[tuple[str, Place]]) -> None:
        self._begin(program).run_to_end()
        self._sort_out()

    @precondition(lambda self: self.running)
    @rule(who=st.integers(0, 3), after=st.booleans())
    def crash(self, who: int, after: bool) -> None:
        process = self.running[who % len(self.running)]
        if process.step():
            (process.crash_after_call if after else process.crash_here)()
        self._sort_out()

    @precondition(lambda self: self.running)
    @rule(who=st.integers(0, 3))
    def lose_an_answer(self, who: int) -> None:
        self.running[who % len(self.running)].lose_next_answer()

    @rule()
    def leases_run_out(self) -> None:
        self.clock.advance(31)

    @rule(back=st.integers(0, 3))
    def a_sweep_publishes(self, back: int) -> None:
        threshold = max(0, TimestampService(self.shared).fresh() - back)
        Thresholds(self.shared).raise_strategy(SweepStrategy.CONSERVATIVE, threshold)
        self.passed_by_a_sweep += [a for a in self.attempts if 0 < a.start < threshold and not a.committing]

    # --- what a transaction does ----------------------------------------------------------------------------------

    def _transact(self, store: Store, attempt: Attempt, program: list[tuple[str, Place]]) -> None:
        tx = TransactionManager(store, enqueue=False, clock=self.clock, renew_leases=False).transaction()
        attempt.start = tx.start
        for number, (operation, (table, cell)) in enumerate(program):
            own = dict(attempt.writes)
            if operation == "read":
                attempt.reads.append(((table, cell), tx.get(table, *cell), own))
            elif operation == "scan":
                found = dict(tx.scan(table))
                attempt.reads += [((table, each), found.get(each), own) for each in CELLS]
            elif operation == "write":
                attempt.writes[table, cell] = f"{attempt.name}.{number}".encode()
                tx.put(table, *cell, attempt.writes[table, cell])
            else:
                attempt.writes[table, cell] = b""
                tx.delete(table, *cell)
        attempt.committing = True
        try:
            attempt.claim = tx.commit()
        except CommitUnknown:
            raise
        except SweepflowError:
            attempt.claim = None
            raise

    def _sort_out(self) -> None:
        for process in self.running:
            if process.ended and process.error:
                assert isinstance(process.error, SweepflowError | ProcessCrashed), process.error
        self.running = [process for process in self.running if not process.ended]

    # --- what must hold -----------------------------------------------------------------------------------------

    @invariant()
    def no_two_attempts_share_a_start(self) -> None:
        starts = [attempt.start for attempt in self.attempts if attempt.start]
        assert len(starts) == len(set(starts))

    def teardown(self) -> None:
        while self.running:
            for process in list(self.running):
                process.step()
            self._sort_out()
        self.clock.advance(31)
        self._everything_is_read_once_more()
        self.check()

    def _everything_is_read_once_more(self) -> None:
        self.attempts.append(Attempt("last"))
        program = [("scan", (table, CELLS[0])) for table in (CHECKED, FREE)]
        last = Process(self.shared, lambda store: self._transact(store, self.attempts[-1], program))
        last.finish()

    def check(self) -> None:
        decided = CommitTable(self.shared).outcomes([attempt.start for attempt in self.attempts])
        commits = {start: commit for start, commit in decided.items() if commit != ABORTED}
        committed = [attempt for attempt in self.attempts if attempt.start in commits]
        for attempt in committed:
            assert commits[attempt.start] > attempt.start
            assert attempt not in self.passed_by_a_sweep, "committed although a sweep had passed it before"
        for attempt in self.attempts:
            assert attempt.claim in ("unknown", commits.get(attempt.start)), "got the wrong outcome"
            for place, seen, own in attempt.reads:
                visible = [a for a in committed if place in a.writes and commits[a.start] < attempt.start]
                newest = max(visible, key=lambda a: a.start, default=None)
                expected = own.get(place, newest.writes[place] if newest else b"")
                assert (seen or b"") == expected, f"{attempt.name} at {attempt.start} read the wrong version"
        for one, other in combinations(committed, 2):
            both = {table for table, _ in one.writes.keys() & other.writes.keys()}
            at_once = one.start < commits[other.start] and other.start < commits[one.start]
            assert not (at_once and CHECKED in both), "two writers of a cell, open at once, both committed"


class Branch(Bank):
    """A few transactions that all write the same cell, and stop after they have started, or before their commit is
    stored. None dies, and no answer is lost: a conflict between two of them shows up sooner."""

    steps = 15

    @precondition(lambda self: len(self.running) < 3)
    @rule(program=few_operations, commits=st.booleans())
    def begin(self, program: list[tuple[str, Place]], commits: bool) -> None:
        super().begin(program, True)
        if commits:
            self._up_to(self.running[-1], "put_if_absent")

    @precondition(lambda self: self.running)
    @rule(who=st.integers(0, 2))
    def go_on(self, who: int) -> None:
        self.running[who % len(self.running)].run_to_end()
        self._sort_out()

    @rule(program=few_operations)
    def transact_at_once(self, program: list[tuple[str, Place]]) -> None:
        super().transact_at_once(program)

    @rule()
    def a_sweep_publishes(self) -> None:
        super().a_sweep_publishes(0)

    go_on_up_to = crash = lose_an_answer = None  # type: ignore[assignment]


# --- and it can fail ------------------------------------------------------------------------------------------------


def pass_over_unfinished(self: Writers, starts: set[int]) -> dict[int, int]:
    """A reader that treats an unfinished writer as aborted."""
    return dict.fromkeys(starts, ABORTED) | self._commits.outcomes(starts)


def never_check_conflicts(self: Committer, *_: object) -> None:
    """Last writer wins, silently."""


def never_check_tables(self: Committer, *_: object) -> None:
    """Commit whether or not a sweep has passed."""


def believe_in_own_decision(self: CommitTable, start: int, commit: int) -> int:
    """Trust the commit timestamp that was put, not the stored one."""
    original_decide(self, start, commit)
    return commit


def judge_by_the_start(
    self: Snapshot, table: TableRef, newest: dict[Cell, Version]
) -> tuple[dict[Cell, Version], bool]:
    """Judge a version by its start, not by its commit."""
    return {cell: version for cell, version in newest.items() if version.ts != -1}, False


original_decide = CommitTable.decide


class Mistake(NamedTuple):
    owner: type
    name: str
    instead: Callable[..., object]
    after: int
    """The number of examples until it was caught, see `searching.py`."""


MISTAKES = [
    Mistake(Writers, "settle", pass_over_unfinished, after=31),
    Mistake(Committer, "_check_conflicts", never_check_conflicts, after=18),
    Mistake(Committer, "_check_tables", never_check_tables, after=62),
    Mistake(Snapshot, "_visible", judge_by_the_start, after=46),
    Mistake(CommitTable, "decide", believe_in_own_decision, after=34),
]
BY_NAME = [mistake.instead.__name__ for mistake in MISTAKES]


@pytest.mark.properties
@pytest.mark.parametrize("machine", [Bank, Branch])
def test_every_history_is_snapshot_isolated(machine: type[Bank]) -> None:
    find_nothing(machine, length([each.after for each in MISTAKES] if machine is Branch else [20]))


@pytest.mark.properties
@pytest.mark.parametrize("mistake", MISTAKES, ids=BY_NAME)
def test_a_mistake_is_caught(monkeypatch: pytest.MonkeyPatch, mistake: Mistake) -> None:
    monkeypatch.setattr(mistake.owner, mistake.name, mistake.instead)
    with pytest.raises((AssertionError, KeyError)):
        search(Branch)


@pytest.mark.long
@pytest.mark.properties
@pytest.mark.parametrize("mistake", MISTAKES, ids=BY_NAME)
def test_a_mistake_is_caught_among_all_that_can_happen(monkeypatch: pytest.MonkeyPatch, mistake: Mistake) -> None:
    monkeypatch.setattr(mistake.owner, mistake.name, mistake.instead)
    with pytest.raises((AssertionError, KeyError)):
        search(Bank)
