"""The doctor: what it finds in stores of all kinds, what that means, and that it changes nothing."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from sweep_tasks.clock import from_ms
from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.diagnosis.doctor import Doctor, Sampler
from sweep_tasks.diagnosis.findings import Finding, Level, findings
from sweep_tasks.diagnosis.state import Facts, TableFacts
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.progress import Undone
from sweep_tasks.legacy.rules import TableRules
from sweep_tasks.legacy.run import LegacySweep
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.parking import Quarantine, Quarantined
from sweep_tasks.store import Store, StoreLocation
from sweep_tasks.store.faults import FaultyStore, StoreCall, on
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.run import Sweeper
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.tables.deletions import DeleteKind, DeleteTally, Deletions
from sweep_tasks.tables.pauses import Pauses
from sweep_tasks.transactions import TransactionManager
from tests.support.clock import ManualClock
from tests.support.command import sweepflow

CONSERVATIVE, THOROUGH, NOTHING = SweepStrategy
T, OTHER = TableRef.parse("app.items"), TableRef.parse("app.other")
SETTINGS = Settings(retention_s=3_600)
HERE = StoreLocation.parse("memory:")
READS = {"tables", "timestamps", "scan", "scan_versions", "read", "peek", "read_rows", "scan_registers", "scan_ranges",
         "size", "row_order"}  # fmt: skip


def examined(store: Store, clock: ManualClock, sample_s: float = 60, **settings: Any) -> Facts:
    return Doctor(store, SETTINGS.model_copy(update=settings), clock, sample_s).examine(HERE)


def write(
    store: Store, clock: ManualClock, versions: int, rows: int = 1, *, table: TableRef = T, enqueue: bool = True
) -> None:
    with TransactionManager(store, SETTINGS, clock=clock, enqueue=enqueue, renew_leases=False) as manager:
        for number in range(versions):
            clock.advance(1)
            with manager.transaction() as tx:
                tx.put_many(table, {Cell(b"%05d" % row, b"c"): b"v%d" % number for row in range(rows)})
    ClockHistory(store).record_now(TimestampService(store), clock, 900)


def about(facts: Facts, what: str) -> Finding:
    return next(each for each in findings(facts) if each.about == what)


def numbers(sentence: str) -> set[str]:
    return set(re.findall(r"\d+", sentence))


def of_table(facts: Facts, table: TableRef = T) -> TableFacts:
    return next(each for each in facts.tables if each.table == table)


def test_an_empty_store_is_healthy_and_the_first_command_is_suggested(store: Store, clock: ManualClock) -> None:
    found = findings(examined(store, clock))
    assert [(each.level, each.about, each.code) for each in found] == [(Level.NOTE, "tables", "no_tables")]
    assert str(found[0].run).split()[:3] == ["sweepflow", "tables", "create"]


def test_a_store_older_than_the_queue_shows_what_a_scan_would_remove_and_how_long_it_takes(
    store: Store, clock: ManualClock
) -> None:
    Catalog(store).create(T, TableMetadata(CONSERVATIVE))
    write(store, clock, 3, rows=10, enqueue=False)
    facts = examined(store, clock)
    sample = of_table(facts).sample
    assert sample
    assert (sample.cells, sample.versions, sample.versions_per_cell, sample.share) == (10, 30, 3.0, 1.0)
    assert (sample.goes_now, sample.goes_later) == (0, 20), "within their retention now"
    finding = about(facts, str(T))
    assert (finding.level, finding.code) == (Level.DO, "never_scanned")
    assert {"20", "30", "0"} <= numbers(finding.sentence)
    assert finding.run
    assert f"legacy-sweep {T}" in finding.run
    clock.advance(7_200)
    again = of_table(examined(store, clock)).sample
    assert again
    assert again.goes_now == 20


def test_after_the_scan_it_asks_for_nothing_more(store: Store, clock: ManualClock) -> None:
    Catalog(store).create(T, TableMetadata(CONSERVATIVE))
    write(store, clock, 3, rows=10, enqueue=False)
    clock.advance(7_200)
    LegacySweep(store, SETTINGS, clock).sweep(LegacyOrder(T))
    facts = examined(store, clock)
    assert of_table(facts).last_scan_ms == clock.now_ms()
    assert [each for each in findings(facts) if each.about == str(T)] == []


def test_a_queue_that_was_never_swept(store: Store, clock: ManualClock) -> None:
    Catalog(store).create(T, TableMetadata(CONSERVATIVE))
    write(store, clock, 2, rows=5)
    facts = examined(store, clock)
    assert facts.queued == (10, False)
    assert about(facts, "queue").code == "never_swept"
    assert "10" in numbers(about(facts, "queue").sentence)
    clock.advance(7_200)
    list(Sweeper(store, SETTINGS, clock).sweep())
    assert "queue" not in {each.about for each in findings(examined(store, clock))}


def test_while_the_queue_is_as_long_as_what_could_go_no_scan_is_asked_for(store: Store, clock: ManualClock) -> None:
    Catalog(store).create(T, TableMetadata(CONSERVATIVE))
    write(store, clock, 3, rows=10)
    found = findings(examined(store, clock))
    assert [(each.level, each.about) for each in found] == [(Level.DO, "queue"), (Level.NOTE, "scans")]


def test_of_many_tables_that_were_never_scanned_only_those_with_most_in_them_are_named(
    store: Store, clock: ManualClock
) -> None:
    for number in range(7):
        table = TableRef.parse(f"app.t{number}")
        Catalog(store).create(table, TableMetadata(CONSERVATIVE))
        write(store, clock, 2, rows=number + 1, table=table, enqueue=False)
    found = [each.about for each in findings(examined(store, clock)) if each.level is Level.DO]
    assert found == ["app.t6", "app.t5", "app.t4", "app.t3", "app.t2", "scans"]
    Pauses(store, clock).pause(None, "ada", "a migration")
    assert [each.about for each in findings(examined(store, clock)) if each.level is Level.DO] == ["pauses"]


def test_shards_behind_their_objective(store: Store, clock: ManualClock) -> None:
    Catalog(store).create(T, TableMetadata(CONSERVATIVE))
    write(store, clock, 2)
    list(Sweeper(store, SETTINGS, clock).sweep())
    clock.advance(90_000)
    assert about(examined(store, clock), "lag").level is Level.DO


def test_transactions_that_block_sweeps_are_named(store: Store, clock: ManualClock) -> None:
    Catalog(store).create(T, TableMetadata(CONSERVATIVE))
    settings = Settings(lease_ttl_s=1_000_000)
    manager = TransactionManager(store, settings, clock=clock, renew_leases=False)
    write(store, clock, 1)
    manager.transaction()
    protections = ProtectionCatalog(store, SETTINGS, clock)
    protections.protect(Record("backup", TimestampService(store).fresh(), Mode.AT, (Target(T),)))
    entry = Quarantined(CONSERVATIVE, 0, 5, Cell(b"r", b"c"), b"?", "torn")
    Quarantine(store, TimestampService(store)).add([entry])
    clock.advance(7_200)
    facts = examined(store, clock, protection_max_age_s=60)
    assert (facts.open_transactions, facts.protections, facts.quarantined.number) == (1, 1, 1)
    assert about(facts, "transactions").code == "open_transaction"
    assert facts.oldest_transaction
    assert facts.oldest_transaction.age_s == 7_200
    assert "2" in numbers(about(facts, "transactions").sentence), "hours"
    assert about(facts, "protections").level is Level.DO
    assert about(facts, "quarantine").code == "quarantined"
    assert {"queue", "quarantine", "list", "retry"} <= set(re.findall(r"\w+", str(about(facts, "quarantine").run)))


@pytest.mark.parametrize(("waited_s", "level"), [(0, Level.NOTE), (7_200, Level.DO)])
def test_a_scan_that_a_change_of_strategy_has_left(
    store: Store, clock: ManualClock, waited_s: int, level: Level
) -> None:
    catalog = Catalog(store)
    catalog.create(T, TableMetadata(NOTHING))
    write(store, clock, 2)
    catalog.set_strategy(T, CONSERVATIVE)
    clock.advance(1)
    write(store, clock, 1)
    clock.advance(waited_s)
    assert about(examined(store, clock), str(T)).level is level


def test_a_due_scan_is_not_suggested_while_it_would_complete_nothing(store: Store, clock: ManualClock) -> None:
    catalog = Catalog(store)
    catalog.create(T, TableMetadata(CONSERVATIVE, retention_s=7 * 86_400))
    write(store, clock, 2)
    catalog.set_strategy(T, THOROUGH)
    for passed_s, level, waits_for in [(7_200, Level.NOTE, Undone.REACH), (8 * 86_400, Level.DO, None)]:
        clock.advance(passed_s)
        write(store, clock, 1)
        list(Sweeper(store, SETTINGS, clock).sweep())
        facts = examined(store, clock)
        finding = about(facts, str(T))
        assert (finding.level, finding.code, finding.waits_for) == (level, "scan_due_markers", waits_for)
        assert of_table(facts).not_by_turns is None


@pytest.mark.parametrize("long_ago", [False, True])
def test_a_scan_that_died_long_ago_has_no_owner(store: Store, clock: ManualClock, long_ago: bool) -> None:
    Catalog(store).create(T, TableMetadata(CONSERVATIVE))
    write(store, clock, 3, rows=10, enqueue=False)
    clock.advance(7_200)
    LegacySweep(store, SETTINGS, clock, "ada").start(LegacyOrder(T))
    clock.advance(30 * 86_400 if long_ago else 60)
    finding = about(examined(store, clock), str(T))
    assert (finding.level, finding.code) == ((Level.DO, "never_scanned") if long_ago else (Level.NOTE, "scan_running"))
    assert ("ada" in finding.sentence) is not long_ago


def test_a_scan_of_when_nothing_was_old_enough_is_no_scan(store: Store, clock: ManualClock) -> None:
    Catalog(store).create(T, TableMetadata(CONSERVATIVE))
    write(store, clock, 3, rows=10, enqueue=False)
    LegacySweep(store, SETTINGS, clock).sweep(LegacyOrder(T), Horizon(0, clock.now_ms()))
    facts = examined(store, clock)
    assert of_table(facts).last_scan_ms is None
    finding = about(facts, str(T))
    assert (finding.level, finding.code, finding.waits_for) == (Level.DO, "never_scanned", "retention")


class TestPauses:
    def paused(self, store: Store, clock: ManualClock, table: TableRef | None) -> Facts:
        Catalog(store).create(T, TableMetadata(CONSERVATIVE))
        write(store, clock, 3, rows=10, enqueue=False)
        list(Sweeper(store, SETTINGS, clock).sweep())
        clock.advance(90_000)
        Pauses(store, clock).pause(table, "ada", "a migration")
        return examined(store, clock)

    def test_one_finding_names_who_paused_what_and_how_to_resume(self, store: Store, clock: ManualClock) -> None:
        facts = self.paused(store, clock, T)
        finding = about(facts, "pauses")
        assert finding.level is Level.DO
        for named in ("app.items", "ada", str(from_ms(clock.now_ms())), "a migration"):
            assert named in finding.sentence
        assert "sweepflow resume app.items" in str(finding.run)
        assert facts.document()["pauses"][0]["by"] == "ada"
        scan = about(facts, str(T))
        assert (scan.level, scan.waits_for) == (Level.NOTE, "paused")

    def test_while_everything_is_paused_no_sweep_is_asked_for_either(self, store: Store, clock: ManualClock) -> None:
        facts = self.paused(store, clock, None)
        assert "sweepflow resume --everything" in str(about(facts, "pauses").run)
        assert [each.about for each in findings(facts) if each.level is Level.DO] == ["pauses"]
        assert about(facts, "lag").waits_for == "paused"
        assert "sweepflow sweep" in str(about(facts, "lag").run)

    def test_a_store_where_nothing_is_paused_says_nothing_of_it(self, store: Store, clock: ManualClock) -> None:
        assert "pauses" not in {each.about for each in findings(examined(store, clock))}


def test_a_table_that_is_never_swept_and_keeps_much(store: Store, clock: ManualClock) -> None:
    Catalog(store).create(T, TableMetadata(NOTHING))
    write(store, clock, 4)
    facts = examined(store, clock)
    assert about(facts, str(T)).code == "strategy_nothing"
    assert "4.0" in about(facts, str(T)).sentence
    assert facts.estimated().versions == 0, "it will not be scanned"


def test_of_a_large_table_a_few_parts_are_read_and_the_rest_is_estimated(memory: Store, clock: ManualClock) -> None:
    Catalog(memory).create(T, TableMetadata(THOROUGH))
    write(memory, clock, 2, rows=20_000, enqueue=False)
    calls: list[str] = []
    watched = FaultyStore(memory, before=lambda call: calls.append(call.name))
    sample = of_table(examined(watched, clock)).sample
    assert sample
    assert sample.share < 1
    assert not sample.at_least
    assert 30_000 < sample.of_all(sample.versions) < 50_000
    assert 15_000 < sample.of_all(sample.goes_later) < 25_000
    assert calls.count("scan_versions") < 60


CUTTING_S = 60


class CountedStore(FaultyStore):
    """Its time passes with what is asked of it: each request takes a millisecond, each version ten microseconds, and
    the cutting of a table a minute."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, before=self._asked)
        self.s = 0.0

    def _asked(self, call: StoreCall) -> None:
        self.s += CUTTING_S if call.name == "scan_ranges" else 0.001

    def scan_versions(self, *given: Any, **named: Any) -> Any:
        page = self.call("scan_versions", given, named)
        self.s += 10e-6 * len(page.items)
        return page


