"""Where entries hide from whoever looks for them: large transactions, other shards, the quarantine, past partitions."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sweep_tasks.catalog import Catalog
from sweep_tasks.config import Settings
from sweep_tasks.durations import words
from sweep_tasks.errors import UnknownTable
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.observation import waiting
from sweep_tasks.observation.blocks import explain_shard, explain_table
from sweep_tasks.observation.explain import explain_cell
from sweep_tasks.observation.obstacles import Reason
from sweep_tasks.observation.physical import Remain, remains_of
from sweep_tasks.observation.waiting import MOST
from sweep_tasks.observation.wording import Known, says
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.encoding import FINE, write_bytes
from sweep_tasks.queue.parking import Hold, ParkedEntry, Parking, Why
from sweep_tasks.queue.progress import Progress
from sweep_tasks.queue.quarantine import Quarantine
from sweep_tasks.queue.writer import shard_of
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.sweep.pauses import Pause
from sweep_tasks.sweep.run import retry_quarantined
from sweep_tasks.timestamps.puncher import Punch, Puncher
from sweep_tasks.timestamps.service import TimestampService
from sweep_tasks.transactions.commits import CommitTable
from tests.support.clock import ManualClock
from tests.unit.sweep.world import CONSERVATIVE, TABLE, THOROUGH, THOROUGH_TABLE, A, B, World

SETTINGS = Settings(retention_s=0)


@pytest.fixture
def world(store: Store, clock: ManualClock) -> World:
    return World(store, clock)


def explained(world: World, cell: Cell = A, table: TableRef = TABLE) -> dict[int, tuple[str, Any]]:
    found = explain_cell(world.store, SETTINGS, world.clock, table, cell, bounded=False)["versions"]
    return {each["ts"]: (each["reason"], each["by"]) for each in found}


def set_aside(world: World) -> set[str]:
    """Why entries are in the quarantine."""
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
    """Versions older than the queue: no entry leads to them, and in no shard is one looked for."""
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


def test_an_entry_tells_its_place_in_the_queue(world: World) -> None:
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
        ParkedEntry(Hold(Why.GRACE, until_ms=1), 1, Cell(b"%06d" % number, b"c"), 5, -1, False)
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
    (reason,) = set_aside(world)
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


def test_an_entry_that_cannot_be_read_is_taken_for_that_of_the_version_written_with_it(world: World) -> None:
    world.write(10, 11)
    TimestampService(world.store).move_past(30)
    world.enter(20, b"\x02")
    world.store.put(20, {TABLE: {A: b"v"}})
    CommitTable(world.store).decide(20, 21)
    world.sweep(100)
    (reason,) = set_aside(world)
    assert numbers(reason) == ["02"]
    assert explained(world) == {-1: ("newest", None), 10: ("quarantined", reason), 20: ("newest", None)}
    assert explained(world, B) == {}, "it may not be anybody else's"


def test_what_came_late_into_a_past_partition_goes_with_the_next_sweep(world: World) -> None:
    world.write(10, 11)
    TimestampService(world.store).move_past(2 * FINE)
    world.sweep(2 * FINE)
    world.write(30, None)
    assert explained(world) == {-1: ("newest", None), 10: ("newest", None), 30: ("queued", None)}
    world.sweep(2 * FINE)
    assert explained(world) == {-1: ("newest", None), 10: ("newest", None)}


def test_a_sentinel_of_a_thorough_table_goes_with_the_next_write(world: World) -> None:
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


def test_a_delete_goes_by_the_queue_that_it_is_in_whatever_the_table_is_swept_by_today(world: World) -> None:
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
    shown = says(oldest, Known(0))
    assert "conservative" in shown
    assert sorted(numbers(shown)) == sorted([str(shard), "1"])


def test_what_came_late_and_was_aborted_says_where_it_goes(world: World) -> None:
    world.write(10, 11)
    TimestampService(world.store).move_past(2 * FINE)
    world.sweep(100)
    world.write(50, -1)
    late = explain_cell(world.store, SETTINGS, world.clock, TABLE, A, bounded=False)["versions"][-1]
    assert (late["reason"], late["where"]["goes_at"]) == ("queued", FINE)
    shown = says(late, Known(0))
    assert "conservative" in shown
    assert numbers(shown) == ["0", "50000"], "the shard, and no place in line but where it goes"
    world.sweep(FINE - 1)
    assert 50 in world.versions()
    world.sweep(FINE)
    assert 50 not in world.versions()


def test_of_entries_with_as_much_in_their_way_the_one_that_is_free_first_is_told_of(world: World) -> None:
    """A write given up is watched for a day, and hidden by another that is too young for an hour."""
    Puncher(world.store).record(Punch(world.clock.now_ms(), 5))
    world.write(10, -1, store=False)
    world.sweep(15, grace_s=86_400)
    world.store.put(10, {TABLE: {A: b"late"}})
    world.write(20, 21)
    Puncher(world.store).record(Punch(world.clock.now_ms() + 1, 30))
    found = explain_cell(world.store, Settings(retention_s=3_600), world.clock, TABLE, A)["versions"]
    assert [(each["ts"], each["reason"]) for each in found] == [(10, "retention"), (20, "newest")]


def test_what_came_late_and_is_undecided_goes_with_the_next_sweep(world: World) -> None:
    world.write(10, 11)
    TimestampService(world.store).move_past(200)
    world.sweep(100)
    world.write(50, None)
    late = explain_cell(world.store, SETTINGS, world.clock, TABLE, A, bounded=False)["versions"][-1]
    assert (late["reason"], late["where"]["goes_at"]) == ("queued", None)
    world.sweep(101)
    assert 50 not in world.versions()


def test_asking_changes_nothing(world: World) -> None:
    world.write(10, 11)
    world.write(20, None)
    world.write(30, -1)
    before = world.state()
    explain_cell(world.store, SETTINGS, world.clock, TABLE, A)
    explain_table(world.store, SETTINGS, world.clock, TABLE)
    explain_shard(world.store, SETTINGS, world.clock, CONSERVATIVE, 0)
    assert world.state() == before


class TestBlocks:
    def test_what_blocks_most_comes_first(self, world: World) -> None:
        world.protect("backup", 15)
        for start in (20, 30, 40):
            world.write(start, start + 1, [Cell(b"%d" % start, b"c")])
        world.sweep(50)
        world.write(60, 61)
        world.write(62, 63, table=THOROUGH_TABLE)
        found = explain_table(world.store, SETTINGS, world.clock, TABLE)
        assert (found["entries"], found["at_least"]) == (4, False)
        assert [(each["reason"], each["by"], each["entries"]) for each in found["blocks"]] == [
            ("protected", "backup", 4),
        ]  # fmt: skip
        world.release("backup")
        found = explain_shard(world.store, SETTINGS, world.clock, CONSERVATIVE, 0)
        assert [(each["reason"], each["entries"]) for each in found["blocks"]] == [("queued", 4)]

    def test_a_look_is_bounded(self, world: World) -> None:
        for start in range(10, 500, 2):
            world.write(start, start + 1, [Cell(b"%d" % start, b"c")])
        found = explain_shard(world.store, SETTINGS, world.clock, CONSERVATIVE, 0, most=100)
        assert (found["entries"], found["at_least"]) == (100, True)

    def test_a_quiet_table_behind_a_busy_one_is_not_said_to_be_swept(self, world: World) -> None:
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

    def test_what_is_set_aside_waits_too(self, world: World) -> None:
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
        told = says({"reason": reason, "by": "x", "until": 1_000}, Known(2_000))
        assert told
        assert "{" not in told
    assert "1970-01-01 00:00:01 UTC" in says({"reason": "retention", "by": None, "until": 1_000}, Known(2_000))


def test_sentences_name_who_and_since_when() -> None:
    backup = Record(
        "nightly", 5, Mode.AT, (Target(TABLE),), meta_type="airflow_run", meta={"dag": "export"}, created_ms=60_000
    )
    known = Known(3_660_000, {"nightly": backup}, {"app.items": Pause("ada", "a look", 1_000)}, {935: 60_000}.get)
    a_minute_after, an_hour = "1970-01-01 00:01:00 UTC", words(3_600)
    for reason, by, named in [
        ("protected", "nightly", ["nightly", "airflow_run", "dag export", a_minute_after, an_hour]),
        ("open_transaction", "ada@host since 935", ["ada@host since 935", a_minute_after, an_hour]),
        ("paused", "app.items", ["app.items", "ada", "1970-01-01 00:00:01 UTC", "a look"]),
    ]:
        shown = says({"reason": reason, "by": by}, known)
        assert [each for each in named if each not in shown] == []


class TestPhysical:
    def test_a_file_of_our_own_keeps_nothing(self) -> None:
        told = remains_of("sqlite:///x.db", TABLE, A)
        assert (set(told), told["known"], told["remains"]) == ({"known", "remains", "says"}, True, [])
        assert told["says"]

    def test_what_cannot_be_known_is_said(self) -> None:
        told = remains_of("cassandra://127.0.0.1:9042/shop", TABLE, A)
        assert (told["known"], told["reason"], told["remains"]) == (False, "not_configured", None)
        assert "compaction_nodes" in told["says"]

    def test_whoever_can_look_into_the_files_is_asked(self) -> None:
        remain = Remain(10, Reason.WAITING_GC_GRACE, until_ms=5)
        told = remains_of("cassandra://127.0.0.1:9042/shop", TABLE, A, lambda table, cell: [remain])
        assert told["remains"] == [{"ts": 10, "reason": "waiting_gc_grace", "until_ms": 5, "by": None}]
