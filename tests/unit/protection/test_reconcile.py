"""Reconciliation: records are released, kept or reported, and never released on a guess."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.errors import NotFound, StoreBusy, StoreUnavailable
from sweep_tasks.model import Cell, Span, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.owners import GROUP, MANUAL, Answer, Owner, Owners
from sweep_tasks.protection.reconciliation import A_MOVE_TAKES_S, Reconciler, RecordOutcome, Report
from sweep_tasks.protection.records import Mode, Record, State, Target
from sweep_tasks.store import Store
from sweep_tasks.store.contract import Change
from sweep_tasks.store.faults import FaultyStore, StoreCall
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.store.schema import PROTECTIONS
from sweep_tasks.tables.catalog import Catalog
from tests.support.clock import ManualClock
from tests.support.simulation import Process

TABLE = TableRef.parse("app.items")
DAY_S = 86_400
SETTINGS = Settings()


class JobOwner(Owner):
    """Return the answer in the metadata of the record."""

    def answer(self, record: Record) -> Answer:
        return Answer(record.meta["says"])


REGISTERED = [
    EntryPoint("job", f"{__name__}:JobOwner", GROUP),
    EntryPoint(MANUAL, "sweep_tasks.protection.owners:ManualOwner", GROUP),
]


@pytest.fixture
def catalog(memory: MemoryStore, clock: ManualClock) -> ProtectionCatalog:
    memory.create_table(TABLE, TableMetadata())
    return ProtectionCatalog(memory, SETTINGS, clock)


def job(name: str, says: str = "running", expires_ms: int | None = None) -> Record:
    targets = (Target(TABLE, Span(b"secret-row", b"")),)
    return Record(name, 50, Mode.AT, targets, meta_type="job", meta={"says": says}, expires_ms=expires_ms)


def reconcile(
    store: Store,
    clock: ManualClock,
    settings: Settings = SETTINGS,
    ended: Mapping[int, int] | None = None,
    dry_run: bool = False,
) -> Report:
    """`ended` holds the transactions that have ended, with their commit timestamp or -1."""

    def outcomes(starts: Collection[int]) -> dict[int, int]:
        return {start: (ended or {})[start] for start in starts if start in (ended or {})}

    catalog = ProtectionCatalog(store, settings, clock)
    with Owners(settings, clock, REGISTERED) as owners:
        return Reconciler(catalog, owners, outcomes, settings, clock, dry_run=dry_run).run()


def found(report: Report) -> dict[str, RecordOutcome]:
    return {each.id: each.outcome for each in report.findings}


def existing(catalog: ProtectionCatalog) -> set[str]:
    return {record.id for record in catalog.records()}


class TestOwners:
    def test_finished_is_released_and_everything_else_is_kept(
        self, memory: MemoryStore, clock: ManualClock, catalog: ProtectionCatalog
    ) -> None:
        for says in ("finished", "running", "gone"):
            catalog.protect(job(says, says))
        catalog.protect(job("odd", "no idea"))
        catalog.protect(replace(job("stranger"), meta_type="sheep"))
        catalog.protect(replace(job("person"), meta_type=MANUAL))
        report = reconcile(memory, clock)
        assert found(report) == {
            "finished": RecordOutcome.RELEASED,
            "running": RecordOutcome.KEPT,
            "gone": RecordOutcome.GONE,
            "odd": RecordOutcome.UNANSWERED,
            "stranger": RecordOutcome.UNKNOWN,
            "person": RecordOutcome.KEPT,
        }
        assert existing(catalog) == {"running", "gone", "odd", "stranger", "person"}
        assert report.meta.records == 5

    def test_an_expired_record_is_released_whatever_its_owner_says(
        self, memory: MemoryStore, clock: ManualClock, catalog: ProtectionCatalog
    ) -> None:
        catalog.protect(job("soon", expires_ms=clock.now_ms() + 60_000))
        catalog.protect(replace(job("stranger", expires_ms=clock.now_ms() + 60_000), meta_type="sheep"))
        clock.advance(59)
        assert found(reconcile(memory, clock)) == {"soon": RecordOutcome.KEPT, "stranger": RecordOutcome.UNKNOWN}
        clock.advance(1)
        assert found(reconcile(memory, clock)) == {
            "soon": RecordOutcome.RELEASED,
            "stranger": RecordOutcome.RELEASED,
        }
        assert existing(catalog) == set()

    def test_a_dry_run_reports_the_same_and_changes_nothing(
        self, memory: MemoryStore, clock: ManualClock, catalog: ProtectionCatalog
    ) -> None:
        catalog.protect(job("done", "finished"))
        catalog.protect(job("late", expires_ms=clock.now_ms()))
        catalog.begin(job("left behind"))
        clock.advance(SETTINGS.protection_pending_s)
        wrong_counts(memory)
        before = memory.read_rows(PROTECTIONS, [b"records"])
        report = reconcile(memory, clock, dry_run=True)
        assert found(report) == {
            "done": RecordOutcome.RELEASED, "late": RecordOutcome.RELEASED, "left behind": RecordOutcome.PENDING,
        }  # fmt: skip
        assert report.dry_run
        assert memory.read_rows(PROTECTIONS, [b"records"]) == before

    def test_a_record_created_again_at_any_time_stays(self, clock: ManualClock) -> None:
        """Released and created again by another process, after each of the reconciler's calls to the store."""
        steps = 0
        ended = False
        while not ended:
            shared = store_with_table(clock)
            catalog = ProtectionCatalog(shared, SETTINGS, clock)
            catalog.protect(job("a", "finished"))
            reconciler = Process(shared, lambda store: reconcile(store, clock))
            ended = not all(reconciler.step() for _ in range(steps))
            take_again(catalog, job("a", "running"))
            reconciler.finish()
            assert [each.meta["says"] for each in catalog.records()] == ["running"], steps
            steps += 1
        assert steps > 4

    def test_a_record_that_changed_while_it_was_released_is_reported_as_changed(
        self, memory: MemoryStore, clock: ManualClock, catalog: ProtectionCatalog
    ) -> None:
        catalog.protect(job("again", "finished"))
        reconciler = Process(memory, lambda store: reconcile(store, clock))
        reconciler.step_to("compare_and_set")
        take_again(catalog, job("again", "running"))
        report = reconciler.finish()
        assert report is not None
        assert found(report) == {"again": RecordOutcome.CHANGED}

    def test_a_release_by_its_owner_meanwhile_does_no_harm(
        self, memory: MemoryStore, clock: ManualClock, catalog: ProtectionCatalog
    ) -> None:
        catalog.protect(job("a", "finished"))
        reconciler = Process(memory, lambda store: reconcile(store, clock))
        reconciler.step_to("compare_and_set")
        catalog.release("a")
        report = reconciler.finish()
        assert report is not None
        assert found(report) == {"a": RecordOutcome.CHANGED}