@pytest.mark.parametrize("rows", [500, 20_000, 60_000])
def test_the_estimated_duration_of_a_scan_has_the_right_order_of_magnitude(
    memory: Store, clock: ManualClock, rows: int
) -> None:
    Catalog(memory).create(T, TableMetadata(THOROUGH))
    write(memory, clock, 2, rows=rows, enqueue=False)
    counted = CountedStore(memory)
    horizon = Horizon(TimestampService(memory).greatest() + 1, clock.now_ms())
    view = SweepView.publish(memory, horizon, dry_run=True, only=[T]).tables[T]
    rules = TableRules(T, view, horizon.sweep_ts, ProtectionCatalog(memory).protections())
    estimated = Sampler(counted, now_s=lambda: counted.s).sample(T, rules, rules).scan_seconds
    counted.s = 0.0
    scan = LegacySweep(counted, Settings(legacy_versions_per_s=0), clock)
    scan.sweep(LegacyOrder(T, ranges=1, dry_run=True), horizon)
    took = counted.s - CUTTING_S
    assert took / 3 < estimated < took * 3


def test_when_the_time_is_up_no_part_of_a_table_is_read_any_more(memory: Store, clock: ManualClock) -> None:
    Catalog(memory).create(T, TableMetadata(THOROUGH))
    write(memory, clock, 2, rows=20_000, enqueue=False)
    slow = FaultyStore(memory, before=lambda call: clock.advance(1) if call.name == "scan_versions" else None)
    began = clock.now_ms()
    sample = of_table(examined(slow, clock, sample_s=7)).sample
    assert sample
    assert sample.at_least
    assert clock.now_ms() - began <= 9_000, "the page under way, and one of its part"


