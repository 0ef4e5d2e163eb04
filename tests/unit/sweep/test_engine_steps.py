"""The sweep, crashed or overtaken between any two of its calls: what remains is work to repeat."""

from __future__ import annotations

import random
from typing import Any

import pytest

import sweep_tasks.queue.writer as writer_module
from sweep_tasks.errors import OutcomeUnknown, StoreError, StoreUnavailable
from sweep_tasks.model import Cell, TableMetadata, TableRef
from sweep_tasks.protection.records import Mode
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore, fail, lose_answer, on
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.sweep.summary import Summary
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions.outcomes import ABORTED
from tests.conftest import memory_store
from tests.support.clock import ManualClock
from tests.support.simulation import Process
from tests.unit.sweep.world import TABLE, A, B, C, World, state_of, sweep, sweeper

FINE = 50_000
SWEEP_TS = 2 * FINE
MANY = [Cell(b"many", b"%02d" % number) for number in range(7)]
CHECKED, TRUNCATED = TableRef.parse("app.looked"), TableRef.parse("app.truncated")


@pytest.fixture(autouse=True)
def small_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "SHARED_WRITES", 4)
    monkeypatch.setattr(writer_module, "DEDICATED_WRITES", 3)


def busy(clock: ManualClock) -> MemoryStore:
    """An example of everything that a sweep handles: overwrites, deletes, aborted and unfinished transactions,
    dedicated rows, garbage, protections present and released, parked entries, a table that is checked first and one
    that was truncated, two partitions."""
    memory = memory_store(clock)
    world = World(memory, clock)
    for table, look in ((CHECKED, True), (TRUNCATED, False)):
        memory.create_table(table, TableMetadata(look_before_delete=look))
    for start in (10, 20, 30):
        world.write(start, start + 1, [A, B])
    world.write(35, ABORTED, [A])
    world.protect("gone", 15)
    world.protect("stays", 25)
    world.write(36, 37, [A], table=TRUNCATED)
    Catalog(memory).truncate(TRUNCATED)
    world.sweep(50)
    world.release("gone")
    world.write(60, None, [A, B])
    world.write(70, 71, MANY)
    world.write(80, None, MANY)
    world.write(90, 91, MANY, delete=True)
    world.write(100, 101, [A, C], table=CHECKED)
    world.write(110, 111, [C], table=CHECKED)
    world.enter(120, b"\x02garbage")
    world.protect("after", 95, Mode.AFTER)
    world.write(FINE + 10, FINE + 11, [A, B, C])
    world.write(FINE + 20, ABORTED, [C])
    clock.advance(3_600)
    return memory


def undisturbed(**options: Any) -> dict[str, Any]:
    clock = ManualClock()
    memory = busy(clock)
    sweep(memory, clock, SWEEP_TS, **options)
    return state_of(memory)


def number_of_calls(**options: Any) -> int:
    clock = ManualClock()
    counted = FaultyStore(busy(clock))
    sweep(counted, clock, SWEEP_TS, **options)
    return counted.calls


def standing_at(calls: int, shared: Store, clock: ManualClock, **options: Any) -> Process[Summary]:
    process = Process(shared, sweeper(clock, SWEEP_TS, **options))
    for _ in range(calls):
        process.step()
    return process


def test_sweeping_again_changes_nothing_more() -> None:
    clock = ManualClock()
    memory = busy(clock)
    sweep(memory, clock, SWEEP_TS)
    before = state_of(memory)
    assert sweep(memory, clock, SWEEP_TS).entries == 0
    assert state_of(memory) == before == undisturbed()


@pytest.mark.parametrize("batch", [100_000, 2])
@pytest.mark.parametrize("after", [False, True])
def test_after_a_crash_at_any_step_the_next_sweep_reaches_the_same_state(after: bool, batch: int) -> None:
    expected = undisturbed(batch=batch)
    calls = number_of_calls(batch=batch)
    assert calls > 30
    for call in range(1, calls + 1):
        clock = ManualClock()
        shared = busy(clock)
        process = standing_at(call, shared, clock, batch=batch)
        at = process.next_call
        (process.crash_after_call if after else process.crash_here)()
        sweep(shared, clock, SWEEP_TS, batch=batch)
        assert state_of(shared) == expected, f"crashed {'after' if after else 'before'} call {call}, {at}"


def test_after_two_crashes_at_any_step_the_third_sweep_reaches_the_same_state() -> None:
    expected, calls = undisturbed(), number_of_calls()
    chance = random.Random(7)
    for _ in range(40):
        clock = ManualClock()
        shared = busy(clock)
        for _ in range(2):
            standing_at(chance.randint(1, calls), shared, clock).crash_after_call()
        sweep(shared, clock, SWEEP_TS)
        assert state_of(shared) == expected


