"""A run with a budget, and the next run that continues."""

from __future__ import annotations

import pytest

import sweep_tasks.queue.writer as writer_module
from sweep_tasks.model import Cell
from sweep_tasks.queue.encoding import write_bytes
from sweep_tasks.queue.reader import RawEntry
from sweep_tasks.store.faults import FaultyStore, StoreCall
from sweep_tasks.sweep.order import UNLIMITED, Budget, Spending
from sweep_tasks.sweep.summary import Summary
from tests.support.clock import ManualClock
from tests.unit.sweep.world import TABLE, A, World, sweep

ROW = [Cell(b"wide", b"%03d" % number) for number in range(100)]


def entry(start: int, row: bytes, column: int = 0) -> RawEntry:
    return RawEntry(start, Cell(b"", b""), write_bytes(1, Cell(row, b"%d" % column), False))


class TestSpending:
    def test_without_limits_nothing_is_ever_exhausted(self, clock: ManualClock) -> None:
        spending = Spending(UNLIMITED, clock)
        spending.spend(10**9)
        clock.advance(10**6)
        assert spending.exhausted() is None
        assert spending.batch_size(500) == 500
        assert spending.first_over_cap([entry(start, b"r") for start in range(1_000)]) is None

    def test_entries_run_out(self, clock: ManualClock) -> None:
        spending = Spending(Budget(entries=10), clock)
        assert (spending.batch_size(500), spending.batch_size(3)) == (10, 3)
        spending.spend(9)
        assert spending.exhausted() is None
        spending.spend(1)
        assert spending.exhausted() == "entries"

    def test_time_runs_out(self, clock: ManualClock) -> None:
        spending = Spending(Budget(seconds=2.5), clock)
        clock.advance(2.499)
        assert spending.exhausted() is None
        clock.advance(0.001)
        assert spending.exhausted() == "seconds"

    def test_a_row_takes_so_many_tombstones_and_no_more(self, clock: ManualClock) -> None:
        spending = Spending(Budget(tombstones_per_partition=2), clock)
        assert spending.first_over_cap([entry(1, b"r"), entry(2, b"r"), entry(3, b"s")]) is None
        assert spending.first_over_cap([entry(4, b"s"), entry(5, b"r"), entry(6, b"s")]) == 5

    def test_the_first_transaction_of_a_run_may_be_larger(self, clock: ManualClock) -> None:
        first = [entry(1, b"r", column) for column in range(5)]
        assert Spending(Budget(tombstones_per_partition=2), clock).first_over_cap([*first, entry(2, b"s")]) is None
        assert Spending(Budget(tombstones_per_partition=2), clock).first_over_cap([*first, entry(2, b"r")]) == 2


class TestRuns:
    def test_entries_are_a_limit_and_the_next_run_continues(self, world: World) -> None:
        for start in range(10, 20):
            world.write(start, start + 30, [Cell(b"r%d" % (start % 3), b"c")])
        runs = runs_until_done(world, 100, Budget(entries=4))
        assert [run.stopped for run in runs] == ["entries", "entries", None]
        assert [run.entries for run in runs] == [4, 4, 2]
        assert [run.progress for run in runs] == [13, 17, 99]
        assert [run.progress_before for run in runs] == [-1, 13, 17]

    def test_time_is_a_limit_and_every_run_does_something(self, world: World) -> None:
        for start in range(10, 14):
            world.write(start, start + 30)

        def slow(call: StoreCall) -> None:
            if call.name == "delete_ranges":
                world.clock.advance(1)

        runs: list[Summary] = []
        while not runs or runs[-1].stopped:
            store = FaultyStore(world.store, after=slow)
            runs.append(sweep(store, world.clock, 100, batch=1, budget=Budget(seconds=2)))
        assert [run.stopped for run in runs] == ["seconds", "seconds", None]
        assert [run.entries for run in runs] == [2, 2, 0]
        assert world.versions() == [-1, 13]

    def test_a_row_gets_only_so_many_tombstones_a_run(self, world: World) -> None:
        for number, cell in enumerate(ROW[:9]):
            world.write(10 + number, 50 + number, [cell])
        runs = runs_until_done(world, 100, Budget(tombstones_per_partition=4))
        assert [run.stopped for run in runs] == ["tombstones", "tombstones", None]
        assert [run.entries for run in runs] == [4, 4, 1]
        assert [run.progress for run in runs] == [13, 17, 99]

    def test_a_transaction_with_more_than_the_cap_gets_a_run_of_its_own(self, world: World) -> None:
        world.write(10, 11, [A])
        world.write(20, 21, ROW[:30])
        world.write(30, 31, ROW[:1])
        runs = runs_until_done(world, 100, Budget(tombstones_per_partition=10))
        assert [run.entries for run in runs] == [1, 30, 1]

    @pytest.mark.parametrize("entries", [20, 25, 45])
    def test_a_transaction_larger_than_the_budget_gets_through_over_several_runs(
        self, world: World, entries: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writer_module, "DEDICATED_WRITES", 20)
        for cell in ROW:
            world.store.put(5, {TABLE: {cell: b"older"}})
        world.write(10, 11, ROW)
        world.write(50_020, 50_021, [A])
        runs = runs_until_done(world, 100_000, Budget(entries=entries))
        assert sum(run.entries for run in runs) == 101, "no part of it is done twice"
        assert len(runs) > 1
        assert all(run.entries < 2 * entries for run in runs), "it ends with a batch, so no more than one too many"
        assert all(world.versions(cell) == [-1, 10] for cell in ROW)
        assert world.queue_is_empty()


def runs_until_done(world: World, sweep_ts: int, budget: Budget) -> list[Summary]:
    runs = [world.sweep(sweep_ts, budget=budget)]
    while runs[-1].stopped:
        assert len(runs) < 300, "it never ends"
        runs.append(world.sweep(sweep_ts, budget=budget))
    return runs