def test_a_table_that_is_dropped_during_the_examination_is_left_out(memory: Store, clock: ManualClock) -> None:
    for table in (T, OTHER):
        Catalog(memory).create(table, TableMetadata(CONSERVATIVE))
    dropping = FaultyStore(memory, after=on("tables", 1, lambda _: Catalog(memory).drop(T)))
    assert [each.table for each in examined(dropping, clock).tables] == [OTHER]


def test_part_of_a_table_that_was_scanned_is_no_scan(store: Store, clock: ManualClock) -> None:
    Catalog(store).create(T, TableMetadata(CONSERVATIVE))
    write(store, clock, 3, rows=10, enqueue=False)
    clock.advance(7_200)
    LegacySweep(store, SETTINGS, clock).sweep(LegacyOrder(T, from_row=b"00009"))
    assert of_table(examined(store, clock)).last_scan_ms is None


def test_a_due_scan_that_is_not_scheduled_says_so(store: Store, clock: ManualClock) -> None:
    catalog = Catalog(store)
    catalog.create(T, TableMetadata(NOTHING))
    catalog.set_strategy(T, CONSERVATIVE)
    finding = about(examined(store, clock, legacy_never=("app.*",)), str(T))
    assert "legacy_never" in finding.sentence
    assert finding.waits_for == Undone.REACH
    assert str(finding.run).endswith(f"sweepflow legacy-sweep {T}")