class TestInterruptedOperations:
    def test_a_pending_record_is_left_alone_while_it_is_young_and_then_verified(
        self, memory: MemoryStore, clock: ManualClock, catalog: ProtectionCatalog
    ) -> None:
        catalog.begin(job("a", "running"))
        clock.advance(SETTINGS.protection_pending_s - 1)
        assert found(reconcile(memory, clock)) == {"a": RecordOutcome.PENDING}
        assert catalog.get("a").state is State.PENDING
        clock.advance(1)
        assert found(reconcile(memory, clock)) == {"a": RecordOutcome.KEPT}
        assert catalog.get("a").state is State.ACCEPTED

    def test_a_pending_record_below_the_threshold_is_removed(
        self, memory: MemoryStore, clock: ManualClock, catalog: ProtectionCatalog
    ) -> None:
        catalog.begin(job("a"))
        Thresholds(memory).raise_strategy(TableMetadata().strategy, 51)
        clock.advance(SETTINGS.protection_pending_s)
        report = reconcile(memory, clock)
        assert found(report) == {"a": RecordOutcome.DROPPED}
        assert (existing(catalog), report.meta.records, report.oldest_age_s) == (set(), 0, 0)

    def test_a_pending_record_of_a_dropped_table_is_removed(
        self, memory: MemoryStore, clock: ManualClock, catalog: ProtectionCatalog
    ) -> None:
        catalog.begin(job("a"))
        Catalog(memory).drop(TABLE, force=True)
        clock.advance(SETTINGS.protection_pending_s)
        assert found(reconcile(memory, clock)) == {"a": RecordOutcome.DROPPED}

    @pytest.mark.parametrize(
        ("ended", "outcome"),
        [({}, RecordOutcome.PENDING), ({7: 9}, RecordOutcome.KEPT), ({7: -1}, RecordOutcome.DROPPED)],
        ids=["under way", "committed", "aborted"],
    )
    def test_a_record_of_a_transaction_is_accepted_or_dropped_with_it(
        self,
        memory: MemoryStore,
        clock: ManualClock,
        catalog: ProtectionCatalog,
        ended: dict[int, int],
        outcome: RecordOutcome,
    ) -> None:
        catalog.begin(replace(job("a"), transaction=7))
        assert found(reconcile(memory, clock, ended=ended)) == {"a": outcome}

    @pytest.mark.parametrize(
        ("ended", "outcome"),
        [({}, RecordOutcome.KEPT), ({7: 9}, RecordOutcome.DROPPED), ({7: -1}, RecordOutcome.KEPT)],
        ids=["under way", "committed", "aborted"],
    )
    def test_a_release_in_a_transaction_takes_effect_if_that_has_committed(
        self,
        memory: MemoryStore,
        clock: ManualClock,
        catalog: ProtectionCatalog,
        ended: dict[int, int],
        outcome: RecordOutcome,
    ) -> None:
        catalog.protect(job("a"))
        catalog.announce_release("a", 7)
        assert found(reconcile(memory, clock, ended=ended)) == {"a": outcome}

    def test_an_unfinished_move_is_completed(
        self, memory: MemoryStore, clock: ManualClock, catalog: ProtectionCatalog
    ) -> None:
        half_moved(memory, clock, catalog).crash_here()
        assert catalog.get("a").held_ts == 60
        before = clock.now_ms()
        assert found(reconcile(memory, clock)) == {"a": RecordOutcome.KEPT}
        assert clock.now_ms() >= before + A_MOVE_TAKES_S * 1000
        assert (catalog.get("a").ts, catalog.get("a").held_ts) == (60, None)

    def test_a_move_in_progress_is_not_disturbed(
        self, memory: MemoryStore, clock: ManualClock, catalog: ProtectionCatalog
    ) -> None:
        mover = half_moved(memory, clock, catalog)
        clock.while_sleeping = mover.run_to_end
        assert found(reconcile(memory, clock)) == {"a": RecordOutcome.KEPT}
        assert mover.error is None
        assert catalog.get("a").ts == 60

    def test_wrong_counts_are_corrected(
        self, memory: MemoryStore, clock: ManualClock, catalog: ProtectionCatalog
    ) -> None:
        catalog.protect(job("a"))
        wrong_counts(memory)
        assert catalog.metadata().records == 77
        report = reconcile(memory, clock)
        assert (report.recounted, report.meta.records, report.meta.spans) == (True, 1, 1)
        assert not reconcile(memory, clock).recounted


