"""The facts about every table that decide which is scanned next: a few bulk reads, whatever the number of tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.errors import UnknownTable
from sweep_tasks.legacy.priority import Candidate, FinishedScan, Policy
from sweep_tasks.legacy.progress import Run, RunProgress, Runs, RunState
from sweep_tasks.legacy.resumption import is_at_work
from sweep_tasks.legacy.strategy_changes import lacking, queue_passed
from sweep_tasks.model import SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.records import Target
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import Horizon, horizon_now, in_table, old_enough
from sweep_tasks.tables.activity import Activity
from sweep_tasks.tables.catalog import Catalog


class Unscheduled(StrEnum):
    """Why a table is not scanned on a schedule: the setting that decides it, or a cancelled run."""

    SCHEDULE = "legacy_schedule"
    BUDGET = "legacy_budget_s"
    NEVER = "legacy_never"
    CANCELLED = "cancelled"

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Unscheduled.SCHEDULE: "the DAG legacy_sweep has no schedule (setting legacy_schedule)",
    Unscheduled.BUDGET: "the DAG legacy_sweep schedules no scans (setting legacy_budget_s)",
    Unscheduled.NEVER: "the DAG legacy_sweep skips it (setting legacy_never)",
    Unscheduled.CANCELLED: "its run was cancelled, and the DAG legacy_sweep has skipped it since",
}


def policy(settings: Settings) -> Policy:
    return Policy(
        [Target.parse(each) for each in settings.legacy_first],
        [Target.parse(each) for each in settings.legacy_never],
        settings.legacy_pause_s * 1000,
        settings.legacy_tables_per_slot,
    )


def candidates(
    store: Store, settings: Settings, clock: Clock, only: Collection[TableRef] | None = None
) -> list[Candidate]:
    """Return the tables that are swept at all, or those of them in `only`."""
    tables = dict(_swept_tables(store, only))
    runs, last_scheduled = Runs(store).of_all(tables), Runs(store).last_scheduled(tables)
    written = Activity(store).since_last_scan(tables)
    timestamps = _sweep_timestamps(store, settings, clock, tables.values())
    passed = queue_passed(store)
    found = []
    for table, metadata in tables.items():
        run = runs.get(table)
        sweep_ts, stale = timestamps[metadata.strategy, metadata.retention_s]
        found.append(
            Candidate(
                table,
                metadata.strategy,
                last_scan(run),
                max(last_scheduled.get(table, 0), run.started_ms if run else 0, (run.ended_ms or 0) if run else 0),
                written[table],
                metadata.scan_due,
                sweep_ts,
                is_running(store, run, settings, clock),
                is_cancelled(run),
                lacking(store, table, metadata, sweep_ts, passed) is not None,
                stale,
            )
        )
    return found


def _sweep_timestamps(
    store: Store, settings: Settings, clock: Clock, tables: Iterable[TableMetadata]
) -> dict[tuple[SweepStrategy, int | None], tuple[int, int]]:
    """Return by strategy and retention the timestamp that such tables may be swept to now, and the one they could have
    been swept to one rest period ago. Transactions that were open then are not known any more."""
    clock_history = ClockHistory(store)
    now = {strategy: horizon_now(strategy, store, settings, clock, dry_run=True) for strategy in QUEUES}
    before: dict[SweepStrategy, Horizon] = {}
    for strategy, horizon in now.items():
        wall_ms = horizon.wall_ms - settings.legacy_pause_s * 1000
        before[strategy] = Horizon(old_enough(strategy, wall_ms, settings.retention_s, clock_history), wall_ms)
    kinds = {(each.strategy, each.retention_s) for each in tables}
    return {
        (strategy, keep_s): (
            in_table(now[strategy], keep_s, clock_history),
            in_table(before[strategy], keep_s, clock_history),
        )
        for strategy, keep_s in kinds
    }


def why_unscheduled(table: TableRef, settings: Settings, run: Run | None) -> Unscheduled | None:
    """Return why a table is scanned only on request, or None if it is scheduled. `run` is its run in the store."""
    if settings.legacy_schedule is None:
        return Unscheduled.SCHEDULE
    if not settings.legacy_budget_s:
        return Unscheduled.BUDGET
    if any(target.covers(table) for target in policy(settings).never):
        return Unscheduled.NEVER
    if is_cancelled(run):
        return Unscheduled.CANCELLED
    return None


def _swept_tables(store: Store, only: Collection[TableRef] | None) -> Iterator[tuple[TableRef, TableMetadata]]:
    """Yield the tables with a strategy. A due scan without a timestamp, left by a process that died while it changed
    the strategy, gets one. That also shows tables that were changed or dropped since they were listed."""
    for table, listed in Catalog(store).list().items():
        if only is not None and table not in only:
            continue
        try:
            metadata = Catalog(store).date_scan(table) if listed.scan_due else listed
        except UnknownTable:
            continue
        if metadata.strategy is not SweepStrategy.NOTHING:
            yield table, metadata


def last_scan(run: Run | None) -> FinishedScan | None:
    """Return the last scan of the whole table."""
    last = run.last_whole if run else None
    if last is None:
        return None
    return FinishedScan(
        last.table_sweep_ts, last.ended_ms, last.counts.versions, last.counts.deleted, last.lacked is not None
    )


def is_cancelled(run: Run | None) -> bool:
    return run is not None and run.state is RunState.CANCELLED


def is_running(store: Store, run: Run | None, settings: Settings, clock: Clock) -> bool:
    if run is None or run.state is not RunState.RUNNING:
        return False
    return is_at_work(RunProgress(run, Runs(store).ranges(run)), clock.now_ms(), settings.legacy_silent_s * 1000)