def test_tombstones_written_by_sweeps_are_shown_where_there_are_any(memory: Store, clock: ManualClock) -> None:
    Catalog(memory).create(T, TableMetadata(CONSERVATIVE))
    tally = DeleteTally()
    tally.add(T, DeleteKind.RANGES, [5, 5, 7])
    Deletions(memory).add(tally, clock.now_ms())
    doctor = Doctor(memory, SETTINGS, clock, 1)
    assert doctor.examine(StoreLocation.parse("cassandra://host/keyspace")).tombstones_written == 3
    assert doctor.examine(HERE).tombstones_written is None


def test_one_row_that_is_larger_than_any_sample_says_so(memory: Store, clock: ManualClock) -> None:
    Catalog(memory).create(T, TableMetadata(THOROUGH))
    for ts in range(1, 8_001):
        memory.put(ts, {T: {Cell(b"r", b"c"): b"v"}})
    sample = of_table(examined(memory, clock)).sample
    assert sample
    assert sample.at_least


def test_tables_skipped_for_lack_of_time_are_named(store: Store, clock: ManualClock) -> None:
    Catalog(store).create(T, TableMetadata())
    facts = examined(store, clock, sample_s=0)
    assert of_table(facts).sample is None
    assert str(T) in about(facts, "sample").sentence