class TestFailures:
    def test_a_record_that_cannot_be_released_does_not_delay_others(
        self, memory: MemoryStore, clock: ManualClock, catalog: ProtectionCatalog
    ) -> None:
        for name in ("a", "b"):
            catalog.protect(job(name, "finished"))

        def busy(call: StoreCall) -> None:
            if call.name == "compare_and_set" and b"r:a" in str(call.arguments).encode():
                raise StoreBusy("store: locked by ada")

        report = reconcile(FaultyStore(memory, before=busy), clock)
        assert found(report) == {"a": RecordOutcome.FAILED, "b": RecordOutcome.RELEASED}
        [problem] = report.document(SETTINGS).model_dump()["problems"]
        assert problem["about"] == "record a failed"
        assert "store: locked by ada" in problem["sentence"]

    def test_a_store_that_can_not_be_reached_ends_it(
        self, memory: MemoryStore, clock: ManualClock, catalog: ProtectionCatalog
    ) -> None:
        catalog.protect(job("a", "finished"))

        def away(call: StoreCall) -> None:
            if call.name == "compare_and_set":
                raise StoreUnavailable("store: away")

        with pytest.raises(StoreUnavailable):
            reconcile(FaultyStore(memory, before=away), clock)
        assert existing(catalog) == {"a"}


class TestReporting:
    def test_the_document_names_records_owners_and_ages_but_no_rows(
        self, memory: MemoryStore, clock: ManualClock, catalog: ProtectionCatalog
    ) -> None:
        catalog.protect(replace(job("a"), meta={"says": "gone", "note": "confidential"}))
        clock.advance(2 * DAY_S)
        text = reconcile(memory, clock).document(SETTINGS).model_dump_json()
        assert json.loads(text)["findings"] == [
            {"id": "a", "owner": "job", "age_s": 2 * DAY_S, "outcome": "gone", "why": ""}
        ]
        assert b"secret-row".hex() not in text
        assert "confidential" not in text

    def test_number_and_age_of_records_are_in_the_report(
        self, memory: MemoryStore, clock: ManualClock, catalog: ProtectionCatalog
    ) -> None:
        catalog.protect(replace(job("a"), targets=(Target(TABLE, Span(b"a", b"b")), Target(TABLE, Span(b"c", b"d")))))
        clock.advance(90)
        document = reconcile(memory, clock).document(SETTINGS).model_dump(mode="json")
        assert (document["records"], document["spans"], document["oldest_age_s"]) == (1, 2, 90)


def store_with_table(clock: ManualClock) -> MemoryStore:
    from tests.conftest import memory_store

    created = memory_store(clock)
    created.create_table(TABLE, TableMetadata())
    return created


def take_again(catalog: ProtectionCatalog, record: Record) -> None:
    try:
        catalog.release(record.id)
    except NotFound:
        assert record.id not in existing(catalog)
    assert catalog.protect(record).accepted


def half_moved(store: Store, clock: ManualClock, catalog: ProtectionCatalog) -> Process[object]:
    """Stops before the step that would complete the move of record a from 50 to 60."""
    catalog.protect(job("a"))
    mover = Process[object](store, lambda its: ProtectionCatalog(its, SETTINGS, clock).move("a", 60))
    for _ in range(2):
        mover.step_to("compare_and_set")
    return mover


def wrong_counts(store: Store) -> None:
    cell = Cell(b"records", b"meta")
    old = store.read_rows(PROTECTIONS, [cell.row])[cell]
    version = json.loads(old)[0]
    changes = {cell.column: Change(old, json.dumps([version + 1, 77, 88]).encode())}
    assert store.compare_and_set(PROTECTIONS, cell.row, changes)
