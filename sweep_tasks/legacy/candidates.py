"""What is known of every table, for deciding which is scanned next: a few bulk reads, whatever the number of tables."""

from __future__ import annotations

from sweep_tasks.catalog import Catalog
from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.legacy.priority import Candidate, LastScan, Policy
from sweep_tasks.legacy.progress import Run, Runs, RunState, Standing
from sweep_tasks.legacy.settling import queue_passed
from sweep_tasks.legacy.taking_up import is_at_work
from sweep_tasks.model import ScanReason, SweepStrategy, TableMetadata
from sweep_tasks.protection.targets import Target
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.activity import Activity
from sweep_tasks.sweep.horizon import horizon_now


def policy(settings: Settings) -> Policy:
    return Policy(
        [Target.parse(each) for each in settings.legacy_first],
        [Target.parse(each) for each in settings.legacy_never],
        settings.legacy_pause_s * 1000,
        settings.legacy_turns,
    )


def candidates(store: Store, settings: Settings, clock: Clock) -> list[Candidate]:
    """All tables that are swept at all. A scan that is due and has no timestamp yet, since whoever changed the strategy
    died over it, is given one."""
    tables = {
        table: Catalog(store).date_scan(table) if metadata.scan_due else metadata
        for table, metadata in Catalog(store).list().items()
        if metadata.strategy is not SweepStrategy.NOTHING
    }
    runs = Runs(store).of_all(tables)
    written = Activity(store).since_last_scan(tables)
    reach = {strategy: horizon_now(strategy, store, settings, clock).sweep_ts for strategy in QUEUES}
    passed = queue_passed(store)
    found = []
    for table, metadata in tables.items():
        run = runs.get(table)
        found.append(
            Candidate(
                table,
                metadata.strategy,
                last_scan(run),
                max(run.started_ms, run.ended_ms or 0) if run else 0,
                written[table],
                metadata.scan_due,
                _reach(metadata, reach[metadata.strategy], passed),
                _is_running(store, run, settings, clock),
            )
        )
    return found


def last_scan(run: Run | None) -> LastScan | None:
    """Of the whole table: the run that stands, or one before it."""
    if run and run.state is RunState.FINISHED and run.is_whole:
        ended_ms = run.ended_ms or run.started_ms
        return LastScan(run.horizon.sweep_ts, ended_ms, run.counts.versions, run.counts.deleted)
    before = run.last if run else None
    return LastScan(before.sweep_ts, before.ended_ms, before.counts.versions, before.counts.deleted) if before else None


def _reach(metadata: TableMetadata, reach: int, passed: int) -> int:
    markers = metadata.scan_due is not None and metadata.scan_due.why is ScanReason.MARKERS
    return min(reach, passed) if markers else reach


def _is_running(store: Store, run: Run | None, settings: Settings, clock: Clock) -> bool:
    if run is None or run.state is not RunState.RUNNING:
        return False
    return is_at_work(Standing(run, Runs(store).ranges(run)), clock.now_ms(), settings.legacy_silent_s * 1000)
