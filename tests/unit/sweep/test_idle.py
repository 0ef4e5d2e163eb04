"""A shard that has nothing to do is swept without an engine; any work is left to one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import Cell
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store import Store
from sweep_tasks.store.schema import QUEUE_CELLS, QUEUE_TIMESTAMPS
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.order import SweepOrder
from sweep_tasks.sweep.run import sweep_idle
from sweep_tasks.sweep.steps import ShardSweep
from sweep_tasks.sweep.summary import Summary
from sweep_tasks.tables.pauses import Pauses
from tests.support.clock import ManualClock
from tests.unit.sweep.world import CONSERVATIVE, TABLE, THOROUGH, THOROUGH_TABLE, World

CELLS = [Cell(b"row-%03d" % n, b"c") for n in range(60)]


@pytest.fixture
def world(store: Store, clock: ManualClock) -> World:
    return World(store, clock)


def idle(world: World, sweep_ts: int) -> Summary:
    found = swept_if_idle(world, sweep_ts)
    assert found, "there is work"
    return found


def swept_if_idle(world: World, sweep_ts: int) -> Summary | None:
    horizon = Horizon(sweep_ts, world.clock.now_ms())
    return ShardSweep(world.store, CONSERVATIVE, 0, horizon, world.clock).run_if_idle()


def test_an_empty_shard_is_swept_as_far_as_it_may_be(world: World) -> None:
    summary = idle(world, 100)
    assert (summary.progress_before, summary.progress, summary.entries) == (-1, 99, 0)
    assert world.progress() == 99
    assert Thresholds(world.store).of_strategy(CONSERVATIVE) == 100


def test_what_was_swept_before_is_nothing_new(world: World) -> None:
    world.write(10, 11)
    world.sweep(100)
    assert idle(world, 200).progress == 199


def test_a_sweep_timestamp_below_the_progress_changes_nothing(world: World) -> None:
    world.sweep(100)
    before = world.state()
    assert idle(world, 50).progress == 99
    assert world.state() == before


def test_where_everything_is_paused_no_engine_needs_to_be_started(world: World) -> None:
    world.write(10, 11)
    Pauses(world.store).pause(None, "ada", "an incident")
    summary = idle(world, 100)
    assert (summary.stopped, summary.progress, world.progress()) == ("paused", -1, -1)


def test_what_waits_for_a_paused_table_is_no_work(world: World) -> None:
    world.write(10, 11)
    Pauses(world.store).pause(TABLE, "ada", "a closer look")
    world.sweep(100)
    assert idle(world, 200).progress == 199
    Pauses(world.store).resume(TABLE)
    assert swept_if_idle(world, 300) is None


def a_new_entry(world: World) -> None:
    world.write(150, 151)


def an_entry_in_dedicated_rows(world: World) -> None:
    world.write(150, 151, CELLS)


def a_partition_to_be_cleaned(world: World) -> None:
    world.write(60, 61)
    world.sweep(100)


def something_parked_that_is_due(world: World) -> None:
    world.write(60, -1)
    world.sweep(100)
    world.clock.advance(4_000)


def something_released(world: World) -> None:
    world.protect("a", 55)
    world.write(60, 61)
    world.sweep(100)
    world.release("a")


def an_entry_that_came_late(world: World) -> None:
    world.sweep(100)
    world.write(50, None)


def an_entry_that_came_late_in_dedicated_rows(world: World) -> None:
    world.sweep(100)
    world.write(50, None, CELLS)


def an_entry_that_came_late_to_a_past_partition(world: World) -> None:
    world.sweep(50_100)
    world.write(50, None)


@pytest.mark.parametrize(
    ("happened", "sweep_ts"),
    [
        (a_new_entry, 200),
        (an_entry_in_dedicated_rows, 200),
        (a_partition_to_be_cleaned, 50_000),
        (something_parked_that_is_due, 200),
        (something_released, 200),
        (an_entry_that_came_late, 200),
        (an_entry_that_came_late_in_dedicated_rows, 200),
        (an_entry_that_came_late_to_a_past_partition, 50_200),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_work_is_left_to_others_when_there_is(world: World, happened: Callable[[World], None], sweep_ts: int) -> None:
    happened(world)
    before = world.state()
    assert swept_if_idle(world, sweep_ts) is None
    after = world.state()
    assert {name for name in before if before[name] != after[name]} <= {"_thresholds"}, "it may only have published"
    world.sweep(sweep_ts)
    assert idle(world, sweep_ts).entries == 0


def test_what_is_parked_and_not_due_is_no_work(world: World) -> None:
    world.protect("a", 55)
    world.write(60, 61)
    world.sweep(100)
    assert idle(world, 200).progress == 199
    assert len(world.parked()) == 1


def test_a_dry_run_changes_nothing(store: Store, clock: ManualClock) -> None:
    order = SweepOrder(THOROUGH, 0, dry_run=True)
    found = sweep_idle(store, Settings(), clock, order)
    assert found is not None
    assert found.dry_run
    assert Progress(store).of(THOROUGH, 0) == -1
    assert Thresholds(store).of_strategy(THOROUGH) == 0
    assert not store.scan(QUEUE_CELLS, 2**62).items
    assert not store.scan(QUEUE_TIMESTAMPS, 2**62).items


def test_an_order_with_work_is_answered_with_none(world: World) -> None:
    world.write(10, 11, table=THOROUGH_TABLE)
    TimestampService(world.store).move_past(100)
    assert sweep_idle(world.store, Settings(), world.clock, SweepOrder(THOROUGH, 0)) is None