@pytest.mark.parametrize("fault", [fail, lose_answer])
def test_a_failed_call_ends_the_run_and_the_next_reaches_the_same_state(fault: Any) -> None:
    expected = undisturbed()
    names = ["update", "put", "add_sentinels", "delete_ranges", "delete_versions", "delete_rows", "put_if_absent"]
    for name in names:
        for nth in (1, 2):
            clock = ManualClock()
            shared = busy(clock)
            hook = on(name, nth, fault)
            faulty = FaultyStore(shared, **{"before" if fault is fail else "after": hook})
            try:
                sweep(faulty, clock, SWEEP_TS)
            except StoreError as error:
                assert isinstance(error, StoreUnavailable if fault is fail else OutcomeUnknown)  # noqa: PT017
            sweep(shared, clock, SWEEP_TS)
            assert state_of(shared) == expected, f"{name} {nth}"


@pytest.mark.parametrize("batch", [100_000, 2])
def test_a_sweep_paused_during_another_one_is_safe(batch: int) -> None:
    expected = undisturbed()
    for call in range(1, number_of_calls(batch=batch) + 1):
        clock = ManualClock()
        shared = busy(clock)
        zombie = standing_at(call, shared, clock, batch=batch)
        sweep(shared, clock, SWEEP_TS)
        zombie.finish()
        assert state_of(shared) == expected, f"stopped at call {call}"


def test_two_interleaved_sweeps_reach_the_same_state() -> None:
    expected = undisturbed()
    for seed in range(60):
        chance = random.Random(seed)
        clock = ManualClock()
        shared = busy(clock)
        sweeps = [Process(shared, sweeper(clock, SWEEP_TS, batch=chance.choice([1, 3, 1_000]))) for _ in range(2)]
        running = list(sweeps)
        while running:
            process = running[0] if seed == 0 else chance.choice(running)
            if not process.step():
                running.remove(process)
            elif seed == 0:
                running.reverse()
        assert [process.error for process in sweeps] == [None, None]
        assert state_of(shared) == expected, f"seed {seed}"


def test_a_zombie_with_a_lower_sweep_timestamp_is_safe() -> None:
    expected = undisturbed()
    for seed in range(30):
        chance = random.Random(seed)
        clock = ManualClock()
        shared = busy(clock)
        zombie = Process(shared, sweeper(clock, 105))
        for _ in range(chance.randint(1, 20)):
            zombie.step()
        sweep(shared, clock, SWEEP_TS)
        zombie.finish()
        assert state_of(shared) == expected


def test_a_zombie_never_removes_what_was_protected_meanwhile(clock: ManualClock) -> None:
    """At every point of a sweep another process protects; accepted records hold, and refused ones have a reason."""
    accepted = 0
    for call in range(1, 40):
        shared = memory_store(clock)
        world = World(shared, clock)
        for start in (10, 20, 30):
            world.write(start, start + 1)
        process = Process(shared, sweeper(clock, 100))
        for _ in range(call):
            process.step()
        if world.protect("a", 25):
            accepted += 1
            process.finish()
            assert world.versions() == [-1, 20, 30]
        else:
            process.finish()
            assert world.versions() == [-1, 30]
    assert 0 < accepted < 39


def test_a_zombie_reads_the_records_again_for_every_page_of_parked_entries(clock: ManualClock) -> None:
    """A list older than the page lacks the record that an entry was parked under meanwhile."""
    shared = memory_store(clock)
    world = World(shared, clock)
    for start in (10, 40):
        world.write(start, start + 1)
    world.protect("a", 30)
    world.sweep(100)
    zombie = Process(shared, sweeper(clock, 100))
    zombie.step_to("scan")
    assert zombie.step()
    assert zombie.next_call == "read", "a page of parked entries, then whether the records have changed"
    zombie.step()
    assert world.protect("z", 150)
    for start in (120, 200):
        world.write(start, start + 1)
    world.sweep(300)
    assert world.versions() == [-1, 10, 120, 200]
    zombie.finish()
    assert world.versions() == [-1, 10, 120, 200]


def test_it_ends_with_one_version_for_each_cell_and_an_empty_queue_once_all_is_released() -> None:
    clock = ManualClock()
    memory = busy(clock)
    world = World(memory, clock)
    world.sweep(SWEEP_TS)
    for name in ("stays", "after"):
        world.release(name)
    clock.advance(3_600)
    world.sweep(SWEEP_TS)
    clock.advance(3_600)
    world.sweep(SWEEP_TS)
    assert world.queue_is_empty()
    assert world.parked() == []
    for table in (TABLE, CHECKED):
        stored = [cell for cell, ts, _ in memory.scan_versions(table).items if ts >= 0]
        assert len(stored) == len(set(stored))
    assert memory.scan_versions(TRUNCATED).items == []