def test_examining_changes_nothing(memory: Store, clock: ManualClock) -> None:
    Catalog(memory).create(T, TableMetadata(CONSERVATIVE))
    write(memory, clock, 3, rows=10)
    calls: set[str] = set()
    examined(FaultyStore(memory, before=lambda call: calls.add(call.name)), clock)
    assert calls <= READS


class TestCommand:
    def test_a_missing_store_is_a_finding_and_only_a_fresh_folder_is_advised_to_create_one(self, tmp_path: Any) -> None:
        named = ["--store", f"sqlite:///{tmp_path}/nowhere.db"]
        for given, way_out in ((named, None), ([], f"sweepflow init --store '{Settings().store}'")):
            ended = sweepflow("doctor", "--json", *given, cwd=tmp_path)
            document = json.loads(ended.out)
            assert (ended.code, document["level"], document["facts"]) == (4, "stop", None)
            assert document["findings"][0]["code"] == "unavailable"
            assert document["findings"][0]["run"] == way_out

    def test_the_exit_code_says_whether_something_needs_attention(
        self, sqlite: Store, sqlite_url: str, clock: ManualClock
    ) -> None:
        healthy = sweepflow("doctor", "--json", "--store", sqlite_url)
        assert (healthy.code, json.loads(healthy.out)["level"]) == (0, "note")
        Catalog(sqlite).create(T, TableMetadata())
        write(sqlite, clock, 3, rows=10)
        ended = sweepflow("doctor", "--store", sqlite_url)
        assert ended.code == 1
        document = json.loads(sweepflow("doctor", "--json", "--store", sqlite_url).out)
        assert document["level"] == "do"
        assert document["verdict"] in ended.out
        for finding in document["findings"]:
            assert finding["about"] in ended.out
            assert " ".join(finding["run"].split()[:2]) in ended.out
        assert document["facts"]["tables"][0]["estimated"]["versions_per_cell"] == 3.0
        assert "00001" not in ended.out, "no row is ever shown"
