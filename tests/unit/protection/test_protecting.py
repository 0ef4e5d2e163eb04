from __future__ import annotations

import itertools

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import AlreadyExists, AlreadySwept, RecordChanged, StoreBusy
from sweep_tasks.model import SweepStrategy, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.protecting import hold, parsed, protect_during, release_if_exists
from sweep_tasks.protection.records import Mode, Record, State, Target
from sweep_tasks.store import Store
from sweep_tasks.tables.catalog import Catalog
from tests.support.clock import ManualClock
from tests.support.errors import having
from tests.support.tables import set_mark

SETTINGS = Settings()


@pytest.fixture
def catalog(store: Store) -> ProtectionCatalog:
    return ProtectionCatalog(store, SETTINGS)


@pytest.fixture
def wanted(table: TableRef) -> Record:
    return Record("backup", 0, Mode.AT, (Target(table),))


def test_a_fresh_timestamp_is_kept_while_the_block_lasts(store: Store, table: TableRef) -> None:
    with protect_during(store, SETTINGS, ["app.*"], meta={"for": "a report"}) as ts:
        assert ts == TimestampService(store).greatest()
        (record,) = ProtectionCatalog(store).records()
        assert (record.ts, record.mode, record.state) == (ts, Mode.AT, State.ACCEPTED)
        assert (record.targets, record.meta_type, record.meta) == (
            (Target.parse("app.*"),),
            "manual",
            {"for": "a report"},
        )
    assert ProtectionCatalog(store).records() == []


def test_an_error_in_the_block_releases_too(store: Store, table: TableRef) -> None:
    with pytest.raises(ZeroDivisionError), protect_during(store, SETTINGS, [Target(table)]):
        raise ZeroDivisionError
    assert ProtectionCatalog(store).records() == []


def test_two_concurrent_blocks_are_independent(store: Store, table: TableRef) -> None:
    with protect_during(store, SETTINGS, ["app.items"]) as one, protect_during(store, SETTINGS, ["app.items"]) as other:
        assert one < other
        assert len(ProtectionCatalog(store).records()) == 2


def test_a_release_by_another_process_in_between_does_no_harm(store: Store, table: TableRef) -> None:
    with protect_during(store, SETTINGS, ["app.items"]):
        catalog = ProtectionCatalog(store)
        catalog.release(catalog.records()[0].id)


def test_an_expiry_is_for_scripts_that_may_be_killed(store: Store, table: TableRef, clock: ManualClock) -> None:
    with protect_during(store, SETTINGS, ["app.items"], expires_s=60, clock=clock):
        (record,) = ProtectionCatalog(store).records()
        assert (record.meta_type, record.expires_ms) == ("expiry", clock.now_ms() + 60_000)


def test_a_timestamp_that_was_swept_is_refused_and_the_earliest_is_named(store: Store, table: TableRef) -> None:
    Thresholds(store).raise_strategy(SweepStrategy.CONSERVATIVE, 70)
    with (
        pytest.raises(AlreadySwept) as refused,
        protect_during(store, SETTINGS, ["app.items"], ts=50),
    ):
        raise AssertionError("not reached")
    assert (refused.value.ts, refused.value.earliest) == (50, 70)
    assert ProtectionCatalog(store).records() == []
    with protect_during(store, SETTINGS, ["app.items"], ts=70) as ts:
        assert ts == 70


def test_a_concurrent_truncation_costs_a_second_timestamp(
    store: Store, table: TableRef, catalog: ProtectionCatalog, wanted: Record
) -> None:
    def fresh() -> int:
        taken = TimestampService(store).fresh()
        if taken == 1:
            Catalog(store).truncate(table)
        return taken

    assert hold(catalog, wanted, fresh) > store.tables([table])[table].mark > 1


def test_repeated_truncations_end_the_attempts(
    table: TableRef, store: Store, catalog: ProtectionCatalog, wanted: Record
) -> None:
    set_mark(store, table, 1_000)
    with pytest.raises(StoreBusy) as refused:
        hold(catalog, wanted, itertools.count(1).__next__)
    assert refused.value.reason == "truncated"
    assert catalog.records() == []


class TestASecondAttempt:
    def test_a_second_attempt_continues_with_the_record_of_the_first(
        self, catalog: ProtectionCatalog, wanted: Record
    ) -> None:
        numbers = itertools.count(10)
        assert [hold(catalog, wanted, numbers.__next__) for _ in range(3)] == [10, 10, 10]
        assert hold(catalog, wanted, numbers.__next__, ts=10) == 10

    def test_a_second_attempt_finishes_what_the_first_began(self, catalog: ProtectionCatalog, wanted: Record) -> None:
        catalog.begin(Record("backup", 7, Mode.AT, wanted.targets))
        assert hold(catalog, wanted, itertools.count(10).__next__) == 7
        assert catalog.get("backup").state is State.ACCEPTED

    def test_starts_from_the_beginning_if_the_first_attempt_came_too_late(
        self, store: Store, catalog: ProtectionCatalog, wanted: Record
    ) -> None:
        catalog.begin(Record("backup", 7, Mode.AT, wanted.targets))
        Thresholds(store).raise_strategy(SweepStrategy.CONSERVATIVE, 8)
        assert hold(catalog, wanted, itertools.count(10).__next__) == 11

    def test_a_second_attempt_does_not_use_the_record_of_another_run(
        self, catalog: ProtectionCatalog, wanted: Record
    ) -> None:
        hold(catalog, wanted, itertools.count(10).__next__)
        others = [
            (Record("backup", 0, Mode.AT, parsed(["app.*"])), None),
            (Record("backup", 0, Mode.AFTER, wanted.targets), None),
            (wanted, 11),
        ]
        for other, ts in others:
            with pytest.raises(AlreadyExists, check=having(field="id")) as refused:
                hold(catalog, other, itertools.count(20).__next__, ts)
            assert (refused.value.code, refused.value.reason) == ("exists", "different")

    def test_a_second_attempt_may_release_a_missing_record(self, catalog: ProtectionCatalog, wanted: Record) -> None:
        hold(catalog, wanted, itertools.count(10).__next__)
        assert [release_if_exists(catalog, "backup") for _ in range(2)] == [True, False]


def test_a_release_decided_before_it_was_renewed_fails(
    store: Store, catalog: ProtectionCatalog, wanted: Record
) -> None:
    """A run that has ended is cleared while a reconciliation is about to release its record."""
    fresh = TimestampService(store).fresh
    ts = hold(catalog, wanted, fresh)
    seen = catalog.get("backup")
    assert hold(catalog, wanted, fresh) == ts
    with pytest.raises(RecordChanged):
        catalog.release("backup", seen.version)
    assert catalog.get("backup").ts == ts
