"""Explain finds entries everywhere: in dedicated rows, other shards, the quarantine and past partitions."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory, ClockSample
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.diagnosis import explain, waiting
from sweep_tasks.diagnosis.explanation import ReasonContext, describe
from sweep_tasks.diagnosis.obstacles import Obstacle, Reason
from sweep_tasks.diagnosis.on_disk import Remnant, physical_state
from sweep_tasks.diagnosis.waiting import MOST
from sweep_tasks.errors import UnknownTable
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.encoding import FINE, write_bytes
from sweep_tasks.queue.parking import Hold, HoldReason, ParkedEntry, Parking, Quarantine
from sweep_tasks.queue.progress import Progress
from sweep_tasks.queue.writer import shard_of
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.sweep.run import retry_quarantined
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.tables.pauses import Pause
from sweep_tasks.texts import duration
from sweep_tasks.transactions.outcomes import CommitTable
from tests.support.clock import ManualClock
from tests.unit.sweep.world import CONSERVATIVE, TABLE, THOROUGH, THOROUGH_TABLE, A, B, World

SETTINGS = Settings(retention_s=0)

Document = dict[str, Any]


def explain_cell(*given: Any, **options: Any) -> Document:
    """As `explain --json` shows it."""
    return explain.explain_cell(*given, **options).document(ReasonContext(0))


def explain_table(*given: Any, **options: Any) -> Document:
    return explain.explain_table(*given, **options).document()


def explain_shard(*given: Any, **options: Any) -> Document:
    return explain.explain_shard(*given, **options).document()


@pytest.fixture
def world(store: Store, clock: ManualClock) -> World:
    return World(store, clock)


def explained(world: World, cell: Cell = A, table: TableRef = TABLE) -> dict[int, tuple[str, Any]]:
    found = explain_cell(world.store, SETTINGS, world.clock, table, cell, bounded=False)["versions"]
    return {each["ts"]: (each["reason"], each["by"]) for each in found}


def quarantine_reasons(world: World) -> set[str]:
    """Return the reasons of the quarantined entries."""
    return {entry.reason for entry in Quarantine(world.store, TimestampService(world.store)).all()}


def numbers(sentence: str) -> list[str]:
    return re.findall(r"\d+", sentence)


def test_an_entry_in_a_dedicated_row_is_found(world: World) -> None:
    crowd = [Cell(b"%d" % number, b"c") for number in range(60)]
    world.write(10, 11)
    world.write(20, 21, [A, *crowd])
    document = explain_cell(world.store, SETTINGS, world.clock, TABLE, A, bounded=False)
    assert [(each["ts"], each["reason"]) for each in document["versions"]] == [(10, "queued"), (20, "newest")]
    assert [each["start"] for each in document["queue"]] == [10, 20]


def test_an_entry_written_when_there_were_fewer_shards_is_found(world: World) -> None:
    world.write(10, 11)
    world.write(20, 21)
    Progress(world.store).raise_shards(16)
    assert shard_of(TABLE, A, 16) != 0
    assert explained(world) == {10: ("queued", None), 20: ("newest", None)}
    world.sweep(100)
    world.write(110, 111)
    assert explained(world) == {-1: ("newest", None), 20: ("queued", None), 110: ("newest", None)}


def test_the_queue_of_others_is_not_read_for_one_cell(memory: MemoryStore, clock: ManualClock) -> None:
    world = World(memory, clock)
    world.write(10, 11)
    world.write(20, 21)
    few = calls(memory, clock)
    for number in range(300):
        world.write(100 + 2 * number, 101 + 2 * number, [Cell(b"%d" % number, b"c")])
    assert calls(memory, clock) <= few + 2


def calls(store: Store, clock: ManualClock) -> int:
    counting = FaultyStore(store)
    explain_cell(counting, SETTINGS, clock, TABLE, A)
    return counting.calls


def test_a_cell_with_many_versions_and_shards_takes_as_many_calls_as_any(
    memory: MemoryStore, clock: ManualClock
) -> None:
    """Versions older than the queue: no entry leads to them, and none is searched in any shard."""
    world = World(memory, clock)
    world.write(10_000, 10_001)
    few = calls(memory, clock)
    for start in range(1, 1_500):
        memory.put(start, {TABLE: {A: b"v"}})
        CommitTable(memory).decide(start, start)
    Progress(memory).raise_shards(256)
    assert calls(memory, clock) <= few + 10
    assert explained(world)[1_499] == ("queued", None)


def test_an_entry_deep_in_a_long_queue_is_found(
    memory: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MOST", 10)
    world = World(memory, clock)
    for start in range(10, 60, 2):
        world.write(start, start + 1, [Cell(b"%d" % start, b"c")])
    world.write(100, 101)
    world.write(110, 111)
    document = explain_cell(memory, SETTINGS, clock, TABLE, A, bounded=False)
    assert [(each["start"], each["position"]) for each in document["queue"]] == [(100, None), (110, None)]


def test_an_entry_has_a_position_in_the_queue(world: World) -> None:
    world.write(10, 11, [B, Cell(b"other", b"c")])
    world.write(20, 21)
    world.write(30, 31)
    document = explain_cell(world.store, SETTINGS, world.clock, TABLE, A, bounded=False)
    assert [(each["start"], each["position"]) for each in document["queue"]] == [(20, 3), (30, 4)]


def test_below_more_parked_entries_than_are_read_it_is_looked_up(world: World) -> None:
    """By the holds, each of which is found by its first entry."""
    world.write(10, 11)
    world.write(20, 21)
    world.protect("backup", 15)
    world.sweep(100)
    crowd = [
        ParkedEntry(Hold(HoldReason.GRACE, until_ms=1), 1, Cell(b"%06d" % number, b"c"), 5, -1, False)
        for number in range(MOST + 1)
    ]
    Parking(world.store, TimestampService(world.store), CONSERVATIVE, 0).park(crowd)
    assert explained(world)[10] == ("protected", "backup")


def test_what_a_table_restored_later_left_in_the_quarantine_is_named(world: World) -> None:
    later = TableRef.parse("app.later")
    world.write(5, 6, [B])
    for start in (10, 20):
        name = str(later).encode()
        world.enter(start, b"\x00" + bytes([len(name)]) + name + b"\x05row-a\x03col\x00")
        CommitTable(world.store).decide(start, start + 1)
    world.sweep(100)
    Catalog(world.store).create(later, TableMetadata())
    for start in (10, 20):
        world.store.put(start, {later: {A: b"v"}})
    (reason,) = quarantine_reasons(world)
    assert (reason.partition(":")[0], str(later) in reason) == ("table", True)
    assert explained(world, table=later) == {10: ("quarantined", reason), 20: ("newest", None)}
    retry_quarantined(world.store, SETTINGS, world.clock)
    assert explained(world, table=later) == {-1: ("newest", None), 20: ("newest", None)}


def test_a_retry_may_be_of_the_first_few_and_says_whether_that_was_all(world: World) -> None:
    world.write(5, 6)
    for start in (20, 22, 24):
        world.enter(start, write_bytes(999, A, False))
    TimestampService(world.store).move_past(50)
    world.sweep(50)
    assert retry_quarantined(world.store, SETTINGS, world.clock, most=2) == (0, 2, False)
    assert retry_quarantined(world.store, SETTINGS, world.clock, most=3) == (0, 3, True)
    assert retry_quarantined(world.store, SETTINGS, world.clock) == (0, 3, True)


def test_an_unreadable_entry_is_attributed_to_the_version_written_with_it(world: World) -> None:
    world.write(10, 11)
    TimestampService(world.store).move_past(30)
    world.enter(20, b"\x02")
    world.store.put(20, {TABLE: {A: b"v"}})
    CommitTable(world.store).decide(20, 21)
    world.sweep(100)
    (reason,) = quarantine_reasons(world)
    assert numbers(reason) == ["02"]
    assert explained(world) == {-1: ("newest", None), 10: ("quarantined", reason), 20: ("newest", None)}
    assert explained(world, B) == {}, "it may belong to another cell"


def test_a_late_write_into_a_past_partition_is_removed_by_the_next_sweep(world: World) -> None:
    world.write(10, 11)
    TimestampService(world.store).move_past(2 * FINE)
    world.sweep(2 * FINE)
    world.write(30, None)
    assert explained(world) == {-1: ("newest", None), 10: ("newest", None), 30: ("queued", None)}
    world.sweep(2 * FINE)
    assert explained(world) == {-1: ("newest", None), 10: ("newest", None)}


def test_a_sentinel_of_a_thorough_table_is_removed_with_the_next_write(world: World) -> None:
    world.write(10, 11, table=THOROUGH_TABLE)
    world.sweep(50, THOROUGH)
    world.store.add_sentinels(THOROUGH_TABLE, [A])
    assert explained(world, table=THOROUGH_TABLE)[-1] == ("no_queue_entry", None)
    world.write(60, 61, table=THOROUGH_TABLE)
    assert explained(world, table=THOROUGH_TABLE)[-1] == ("queued", None)
    world.sweep(100, THOROUGH)
    assert explained(world, table=THOROUGH_TABLE) == {60: ("newest", None)}


def test_an_entry_of_a_strategy_that_the_table_had_is_found(world: World) -> None:
    world.write(10, 11)
    world.write(20, 21)
    Catalog(world.store).change(TABLE, SweepStrategy.THOROUGH, None)
    assert explained(world)[10] == ("queued", None)
    world.sweep(100)
    assert explained(world) == {-1: ("no_queue_entry", None), 20: ("newest", None)}


def test_a_delete_is_swept_by_its_queue_whatever_the_current_strategy_of_the_table(world: World) -> None:
    world.write(10, 11, table=THOROUGH_TABLE)
    world.write(20, 21, table=THOROUGH_TABLE, delete=True)
    Catalog(world.store).set_strategy(THOROUGH_TABLE, CONSERVATIVE)
    found = explain_cell(world.store, SETTINGS, world.clock, THOROUGH_TABLE, A, bounded=False)["versions"]
    assert [(each["ts"], each["state"], each["reason"]) for each in found] == [
        (10, "garbage", "queued"), (20, "garbage", "queued"),
    ]  # fmt: skip
    world.sweep(100, THOROUGH)
    assert world.versions(table=THOROUGH_TABLE) == []


def test_a_table_that_is_no_longer_swept_keeps_what_is_queued_and_loses_what_was_given_up(world: World) -> None:
    world.write(10, 11)
    world.write(20, None)
    world.sweep(50)
    world.store.put(20, {TABLE: {A: b"late"}})
    world.write(60, 61)
    Catalog(world.store).set_strategy(TABLE, SweepStrategy.NOTHING)
    found = explained(world)
    assert (found[10], found[20], found[60]) == (("no_queue_entry", None), ("parked_grace", None), ("newest", None))
    world.clock.advance(100_000)
    assert explained(world)[20] == ("queued", None)
    world.sweep(100)
    assert world.versions() == [-1, 10, 60]


def test_the_shard_that_is_named_is_that_of_the_entry_which_removes_it(world: World) -> None:
    world.write(10, 12)
    Progress(world.store).raise_shards(7)
    world.write(20, 22)
    (oldest, _) = explain_cell(world.store, SETTINGS, world.clock, TABLE, A, bounded=False)["versions"]
    shard = shard_of(TABLE, A, 7)
    assert shard != 0
    assert oldest["where"] == {
        "strategy": "conservative", "shard": shard, "start": 20, "position": 1, "goes_at": None,
    }  # fmt: skip
    shown = oldest["says"]
    assert "conservative" in shown
    assert sorted(numbers(shown)) == sorted([str(shard), "1"])


def test_a_late_aborted_write_is_explained_with_what_removes_it(world: World) -> None:
    world.write(10, 11)
    TimestampService(world.store).move_past(2 * FINE)
    world.sweep(100)
    world.write(50, -1)
    late = explain_cell(world.store, SETTINGS, world.clock, TABLE, A, bounded=False)["versions"][-1]
    assert (late["reason"], late["where"]["goes_at"]) == ("queued", FINE)
    shown = late["says"]
    assert "conservative" in shown
    assert numbers(shown) == ["0", "50000"], "the shard, and instead of a position the end of its partition"
    world.sweep(FINE - 1)
    assert 50 in world.versions()
    world.sweep(FINE)
    assert 50 not in world.versions()


def test_of_entries_with_equally_many_obstacles_the_one_that_is_free_first_is_reported(world: World) -> None:
    """A write given up is watched for a day, and hidden by another that is too young for an hour."""
    ClockHistory(world.store).record(ClockSample(world.clock.now_ms(), 5))
    world.write(10, -1, store=False)
    world.sweep(15, grace_s=86_400)
    world.store.put(10, {TABLE: {A: b"late"}})
    world.write(20, 21)
    ClockHistory(world.store).record(ClockSample(world.clock.now_ms() + 1, 30))
    found = explain_cell(world.store, Settings(retention_s=3_600), world.clock, TABLE, A)["versions"]
    assert [(each["ts"], each["reason"]) for each in found] == [(10, "retention"), (20, "newest")]


def test_a_late_undecided_write_is_removed_by_the_next_sweep(world: World) -> None:
    world.write(10, 11)
    TimestampService(world.store).move_past(200)
    world.sweep(100)
    world.write(50, None)
    late = explain_cell(world.store, SETTINGS, world.clock, TABLE, A, bounded=False)["versions"][-1]
    assert (late["reason"], late["where"]["goes_at"]) == ("queued", None)
    world.sweep(101)
    assert 50 not in world.versions()


def test_explaining_changes_nothing(world: World) -> None:
    world.write(10, 11)
    world.write(20, None)
    world.write(30, -1)
    before = world.state()
    explain_cell(world.store, SETTINGS, world.clock, TABLE, A)
    explain_table(world.store, SETTINGS, world.clock, TABLE)
    explain_shard(world.store, SETTINGS, world.clock, CONSERVATIVE, 0)
    assert world.state() == before


class TestBlocks:
    def test_the_strongest_obstacle_is_listed_first(self, world: World) -> None:
        world.protect("backup", 15)
        for start in (20, 30, 40):
            world.write(start, start + 1, [Cell(b"%d" % start, b"c")])
        world.sweep(50)
        world.write(60, 61)
        world.write(62, 63, table=THOROUGH_TABLE)
        found = explain_table(world.store, SETTINGS, world.clock, TABLE)
        assert (found["entries"], found["versions"], found["at_least"]) == (4, 0, False)
        assert [(each["reason"], each["by"], each["entries"]) for each in found["blocks"]] == [
            ("protected", "backup", 3),
            ("queued", None, 1),
        ]
        world.release("backup")
        found = explain_shard(world.store, SETTINGS, world.clock, CONSERVATIVE, 0)
        assert [(each["reason"], each["entries"]) for each in found["blocks"]] == [("queued", 4)]

    def test_a_record_is_not_named_for_versions_that_came_after_it(self, world: World) -> None:
        young = Settings(retention_s=3_600)
        world.protect("backup", 1)
        for start in (3, 6, 9):
            world.write(start, start + 1)
        alone = explain_cell(world.store, young, world.clock, TABLE, A)["versions"]
        assert {each["ts"]: each["reason"] for each in alone} == {3: "retention", 6: "retention", 9: "newest"}
        [block] = explain_table(world.store, young, world.clock, TABLE)["blocks"]
        assert block == {"reason": "retention", "by": None, "entries": 3, "versions": 2}

    def test_versions_of_an_entry_that_a_record_holds_in_part_have_different_reasons(self, world: World) -> None:
        world.write(3, 4)
        world.protect("backup", 5)
        for start in (6, 9, 12):
            world.write(start, start + 1)
        alone = explain_cell(world.store, SETTINGS, world.clock, TABLE, A)["versions"]
        assert {each["ts"]: each["reason"] for each in alone} == {
            3: "protected",
            6: "queued",
            9: "queued",
            12: "newest",
        }
        found = explain_table(world.store, SETTINGS, world.clock, TABLE)["blocks"]
        assert [(each["reason"], each["versions"], each["entries"]) for each in found] == [
            ("queued", 2, 1),
            ("protected", 1, 3),
        ]

    def test_a_parked_entry_is_not_explained_by_a_record_that_does_not_cover_it(self, world: World) -> None:
        kept = TableRef.parse("app.kept")
        Catalog(world.store).create(kept, TableMetadata(retention_s=3_600))
        world.protect("backup", 1, table=kept)
        for start in (3, 6):
            world.write(start, start + 1, table=kept)
        world.sweep(50)
        parked = explain_cell(world.store, SETTINGS, world.clock, kept, A)["parked"]
        assert [(each["start"], each["reason"]) for each in parked] == [(3, "retention"), (6, "retention")]

    def test_the_number_of_entries_read_is_bounded(self, world: World) -> None:
        for start in range(10, 500, 2):
            world.write(start, start + 1, [Cell(b"%d" % start, b"c")])
        found = explain_shard(world.store, SETTINGS, world.clock, CONSERVATIVE, 0, most=100)
        assert (found["entries"], found["at_least"]) == (100, True)

    def test_of_a_cell_that_is_written_often_not_every_version_is_compared_with_every_entry(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(explain, "_COMPARED", 45)
        for start in range(10, 30, 2):
            world.write(start, start + 1)
        found = explain_table(world.store, SETTINGS, world.clock, TABLE)
        assert (found["entries"], found["versions"], found["at_least"]) == (10, 4, True)

    def test_a_quiet_table_behind_a_busy_one_is_not_reported_as_swept(self, world: World) -> None:
        for start in range(10, 500, 2):
            world.write(start, start + 1, [Cell(b"%d" % start, b"c")])
        other = TableRef.parse("app.quiet")
        Catalog(world.store).create(other, TableMetadata())
        world.write(600, 601, table=other)
        found = explain_table(world.store, SETTINGS, world.clock, other, most=100)
        assert (found["blocks"], found["at_least"]) == ([], True)
        assert explain_table(world.store, SETTINGS, world.clock, other)["entries"] == 1

    def test_what_one_queue_does_not_need_is_left_to_the_others(self, world: World) -> None:
        for start in range(10, 500, 2):
            world.write(start, start + 1, [Cell(b"%d" % start, b"c")], table=THOROUGH_TABLE)
        found = explain_table(world.store, SETTINGS, world.clock, THOROUGH_TABLE, most=400)
        assert (found["entries"], found["at_least"]) == (245, False)

    def test_quarantined_entries_are_counted_too(self, world: World) -> None:
        world.write(10, 11)
        world.enter(20, b"\x02")
        world.enter(22, write_bytes(999, A, False))
        TimestampService(world.store).move_past(50)
        world.sweep(50)
        by_shard = explain_shard(world.store, SETTINGS, world.clock, CONSERVATIVE, 0)
        assert [(each["reason"], each["entries"]) for each in by_shard["blocks"]] == [("quarantined", 1)] * 2
        by_table = explain_table(world.store, SETTINGS, world.clock, TABLE)
        assert (by_table["blocks"], by_table["unreadable"]) == ([], 2)
        later = TableRef.parse("app.later")
        name = str(later).encode()
        world.enter(60, b"\x00" + bytes([len(name)]) + name + b"\x05row-a\x03col\x00")
        world.write(62, 63)
        world.sweep(100)
        Catalog(world.store).create(later, TableMetadata())
        found = explain_table(world.store, SETTINGS, world.clock, later)
        assert [(each["reason"], each["entries"]) for each in found["blocks"]] == [("quarantined", 1)]

    def test_a_table_that_does_not_exist_is_refused(self, world: World) -> None:
        with pytest.raises(UnknownTable):
            explain_table(world.store, SETTINGS, world.clock, TableRef.parse("app.none"))


def test_every_reason_has_a_sentence() -> None:
    for reason in Reason:
        shown = describe(Obstacle(reason, "x", 1_000), ReasonContext(2_000))
        assert shown
        assert "{" not in shown
    assert "1970-01-01 00:00:01 UTC" in describe(Obstacle(Reason.RETENTION, None, 1_000), ReasonContext(2_000))


def test_sentences_name_who_and_since_when() -> None:
    backup = Record(
        "nightly", 5, Mode.AT, (Target(TABLE),), meta_type="airflow_run", meta={"dag": "export"}, created_ms=60_000
    )
    context = ReasonContext(
        3_660_000, {"nightly": backup}, {"app.items": Pause("ada", "a look", 1_000)}, {935: 60_000}.get
    )
    a_minute_after, an_hour = "1970-01-01 00:01:00 UTC", duration(3_600)
    for why, named in [
        (Obstacle(Reason.PROTECTED, "nightly"), ["nightly", "airflow_run", "dag export", a_minute_after, an_hour]),
        (
            Obstacle(Reason.OPEN_TRANSACTION, "ada@host since 935", lease_ts=935),
            ["ada@host since 935", a_minute_after, an_hour],
        ),
        (Obstacle(Reason.PAUSED, "app.items"), ["app.items", "ada", "1970-01-01 00:00:01 UTC", "a look"]),
    ]:
        shown = describe(why, context)
        assert [each for each in named if each not in shown] == []


class TestPhysical:
    def test_a_file_of_our_own_keeps_nothing(self) -> None:
        shown = physical_state("sqlite:///x.db", TABLE, A).document()
        assert (set(shown), shown["known"], shown["remains"]) == ({"known", "remains", "says"}, True, [])
        assert shown["says"]

    def test_unknown_facts_are_reported_as_unknown(self) -> None:
        shown = physical_state("cassandra://127.0.0.1:9042/shop", TABLE, A).document()
        assert (shown["known"], shown["reason"], shown["remains"]) == (False, "not_configured", None)
        assert "compaction_nodes" in shown["says"]

    def test_a_reader_of_the_files_is_used(self) -> None:
        remnant = Remnant(10, Reason.WAITING_GC_GRACE, until_ms=5)
        shown = physical_state("cassandra://127.0.0.1:9042/shop", TABLE, A, lambda table, cell: [remnant]).document()
        assert shown["remains"] == [{"ts": 10, "reason": "waiting_gc_grace", "until_ms": 5, "by": None}]
