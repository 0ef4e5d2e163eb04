"""What happens to a run when its table was replaced, has another strategy, or is not old enough."""

from __future__ import annotations

import json

import pytest

from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import (
    AlreadyExists,
    LegacySweepOutdated,
    NotYet,
)
from sweep_tasks.legacy.candidates import candidates
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.progress import Run, Runs, RunState
from sweep_tasks.legacy.run import LegacySweep
from sweep_tasks.model import SweepStrategy, TableMetadata
from sweep_tasks.store import Store
from sweep_tasks.store.contract import Change
from sweep_tasks.store.faults import FaultyStore, StoreCall, on
from sweep_tasks.store.schema import LEGACY_SWEEPS, THRESHOLDS
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.tables.activity import Activity, WriteCounts
from sweep_tasks.tables.catalog import Catalog
from tests.support.clock import ManualClock
from tests.unit.legacy.scan_fixture import (
    CONSERVATIVE,
    ROWS,
    SETTINGS,
    TABLE,
    THOROUGH,
    S,
    begin,
    cell,
    filled,
    sweep,
    versions,
    write,
)


class TestANameThatIsUsedAgain:
    """A table is dropped and another one is created with its name: what is known of scans of the first does not
    apply."""

    def again(self, store: Store, strategy: SweepStrategy = THOROUGH) -> None:
        Catalog(store).drop(TABLE)
        Catalog(store).create(TABLE, TableMetadata(strategy))
        for start in (200, 201, 202):
            write(store, start, map(cell, range(ROWS)), commit=start + 10)
        TimestampService(store).move_past(300)

    def test_it_was_never_scanned(self, store: Store, clock: ManualClock) -> None:
        filled(store)
        sweep(store, clock)
        Activity(store).add(CONSERVATIVE, 0, {TABLE: WriteCounts(5, 5)})
        self.again(store)
        (found,) = candidates(store, SETTINGS, clock)
        assert (found.last, found.last_scheduled_ms, found.written) == (None, 0, WriteCounts(0, 0))

    def test_a_run_that_was_paused_is_not_resumed(self, store: Store, clock: ManualClock) -> None:
        filled(store)
        sweep(store, clock, max_cells=5)
        self.again(store)
        assert Runs(store).of(TABLE) is None
        legacy, order = begin(store, clock)
        assert legacy.sweep(order, Horizon(300, clock.now_ms())).counts.cells == ROWS
        assert versions(store) == {cell(row): [202] for row in range(ROWS)}

    def test_the_worker_of_the_first_table_does_not_resume_it(self, store: Store, clock: ManualClock) -> None:
        filled(store)
        legacy, order = begin(store, clock)
        run = legacy.start(order, Horizon(S, clock.now_ms()))
        self.again(store, CONSERVATIVE)
        assert legacy.work(run, order).stopped == "taken over"
        assert Runs(store).of(TABLE) is None

    def test_it_is_not_resumed_under_another_strategy(self, store: Store, clock: ManualClock) -> None:
        filled(store)
        legacy, order = begin(store, clock)
        run = legacy.start(order, Horizon(S, clock.now_ms()))
        self.again(store, THOROUGH)
        with pytest.raises(LegacySweepOutdated):
            legacy.work(run, order)
        assert Runs(store).of(TABLE) is None

    def test_a_table_that_exists_keeps_what_is_known(self, store: Store, clock: ManualClock) -> None:
        filled(store)
        sweep(store, clock)
        with pytest.raises(AlreadyExists):
            Catalog(store).create(TABLE, TableMetadata())
        assert Runs(store).of(TABLE) is not None


