"""The operations of a scenario: one method each, and the table of their fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from sweep_tasks.clock import Uptime
from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory, ClockSample
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.diagnosis.explain import explain_cell
from sweep_tasks.encoding import read_var_long, read_var_signed_long
from sweep_tasks.errors import AlreadyExists, BadValue, NotFound, SnapshotSwept, UnknownTable
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.model import DELETE_MARKER, MAX_TS, SENTINEL_TS, Cell, SweepStrategy, TableMetadata, TableRef, Version
from sweep_tasks.protection.catalog import ProtectionCatalog, ProtectionVerdict
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.encoding import read_cells_row
from sweep_tasks.queue.progress import Progress
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.scenario import fields as f
from sweep_tasks.scenario.engines import LocalEngine, Sweep, SweepEngine
from sweep_tasks.scenario.fields import Field, ScenarioWrite
from sweep_tasks.scenario.outcomes import (
    AcceptedRecord,
    CommitTimestamps,
    CurrentTime,
    Finished,
    Ok,
    Outcome,
    QueueRows,
    ReadValue,
    RefusedRecord,
    ScanTotals,
    ShardCount,
    StoredVersions,
    SweepTotals,
    ThresholdOutcome,
)
from sweep_tasks.store.contract import Store, every
from sweep_tasks.store.schema import PARKED, QUARANTINE, QUEUE_CELLS, QUEUE_TIMESTAMPS, TRANSACTIONS
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.order import SweepOptions
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.tables.pauses import Pauses
from sweep_tasks.transactions.manager import TransactionManager
from sweep_tasks.transactions.outcomes import ABORTED, CommitTable

# ---------------------------------------------------------------------------------------------------------------------
# The clock of a scenario. Only operations move it.
# ---------------------------------------------------------------------------------------------------------------------


class ScenarioClock:
    """Starts at the time of the last clock sample, or at 0 if there is none."""

    def __init__(self, clock_history: ClockHistory) -> None:
        last = clock_history.last()
        self._now_ms = last.wall_ms if last else 0

    def now_ms(self) -> int:
        return self._now_ms

    def uptime(self) -> Uptime:
        return Uptime("scenario", "scenario", self._now_ms)

    def advance(self, ms: int) -> None:
        self._now_ms += ms

    def advance_to(self, wall_ms: int) -> None:
        """Move forward to the time of a clock sample, never back."""
        self._now_ms = max(self._now_ms, wall_ms)

    def sleep(self, seconds: float) -> None:
        self.advance(max(1, round(seconds * 1000)))


# ---------------------------------------------------------------------------------------------------------------------
# The operations. Each method is named after its operation, and gets fields that are already checked.
# ---------------------------------------------------------------------------------------------------------------------

_PAGE = 10_000
_LEGACY_RANGES = 4


class Unfinished(NamedTuple):
    """A transaction that has neither committed nor aborted. It may finish later."""

    writes: Mapping[TableRef, Mapping[Cell, bytes]]
    stored: bool
    enqueued_for: Mapping[TableRef, SweepStrategy]
    """The strategy of each table when the writes were enqueued; empty if they were not."""


class Operations:
    """A running scenario: the store, its clock, and its unfinished transactions."""

    def __init__(self, store: Store, settings: Settings, engine: SweepEngine | None = None) -> None:
        self._store = store
        self._settings = settings
        self._engine = engine or LocalEngine()
        self._catalog = Catalog(store, patience_s=settings.emptying_wait_s)
        self._timestamps = TimestampService(store)
        self._thresholds = Thresholds(store)
        self._commits = CommitTable(store)
        self._queue = QueueWriter(store)
        self._clock_history = ClockHistory(store)
        self._protections = ProtectionCatalog(store, settings)
        self._progress = Progress(store)
        self._clock = ScenarioClock(self._clock_history)
        self._manager = TransactionManager(store, settings, clock=self._clock, renew_leases=False)
        self._unfinished: dict[int, Unfinished] = {}

    # --- tables and shards --------------------------------------------------------------------------------------

    def table(self, table: TableRef, strategy: SweepStrategy, retention_s: int | None) -> Outcome:
        if table in self._store.tables([table]):
            self._catalog.change(table, strategy, retention_s)
        else:
            self._catalog.create(table, TableMetadata(strategy, retention_s=retention_s))
        return Ok()

    def shards(self, n: int) -> Outcome:
        raised = self._progress.raise_shards(n)
        self._queue = QueueWriter(self._store)  # the next write uses the new number
        return ShardCount(raised)

    def truncate(self, table: TableRef) -> Outcome:
        self._catalog.truncate(table)
        return Ok()

    def drop(self, table: TableRef) -> Outcome:
        self._catalog.drop(table)
        return Ok()

    # --- transactions -------------------------------------------------------------------------------------------

    def write(self, start: int, commit: int | None, enqueue: bool, store: bool, writes: list[ScenarioWrite]) -> Outcome:
        _check_commit(start, commit, also_aborted=True)
        if start in self._unfinished or self._commits.outcomes([start]):
            raise AlreadyExists(
                f"start: another transaction already started at {start}; give each transaction its own start"
            )
        by_table: dict[TableRef, dict[Cell, bytes]] = {}
        for table, cell, value in writes:
            by_table.setdefault(table, {})[cell] = DELETE_MARKER if value is None else value
        tables = {table: found.metadata for table, found in self._thresholds.of_tables(by_table.keys()).items()}
        if enqueue and commit is not None and commit != ABORTED:
            self._check_not_passed(start, by_table)
        self._issue(max(start, commit or 0))
        late = self._passed(start, by_table) is not None
        if enqueue:
            self._queue.enqueue(start, by_table, tables, late)
        if store:
            self._put(start, by_table, late)
        if commit is None:
            strategies = {table: found.strategy for table, found in tables.items()} if enqueue else {}
            self._unfinished[start] = Unfinished(by_table, store, strategies)
        else:
            self._commits.decide(start, commit)
        return Ok()

    def finish(self, start: int, commit: int, store: bool) -> Outcome:
        unfinished = self._unfinished.get(start)
        if unfinished is None:
            raise NotFound(f"start: no transaction that started at {start} is unfinished in this scenario")
        _check_commit(start, commit, also_aborted=False)
        self._issue(commit)
        if store or not unfinished.stored:
            self._put(start, unfinished.writes, self._passed(start, unfinished.writes) is not None)
            self._unfinished[start] = unfinished._replace(stored=True)
        if not self._may_commit(start, unfinished.enqueued_for):
            self._commits.abort([start])
        committed = self._commits.decide(start, commit) == commit
        if committed:
            del self._unfinished[start]
        return Finished(committed)

    def _issue(self, ts: int) -> None:
        """Move the timestamp service past a timestamp: every timestamp in a scenario counts as issued."""
        self._timestamps.move_past(ts, any_distance=True)

    def _put(self, start: int, writes: Mapping[TableRef, Mapping[Cell, bytes]], late: bool) -> None:
        """Write values. A late write is stored so that existing tombstones do not hide it: scenarios show what a sweep
        does with it."""
        (self._store.put_late if late else self._store.put)(start, writes)

    def _may_commit(self, start: int, used: Mapping[TableRef, SweepStrategy]) -> bool:
        """Return True if the thresholds and strategies of its tables still allow a commit, as transactions check."""
        now = self._thresholds.of_tables(used.keys())
        return not self._passed(start, used) and all(now[table].metadata.strategy is used[table] for table in used)

    def _passed(self, start: int, writes: Mapping[TableRef, object]) -> TableRef | None:
        """Return a table whose published threshold is above this start, if there is one."""
        found = self._thresholds.of_tables(writes.keys())
        return next((table for table, threshold in found.items() if start < threshold.for_writers), None)

    def _check_not_passed(self, start: int, writes: Mapping[TableRef, object]) -> None:
        table = self._passed(start, writes)
        if table is not None:
            raise SnapshotSwept(table, start, self._thresholds.of_tables([table])[table].for_writers)

    def read(self, table: TableRef, row: bytes, col: bytes, at: int) -> Outcome:
        self._check_exists(table)
        self._issue(at)
        cell = Cell(row, col)
        found: Version | None = self._manager.read_at(at).versions(table, [cell]).get(cell)
        if found is None or found.is_delete:
            return ReadValue()
        return ReadValue(found.value.hex(), found.ts)

    # --- time ---------------------------------------------------------------------------------------------------

    def punch(self, wall_ms: int, ts: int) -> Outcome:
        self._clock_history.record(ClockSample(wall_ms, ts))
        self._issue(ts)
        self._clock.advance_to(wall_ms)
        return Ok()

    def advance(self, ms: int) -> Outcome:
        self._clock.advance(ms)
        return CurrentTime(self._clock.now_ms())

    # --- protections --------------------------------------------------------------------------------------------

    def protect(self, id: str, ts: int, mode: Mode, targets: tuple[Target, ...]) -> Outcome:  # noqa: A002
        verdict = self._protections.protect(Record(id, ts, mode, targets))
        self._issue(ts)
        return _verdict(verdict)

    def move(self, id: str, ts: int) -> Outcome:  # noqa: A002
        verdict = self._protections.move(id, ts)
        self._issue(ts)
        return _verdict(verdict)

    def release(self, id: str) -> Outcome:  # noqa: A002
        self._protections.release(id)
        return Ok()

    # --- sweeping -----------------------------------------------------------------------------------------------

    def sweep(self, strategy: SweepStrategy, sweep_ts: int, shard: int | None, batch: int | None) -> Outcome:
        number = self._progress.shards()
        if shard is not None and shard >= number:
            raise BadValue("shard", f"{shard} does not exist; the store has {number} shards, numbered from 0")
        self._issue(sweep_ts)
        options = SweepOptions(grace_s=self._settings.grace_s, batch=batch or self._settings.sweep_batch_entries)
        shards = [shard] if shard is not None else range(number)
        swept = self._engine.sweep(
            self._store, Sweep(strategy, shards, Horizon(sweep_ts, self._clock.now_ms()), options), self._clock
        )
        return SweepTotals(
            progress={str(summary.shard): summary.progress for summary in swept.summaries},
            range_deletes=swept.range_deletes,
            sentinels=swept.sentinels,
            entries=sum(summary.entries for summary in swept.summaries),
            aborted_deletes=sum(summary.aborted_deletes for summary in swept.summaries),
            parked=sum(summary.parked for summary in swept.summaries),
            unparked=sum(summary.unparked for summary in swept.summaries),
            blocked=sum(summary.blocked for summary in swept.summaries),
        )

    def legacy_sweep(self, table: TableRef, sweep_ts: int) -> Outcome:
        self._check_exists(table)
        self._issue(sweep_ts)
        horizon = Horizon(sweep_ts, self._clock.now_ms())
        order = LegacyOrder(table, ranges=_LEGACY_RANGES)
        unlimited = self._settings.model_copy(update={"legacy_versions_per_s": 0})  # only `advance` moves the clock
        swept = self._engine.legacy_sweep(self._store, unlimited, order, horizon, self._clock)
        return ScanTotals(swept.counts.cells, swept.counts.deleted)

    def pause(self, table: TableRef | None) -> Outcome:
        Pauses(self._store, self._clock).pause(table, "scenario", "asked for")
        return Ok()

    def resume(self, table: TableRef | None) -> Outcome:
        Pauses(self._store).resume(table)
        return Ok()

    # --- reading ------------------------------------------------------------------------------------------------

    def versions(self, table: TableRef) -> Outcome:
        found = every(lambda after: self._store.scan_versions(table, limit=_PAGE, after=after))
        kinds = {True: "delete", False: "value"}
        return StoredVersions(
            [
                [cell.row.hex(), cell.column.hex(), ts, "sentinel" if ts == SENTINEL_TS else kinds[empty]]
                for cell, ts, empty in sorted(found)
            ]
        )

    def commits(self) -> Outcome:
        found = every(lambda after: self._store.scan_registers(TRANSACTIONS, _PAGE, after))
        decided = {read_var_long(cell.row)[0]: read_var_signed_long(value)[0] for cell, value in found}
        return CommitTimestamps({str(start): decided[start] for start in sorted(decided)})

    def threshold(self, table: TableRef) -> Outcome:
        return ThresholdOutcome(self._catalog.show(table).for_readers)

    def queue(self) -> Outcome:
        rows = {cell.row for cell in self._cells(QUEUE_CELLS)}
        dedicated = sum(1 for row in rows if read_cells_row(row)[1].dedicated)
        return QueueRows(
            cells=len(rows) - dedicated,
            timestamps=sum(1 for _ in self._cells(QUEUE_TIMESTAMPS)),
            dedicated=dedicated,
            parked=sum(1 for _ in self._cells(PARKED)),
            quarantined=sum(1 for _ in self._cells(QUARANTINE)),
        )

    def explain(self, table: TableRef, row: bytes, col: bytes) -> Outcome:
        """Without places in the queue: a bug report is to read the same wherever else something waits."""
        found = explain_cell(self._store, self._settings, self._clock, table, Cell(row, col), bounded=False).document()
        for each in found["queue"]:
            del each["position"]
        for each in found["versions"]:
            del each["where"]
        return found

    def _check_exists(self, table: TableRef) -> None:
        if table not in self._store.tables([table]):
            raise UnknownTable(table)

    def _cells(self, table: TableRef) -> Iterator[Cell]:
        found = every(lambda after: self._store.scan(table, MAX_TS, limit=_PAGE, after=after))
        return (cell for cell, _ in found)


def _check_commit(start: int, commit: int | None, also_aborted: bool) -> None:
    if commit is None or (also_aborted and commit == ABORTED):
        return
    if commit <= start:
        raise BadValue("commit", f"{commit} must be greater than the start, {start}")


def _verdict(verdict: ProtectionVerdict) -> Outcome:
    return AcceptedRecord() if verdict.accepted else RefusedRecord(verdict.earliest)


LANGUAGE: dict[str, tuple[Callable[..., Outcome], dict[str, Field]]] = {
    "table": (
        Operations.table,
        {
            "table": Field(f.table),
            "strategy": Field(f.one_of(SweepStrategy)),
            "retention_s": Field(f.seconds, None),
        },
    ),
    "shards": (Operations.shards, {"n": Field(f.shards)}),
    "write": (
        Operations.write,
        {
            "start": Field(f.timestamp),
            "commit": Field(f.commit),
            "enqueue": Field(f.flag, True),
            "store": Field(f.flag, True),
            "writes": Field(f.writes),
        },
    ),
    "finish": (
        Operations.finish,
        {"start": Field(f.timestamp), "commit": Field(f.timestamp), "store": Field(f.flag, False)},
    ),
    "punch": (Operations.punch, {"wall_ms": Field(f.milliseconds), "ts": Field(f.timestamp)}),
    "advance": (Operations.advance, {"ms": Field(f.milliseconds)}),
    "protect": (
        Operations.protect,
        {
            "id": Field(f.text),
            "ts": Field(f.timestamp),
            "mode": Field(f.one_of(Mode), Mode.AT),
            "targets": Field(f.targets),
        },
    ),
    "move": (Operations.move, {"id": Field(f.text), "ts": Field(f.timestamp)}),
    "release": (Operations.release, {"id": Field(f.text)}),
    "sweep": (
        Operations.sweep,
        {
            "strategy": Field(f.queued_strategy),
            "sweep_ts": Field(f.timestamp),
            "shard": Field(f.shard, None),
            "batch": Field(f.positive, None),
        },
    ),
    "pause": (Operations.pause, {"table": Field(f.table, None)}),
    "resume": (Operations.resume, {"table": Field(f.table, None)}),
    "legacy_sweep": (Operations.legacy_sweep, {"table": Field(f.table), "sweep_ts": Field(f.timestamp)}),
    "truncate": (Operations.truncate, {"table": Field(f.table)}),
    "drop": (Operations.drop, {"table": Field(f.table)}),
    "read": (
        Operations.read,
        {"table": Field(f.table), "row": Field(f.cell_name), "col": Field(f.cell_name), "at": Field(f.timestamp)},
    ),
    "versions": (Operations.versions, {"table": Field(f.table)}),
    "commits": (Operations.commits, {}),
    "threshold": (Operations.threshold, {"table": Field(f.table)}),
    "queue": (Operations.queue, {}),
    "explain": (
        Operations.explain,
        {"table": Field(f.table), "row": Field(f.cell_name), "col": Field(f.cell_name)},
    ),
}
