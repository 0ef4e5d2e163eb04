"""Why a version is still there: each reason on a store of a few writes."""

from __future__ import annotations

from collections import Counter

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory, ClockSample
from sweep_tasks.coordination.leases import Leases
from sweep_tasks.demo.measure import Kept, KeptReason, kept
from sweep_tasks.model import TableMetadata, TableRef
from sweep_tasks.protection.records import Mode
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.tables.catalog import Catalog
from tests.support.clock import ManualClock
from tests.unit.sweep.world import CONSERVATIVE, NOTHING, TABLE, THOROUGH, THOROUGH_TABLE, A, B, World

SETTINGS = Settings(retention_s=60)
LIVE = Kept(KeptReason.NEWEST)


@pytest.fixture
def world(memory: MemoryStore, clock: ManualClock) -> World:
    return World(memory, clock)


def why(world: World) -> dict[Kept, int]:
    return dict(kept(world.store, SETTINGS, world.clock))


def record_sample(world: World, ago_s: int, ts: int) -> None:
    ClockHistory(world.store).record(ClockSample(world.clock.now_ms() - ago_s * 1000, ts))


def test_the_newest_version_is_live(world: World) -> None:
    world.write(10, 11, [A, B])
    assert why(world) == {LIVE: 2}


def test_what_was_replaced_within_the_retention_stays(world: World) -> None:
    record_sample(world, 61, 15)
    world.write(10, 11)
    world.write(20, 21)
    assert why(world) == {LIVE: 1, Kept(KeptReason.RETENTION): 1}


def test_what_was_replaced_before_the_retention_waits_for_a_sweep(world: World) -> None:
    record_sample(world, 61, 25)
    world.write(10, 11)
    world.write(20, 21)
    assert why(world) == {LIVE: 1, Kept(KeptReason.QUEUED): 1}


def test_a_swept_cell_keeps_its_newest_version_and_a_sentinel(world: World) -> None:
    world.write(10, 11)
    world.write(20, 21)
    world.sweep(30)
    assert why(world) == {LIVE: 1, Kept(KeptReason.SENTINEL): 1}


def test_an_open_transaction_keeps_what_was_replaced_since_it_began(world: World) -> None:
    for start in (10, 20, 30):
        world.write(start, start + 1, table=THOROUGH_TABLE)
    Leases(world.store, 30).take(25, "alice")
    assert why(world) == {
        LIVE: 1,
        Kept(KeptReason.QUEUED): 1,
        Kept(KeptReason.OPEN_TRANSACTION, "alice since 25", 25): 1,
    }


def test_of_retention_and_open_transaction_the_one_that_reaches_back_further_is_named(world: World) -> None:
    record_sample(world, 61, 15)
    world.write(10, 11)
    world.write(20, 21)
    Leases(world.store, 30).take(18, "alice")
    assert why(world) == {LIVE: 1, Kept(KeptReason.RETENTION): 1}
    Leases(world.store, 30).take(5, "bob")
    assert why(world) == {LIVE: 1, Kept(KeptReason.OPEN_TRANSACTION, "bob since 5", 5): 1}


@pytest.mark.parametrize("mode", list(Mode))
def test_a_protected_version_is_kept_by_its_record(world: World, mode: Mode) -> None:
    world.write(10, 11)
    assert world.protect("backup", 15, mode)
    world.write(20, 21)
    assert why(world)[Kept(KeptReason.PROTECTED, "backup")] == 1
    world.sweep(30)
    assert why(world) == {LIVE: 1, Kept(KeptReason.PROTECTED, "backup"): 1, Kept(KeptReason.SENTINEL): 1}


def test_between_a_protection_and_the_newest_version_only_time_keeps(world: World) -> None:
    world.write(10, 11)
    assert world.protect("backup", 15)
    world.write(20, 21)
    world.write(30, 31)
    assert why(world) == {LIVE: 1, Kept(KeptReason.PROTECTED, "backup"): 1, Kept(KeptReason.RETENTION): 1}


def test_a_thorough_delete_that_hides_a_protected_version_is_kept_with_it(world: World) -> None:
    world.write(10, 11, table=THOROUGH_TABLE)
    assert world.protect("backup", 15, table=THOROUGH_TABLE)
    world.write(20, 21, table=THOROUGH_TABLE, delete=True)
    world.sweep(30, THOROUGH)
    assert why(world) == {Kept(KeptReason.PROTECTED, "backup"): 2}


def test_a_thorough_delete_is_not_live_but_waits_to_go(world: World) -> None:
    world.write(10, 11, table=THOROUGH_TABLE, delete=True)
    assert why(world) == {Kept(KeptReason.QUEUED): 1}
    world.sweep(30, THOROUGH)
    assert why(world) == {}


def test_behind_a_transaction_that_committed_too_late_everything_waits(world: World) -> None:
    world.write(10, 11)
    world.write(20, 60, [B])
    world.write(30, 31)
    record_sample(world, 61, 50)
    assert world.sweep(50).stopped == "blocked"
    assert why(world) == {LIVE: 2, Kept(KeptReason.BLOCKED, "20"): 1, Kept(KeptReason.SENTINEL): 1}


def test_what_never_committed_is_called_that_whether_aborted_or_unfinished(world: World) -> None:
    world.write(10, None)
    world.write(20, -1, [B])
    assert why(world) == {Kept(KeptReason.NOT_COMMITTED): 2}
    world.sweep(30)
    assert why(world) == {}


def test_a_table_that_keeps_longer_is_named(world: World) -> None:
    table = TableRef.parse("app.longer")
    Catalog(world.store).create(table, TableMetadata(CONSERVATIVE, retention_s=3_600))
    world.write(10, 11, table=table)
    world.write(20, 21, table=table)
    record_sample(world, 61, 50)
    world.sweep(50)
    assert why(world) == {LIVE: 1, Kept(KeptReason.RETENTION, "app.longer"): 1}


def test_a_table_that_is_never_swept_keeps_everything(world: World) -> None:
    table = TableRef.parse("app.audit")
    world.store.create_table(table, TableMetadata(NOTHING))
    world.write(10, 11, table=table)
    world.write(20, 21, table=table)
    assert why(world) == {LIVE: 1, Kept(KeptReason.NO_QUEUE_ENTRY, "app.audit"): 1}


def test_reading_the_report_changes_nothing(world: World) -> None:
    world.write(10, 11)
    world.write(20, None)
    world.write(30, 31, table=THOROUGH_TABLE, delete=True)
    before = world.state()
    assert kept(world.store, SETTINGS, world.clock) == Counter(
        {LIVE: 1, Kept(KeptReason.NOT_COMMITTED): 1, Kept(KeptReason.QUEUED): 1}
    )
    assert world.state() == before
    assert world.versions(table=TABLE) == [10, 20]