class TestATableWithAnotherStrategy:
    """The sweep timestamp of a run was found for the strategy that its table had when it began."""

    def paused(self, store: Store, clock: ManualClock, strategy: SweepStrategy) -> tuple[LegacySweep, Run]:
        """A run from before the change, up to the horizon of its time."""
        filled(store, strategy)
        clock.advance(1)
        legacy, order = begin(store, clock, max_cells=5)
        run = legacy.start(order)
        legacy.work(run, order)
        return legacy, run

    def test_its_run_is_not_resumed(self, store: Store, clock: ManualClock) -> None:
        """The threshold of a thorough table is the present, and would cut every conservative one short."""
        legacy, run = self.paused(store, clock, THOROUGH)
        Catalog(store).set_strategy(TABLE, CONSERVATIVE)
        before = Runs(store).of(TABLE)
        with pytest.raises(LegacySweepOutdated) as refused:
            legacy.resume(TABLE)
        assert (refused.value.code, refused.value.run, refused.value.table) == ("changed", run.id, TABLE)
        assert Runs(store).of(TABLE) == before
        assert Thresholds(store).of_strategy(CONSERVATIVE) == 0

    def test_a_run_with_an_unknown_strategy_is_not_resumed(self, store: Store, clock: ManualClock) -> None:
        legacy, run = self.paused(store, clock, THOROUGH)
        Runs(store).change_own(run, strategy=None)
        with pytest.raises(LegacySweepOutdated):
            legacy.resume(TABLE)

    def test_a_run_above_the_horizon_of_a_longer_retention_is_not_resumed(
        self, store: Store, clock: ManualClock
    ) -> None:
        _, run = self.paused(store, clock, CONSERVATIVE)
        longer = LegacySweep(store, SETTINGS.model_copy(update={"retention_s": 60}), clock)
        with pytest.raises(LegacySweepOutdated):
            longer.resume(TABLE)
        clock.advance(61)
        assert longer.resume(TABLE).id == run.id, "by now it is old enough"

    @pytest.mark.parametrize("moment", ["before it publishes", "after it has published"])
    def test_one_that_changes_before_the_work_begins_is_left_alone(
        self, store: Store, clock: ManualClock, moment: str
    ) -> None:
        filled(store, THOROUGH)
        clock.advance(1)

        def change(call: StoreCall) -> None:
            if call.name == "update" and call.arguments[0] == THRESHOLDS:
                Catalog(store).set_strategy(TABLE, CONSERVATIVE)

        fault = {"before" if moment == "before it publishes" else "after": change}
        legacy, order = begin(FaultyStore(store, **fault), clock)
        run = legacy.start(order)
        before = versions(store)
        with pytest.raises(LegacySweepOutdated):
            legacy.work(run, order)
        assert versions(store) == before
        thresholds = {strategy: Thresholds(store).of_strategy(strategy) for strategy in (CONSERVATIVE, THOROUGH)}
        assert thresholds == {CONSERVATIVE: 0, THOROUGH: run.horizon.sweep_ts}
        left = Runs(store).of(TABLE)
        assert left
        assert (left.state, left.why) == (RunState.PAUSED, "failed"), "no process has to wait until it was silent"

    def test_the_horizon_of_a_new_run_is_that_of_the_strategy_it_remembers(
        self, store: Store, clock: ManualClock
    ) -> None:
        filled(store, THOROUGH)
        settings = SETTINGS.model_copy(update={"retention_s": 3_600})

        def change(_: StoreCall) -> None:
            Catalog(store).set_strategy(TABLE, CONSERVATIVE)

        changing = FaultyStore(store, after=on("tables", 1, change))
        run = LegacySweep(changing, settings, clock).start(LegacyOrder(TABLE))
        assert (run.strategy, run.horizon.sweep_ts > S) == (THOROUGH, True)
        with pytest.raises(LegacySweepOutdated):
            LegacySweep(store, settings, clock).work(run, LegacyOrder(TABLE))
        assert Thresholds(store).of_strategy(CONSERVATIVE) == 0


class TestAStoreWithFewClockSamples:
    """No version of it is known to be older than the retention."""

    SETTINGS = SETTINGS.model_copy(update={"retention_s": 3_600})

    @pytest.mark.parametrize("dry_run", [False, True])
    def test_a_scan_is_refused_with_the_time_to_retry(self, store: Store, clock: ManualClock, dry_run: bool) -> None:
        filled(store)
        legacy, order = LegacySweep(store, self.SETTINGS, clock), LegacyOrder(TABLE, dry_run=dry_run)
        with pytest.raises(NotYet) as refused:
            legacy.sweep(order)
        assert refused.value.reason == "too_recent"
        for named in (str(TABLE), "3600 s", "retention_s"):
            assert named in str(refused.value)
        assert Runs(store).of(TABLE) is None
        clock.advance(3_601)
        assert legacy.sweep(order).counts.deleted == 2 * ROWS

    def test_a_forced_one_with_nothing_to_sweep_does_not_count(self, store: Store, clock: ManualClock) -> None:
        filled(store)
        Activity(store).add(CONSERVATIVE, 0, {TABLE: WriteCounts(5, 5)})
        summary = LegacySweep(store, self.SETTINGS, clock).sweep(LegacyOrder(TABLE), Horizon(0, clock.now_ms()))
        assert (summary.counts.cells, summary.counts.deleted) == (ROWS, 0)
        run = Runs(store).of(TABLE)
        assert run
        assert (run.state, run.last_whole) == (RunState.FINISHED, None)
        assert Activity(store).since_last_scan([TABLE])[TABLE] == WriteCounts(5, 5)


def test_what_is_known_of_a_run_of_an_earlier_version_still_counts(store: Store, clock: ManualClock) -> None:
    filled(store)
    sweep(store, clock)
    sweep(store, clock)
    (found,) = [(c, v) for c, v in store.scan_registers(LEGACY_SWEEPS).items if c.row.startswith(b"run:")]
    plain = json.loads(found[1])
    for name in ("strategy", "went_up_to", "lacked"):
        del plain[name]
    for name in ("went_up_to", "lacked"):
        del plain["last"][name]
    older = json.dumps(plain).encode()
    store.compare_and_set(LEGACY_SWEEPS, found[0].row, {found[0].column: Change(found[1], older)})
    run = Runs(store).of(TABLE)
    assert run
    assert run.last
    assert run.last_whole
    assert (run.last.table_sweep_ts, run.last_whole.table_sweep_ts) == (S, S)
