"""The status document of page, command and metrics: its contents and its cost."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from sweep_tasks.compaction.documents import RoundReport, TombstoneCounts
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.leases import Leases
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.diagnosis import status as diagnosed
from sweep_tasks.metrics import declarations as metrics
from sweep_tasks.metrics.samples import history, take_sample, tally_compaction, tally_reconciliation, tally_sweep
from sweep_tasks.metrics.tally import TaskAttempt
from sweep_tasks.metrics.values import values
from sweep_tasks.model import Cell, Span, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.reconciliation import ReportDocument, ReportedProblem
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.parking import Quarantine
from sweep_tasks.queue.progress import QUEUES, Progress
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.texts import duration
from tests.support.clock import ManualClock
from tests.support.compaction import NEAR_FAILING
from tests.unit.diagnosis.test_lag import HOUR, HOUR_S, hourly_samples, swept_to_hour
from tests.unit.sweep.world import TABLE, THOROUGH_TABLE, A, B, World

Document = dict[str, Any]


def status(store: Store, settings: Settings, clock: ManualClock) -> Document:
    return diagnosed.status(store, settings, clock).document()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100 * HOUR)


@pytest.fixture
def settings() -> Settings:
    return load_settings(lag_objective_conservative_s=4 * HOUR_S, lag_objective_thorough_s=3 * HOUR_S)


def about(document: Document) -> list[str]:
    return [each["about"] for each in document["health"]["problems"]]


def quarantine_reason(store: Store) -> str:
    """Return the reason of the only quarantined entry."""
    (entry,) = Quarantine(store, TimestampService(store)).all()
    return entry.reason


def reconciled(outcomes: dict[str, int], problems: list[str], oldest_age_s: int) -> ReportDocument:
    return ReportDocument(
        as_of_ms=0, dry_run=False, recounted=False, findings=[], records=len(problems), spans=len(problems),
        oldest_age_s=oldest_age_s, outcomes=outcomes, problems=[ReportedProblem(each, each) for each in problems],
    )  # fmt: skip


class TestDocument:
    def test_a_new_store_is_well(self, store: Store, settings: Settings, clock: ManualClock) -> None:
        found = status(store, settings, clock)
        assert found["health"] == {"verdict": "ok", "problems": []}
        assert [(each["lag_s"], each["behind"]) for each in found["shards"]] == [(None, False)] * 2
        assert (found["parked"], found["quarantined"], found["counted"]) == (None, None, None)

    def test_lag_grows_until_the_verdict_changes(self, store: Store, settings: Settings, clock: ManualClock) -> None:
        hourly_samples(store, 90, 100)
        swept_to_hour(store, 98)
        assert status(store, settings, clock)["health"]["verdict"] == "ok"
        clock.advance(HOUR_S + 60)
        found = status(store, settings, clock)
        assert found["health"]["verdict"] == "behind"
        assert [(each["strategy"], each["lag_s"], each["behind"]) for each in found["shards"]] == [
            ("conservative", 3 * HOUR_S + 60, False), ("thorough", 3 * HOUR_S + 60, True),
        ]  # fmt: skip
        (problem,) = found["health"]["problems"]
        assert (problem["about"], problem["cause"]) == ("thorough lag", "not_running")
        late, allowed = duration(3 * HOUR_S + 60), duration(3 * HOUR_S)
        for shown in ("thorough", "0", late):
            assert shown in problem["sentence"]
        assert allowed in problem["sentence"].replace(late, "")

    def test_the_transaction_that_holds_sweeps_back_is_named(
        self, store: Store, settings: Settings, clock: ManualClock
    ) -> None:
        hourly_samples(store, 90, 100)
        swept_to_hour(store, 93)
        Leases(store, 30).take(935, "importer on host-7")
        found = status(store, settings, clock)
        assert found["oldest_open_transaction"] == {
            "lease": 935, "owner": "importer on host-7", "start": None, "age_s": 7 * HOUR_S,
            "since": "1970-01-04 21:00:00+00:00", "age_at_least": False,
        }  # fmt: skip
        assert {each["cause"] for each in found["health"]["problems"]} == {"open_transaction"}
        for shown in ("importer on host-7", "1970-01-04 21:00:00 UTC"):
            assert all(shown in each["do"] for each in found["health"]["problems"])

    def test_a_transaction_older_than_the_wall_clock_map_is_at_least_as_old_as_that(
        self, store: Store, settings: Settings, clock: ManualClock
    ) -> None:
        hourly_samples(store, 90, 100)
        swept_to_hour(store, 93)
        Leases(store, 30).take(5, "importer on host-7")
        oldest = status(store, settings, clock)["oldest_open_transaction"]
        assert (oldest["age_s"], oldest["age_at_least"]) == (10 * HOUR_S, True)
        (exported,) = [each.value for each in values(store, settings, clock) if each.metric is metrics.OLDEST_OPEN]
        assert exported == 10 * HOUR_S, "the alert on its age must see it"

    def test_reads_that_are_about_to_fail_need_attention(
        self, store: Store, settings: Settings, clock: ManualClock
    ) -> None:
        report = RoundReport(node="10.0.0.2", tombstones=TombstoneCounts(after=20), near_failing=(NEAR_FAILING,))
        tally_compaction(store, clock, report, TaskAttempt("compaction", "r", "report"))
        found = status(store, settings, clock)
        assert (found["health"]["verdict"], about(found)) == ("attention", ["reads on 10.0.0.2"])

    def test_a_clock_that_is_ahead_needs_attention_and_is_named(
        self, store: Store, settings: Settings, clock: ManualClock
    ) -> None:
        hourly_samples(store, 99, 100)
        swept_to_hour(store, 99)
        TimestampService(store).move_past(1_000)
        ahead = ManualClock(clock.now_ms() + 24 * HOUR, "host-7")
        ClockHistory(store).record_now(TimestampService(store), ahead, settings.clock_step_max_s)
        found = status(store, settings, clock)
        assert found["health"]["verdict"] == "attention"
        assert [(each["about"], each["cause"]) for each in found["health"]["problems"]] == [
            ("clock of host-7", "clock_ahead")
        ]
        assert found["clock"]["last_ms"] == 100 * HOUR
        assert found["clock"]["problems"] == [
            {"code": "clock_ahead", "host": "host-7", "by_ms": 24 * HOUR, "since_ms": 100 * HOUR}
        ]

    def test_shards_that_are_behind_because_no_clock_is_recorded_have_that_cause(
        self, store: Store, settings: Settings, clock: ManualClock
    ) -> None:
        hourly_samples(store, 99, 100)
        TimestampService(store).move_past(1_000)
        ahead = ManualClock(clock.now_ms() + 24 * HOUR, "host-7")
        ClockHistory(store).record_now(TimestampService(store), ahead, step_max_s=0)
        clock.advance(6 * HOUR_S)
        found = status(store, settings, clock)
        assert {each["about"]: each["cause"] for each in found["health"]["problems"]} == {
            "conservative lag": "clock_sample_in_future", "thorough lag": "clock_sample_in_future",
            "clock sample": "clock_sample_in_future",
        }  # fmt: skip

    def test_a_run_that_stops_at_its_limit_is_distinguished_from_one_that_does_not_run(
        self, store: Store, settings: Settings, clock: ManualClock
    ) -> None:
        world = World(store, clock)
        hourly_samples(store, 90, 100)
        summary = replace(world.sweep(901), stopped="seconds")
        tally_sweep(store, clock, summary, TaskAttempt("targeted_sweep", "r", "shard_0"))
        swept_to_hour(store, 99, (QUEUES[1],))
        (problem,) = status(store, settings, clock)["health"]["problems"]
        assert problem["cause"] == "limits"

    def test_parked_and_quarantined_entries_are_those_of_the_last_sample(
        self, store: Store, settings: Settings, clock: ManualClock
    ) -> None:
        world = World(store, clock)
        world.write(10, 11, [A, B])
        world.write(20, 21, [A, B])
        world.write(30, -1, [A], table=THOROUGH_TABLE)
        world.enter(40, b"\x02")
        world.protect("backup", 15)
        world.sweep(100)
        world.sweep(100, QUEUES[1])
        assert status(store, settings, clock)["parked"] is None
        take_sample(store, clock)
        found = status(store, settings, clock)
        assert found["parked"] == {"total": 3, "by_reason": {"protected": 2, "grace": 1}, "at_least": False}
        reasons = {quarantine_reason(store): 1}
        assert found["quarantined"] == {
            "total": 1, "by_shard": {"conservative/0": 1}, "at_least": False, "by_reason": reasons,
        }  # fmt: skip
        assert re.findall(r"\d+", quarantine_reason(store)) == ["02"]
        assert [each["parked"] for each in found["shards"]] == [2, 1]
        (record,) = found["protection_records"]
        assert (record["id"], record["entries_held"], record["tables"]) == ("backup", 2, ["app.items"])
        assert about(found) == ["quarantine"]
        world.release("backup")
        take_sample(store, clock)
        assert status(store, settings, clock)["parked"]["by_reason"] == {"due": 2, "grace": 1}

    def test_counting_is_bounded_and_says_so(self, memory: MemoryStore, clock: ManualClock) -> None:
        world = World(memory, clock)
        world.protect("backup", 5)
        for start in range(10, 30, 2):
            world.write(start, start + 1, [Cell(b"%d" % start, b"c")])
        world.sweep(100)
        assert take_sample(memory, clock, most=4).parked.model_dump() == {
            "by_reason": {"protected": 4}, "by_shard": {"conservative/0": 4}, "by_record": {"backup": 4},
            "at_least": True,
        }  # fmt: skip

    def test_an_old_protection_and_a_reached_limit_need_attention(self, store: Store, clock: ManualClock) -> None:
        World(store, clock).protect("backup", 5)
        clock.advance(8 * 86_400)
        few = load_settings(max_protection_records=1)
        found = status(store, few, clock)
        assert found["health"]["verdict"] == "attention"
        assert about(found) == ["record backup too_old", "limit records"]
        assert "sweepflow release backup" in found["health"]["problems"][0]["do"]

    def test_protections_that_the_last_reconciliation_left_undecided_need_attention(
        self, store: Store, settings: Settings, clock: ManualClock
    ) -> None:
        report = reconciled({"gone": 3}, ["a", "b", "c"], 60)
        tally_reconciliation(store, clock, report, TaskAttempt("protected_timestamps", "r", "reconcile"))
        clock.advance(600)
        found = status(store, settings, clock)
        assert (found["health"]["verdict"], about(found)) == ("attention", ["protections"])
        (problem,) = found["health"]["problems"]
        assert "3" in re.findall(r"\d+", problem["sentence"])
        assert duration(600) in problem["sentence"]
        assert "protected_timestamps" in problem["do"]
        decided = report.model_copy(update={"problems": []})
        tally_reconciliation(store, clock, decided, TaskAttempt("protected_timestamps", "s", "reconcile"))
        assert about(status(store, settings, clock)) == []

    def test_a_record_that_is_listed_as_too_old_is_not_listed_twice(
        self, store: Store, settings: Settings, clock: ManualClock
    ) -> None:
        World(store, clock).protect("backup", 5)
        clock.advance(8 * 86_400)
        report = reconciled({"gone": 1}, ["backup"], 8 * 86_400)
        tally_reconciliation(store, clock, report, TaskAttempt("protected_timestamps", "r", "reconcile"))
        assert about(status(store, settings, clock)) == ["record backup too_old"]

    def test_unknown_lag_needs_attention_when_entries_wait(
        self, store: Store, settings: Settings, clock: ManualClock
    ) -> None:
        world = World(store, clock)
        TimestampService(store).move_past(50)
        assert about(status(store, settings, clock)) == [], "nothing is queued"
        world.write(60, 61)
        found = status(store, settings, clock)
        assert (found["health"]["verdict"], about(found)) == ("attention", ["lag unknown"])
        Leases(store, 30).take(62, "importer on host-7")
        exported = {each.metric for each in values(store, settings, clock)}
        assert not exported & {metrics.LAG, metrics.OLDEST_OPEN}, "0 would mean that it is up to date"
        hourly_samples(store, 99, 100)
        assert about(status(store, settings, clock)) == []
        assert {metrics.LAG, metrics.OLDEST_OPEN} <= {each.metric for each in values(store, settings, clock)}

    def test_a_bare_row_in_a_garbled_entry_reaches_neither_the_status_nor_the_quarantine(
        self, store: Store, settings: Settings, clock: ManualClock
    ) -> None:
        world = World(store, clock)
        world.write(10, 11)
        name = b"conspicuous row"
        world.enter(20, b"\x00" + bytes([len(name)]) + name + b"\x05row-a\x03col\x00")
        world.sweep(100)
        take_sample(store, clock)
        reason = quarantine_reason(store)
        assert status(store, settings, clock)["quarantined"]["by_reason"] == {reason: 1}
        assert reason.partition(":")[0] == "table"
        assert "conspicuous" not in reason

    def test_what_has_expired_and_still_holds_is_the_reconcilers_to_release(
        self, store: Store, settings: Settings, clock: ManualClock
    ) -> None:
        World(store, clock)
        record = Record("r", 5, Mode.AT, (Target(TABLE),), expires_ms=clock.now_ms())
        ProtectionCatalog(store, settings, clock).protect(record)
        clock.advance(HOUR_S)
        assert about(status(store, settings, clock)) == []
        clock.advance(1)
        assert about(status(store, settings, clock)) == ["reconciliation"]

    def test_it_is_json_and_names_no_row(self, store: Store, settings: Settings, clock: ManualClock) -> None:
        world = World(store, clock)
        target = Target(TABLE, Span(b"conspicuous", b"conspicuous2"))
        ProtectionCatalog(store, settings, clock).protect(Record("r", 5, Mode.AT, (target,)))
        world.write(10, 11, [Cell(b"conspicuous1", b"c")])
        world.write(20, 21, [Cell(b"conspicuous1", b"c")])
        tally_sweep(store, clock, world.sweep(100), TaskAttempt("d", "r", "t"))
        take_sample(store, clock)
        exported = json.dumps([status(store, settings, clock), history(store).model_dump()])
        assert "conspicuous" not in exported
        assert b"conspicuous".hex() not in exported
        assert '"some_rows_only": true' in exported


class TestCost:
    def calls(self, store: Store, settings: Settings, clock: ManualClock) -> int:
        counting = FaultyStore(store)
        status(counting, settings, clock)
        history(counting)
        return counting.calls

    def test_it_takes_as_many_calls_for_many_shards_and_protections_as_for_few(
        self, memory: MemoryStore, clock: ManualClock
    ) -> None:
        settings = load_settings(max_protection_records=0, max_protection_spans=0)
        hourly_samples(memory, 1, 99)
        Leases(memory, 30).take(1, "alice")
        Progress(memory).advance(QUEUES[0], 0, 905)
        few = self.calls(memory, settings, clock)
        world = World(memory, clock)
        Progress(memory).raise_shards(256)
        catalog = ProtectionCatalog(memory, settings, clock)
        for number in range(512):
            catalog.protect(Record(f"r{number}", 5 + number, Mode.AT, (Target(TableRef.parse("app.items")),)))
            Leases(memory, 30).take(10_000 + number, "alice")
        summary = world.sweep(9)
        for strategy in QUEUES:
            for shard in range(256):
                Progress(memory).advance(strategy, shard, 5 + 3 * shard)
                swept = replace(summary, strategy=strategy, shard=shard)
                tally_sweep(memory, clock, swept, TaskAttempt("targeted_sweep", "r", f"{strategy}.shard_{shard}"))
        take_sample(memory, clock)
        assert self.calls(memory, settings, clock) <= few <= 25


class TestBacklog:
    def test_before_the_first_sweep_it_is_counted_and_then_reckoned(
        self, store: Store, settings: Settings, clock: ManualClock
    ) -> None:
        world = World(store, clock)
        for start in range(10, 30, 2):
            world.write(start, start + 1)
        assert status(store, settings, clock)["shards"][0]["backlog"]["entries_estimated"] is None
        take_sample(store, clock)
        backlog = status(store, settings, clock)["shards"][0]["backlog"]
        assert (backlog["entries_estimated"], backlog["at_least"]) == (10, False)
        tally_sweep(store, clock, world.sweep(20), TaskAttempt("targeted_sweep", "r", "shard_0"))
        reckoned = status(store, settings, clock)["shards"][0]["backlog"]["entries_estimated"]
        assert reckoned == round(5 * (29 - 19) / 20), "five entries in the first twenty timestamps"
        sample = take_sample(store, clock)
        assert sample.backlog.model_dump() == {
            "by_shard": {"conservative/0": reckoned, "thorough/0": 0},
            "at_least": False,
        }
        (point,) = [each.sample for each in history(store).points]
        assert point
        assert point.backlog == {"conservative": reckoned, "thorough": 0}

    def test_counting_it_is_bounded_and_says_so(self, memory: MemoryStore, clock: ManualClock) -> None:
        world = World(memory, clock)
        for start in range(10, 30, 2):
            world.write(start, start + 1)
        assert take_sample(memory, clock, most=4).backlog.model_dump() == {
            "by_shard": {"conservative/0": 4, "thorough/0": 0}, "at_least": True
        }  # fmt: skip
