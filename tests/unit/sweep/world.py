"""A store with tables, transactions written step by step, and everything that a sweep may change, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import MAX_TS, Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.encoding import cells_column, fine, shared_row
from sweep_tasks.queue.parking import HoldReason, ParkedEntry, Parking
from sweep_tasks.queue.progress import Progress
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store import Store
from sweep_tasks.store.schema import (
    CLOCK_SAMPLES,
    ID_TO_NAME,
    NAME_TO_ID,
    PARKED,
    PROTECTIONS,
    QUARANTINE,
    QUEUE_CELLS,
    QUEUE_PROGRESS,
    QUEUE_TIMESTAMPS,
    THRESHOLDS,
    TRANSACTIONS,
)
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.order import SweepOptions
from sweep_tasks.sweep.steps import ShardSweep
from sweep_tasks.sweep.summary import Summary
from sweep_tasks.transactions.outcomes import CommitTable
from tests.support.clock import ManualClock

CONSERVATIVE, THOROUGH, NOTHING = SweepStrategy
TABLE, THOROUGH_TABLE = TableRef.parse("app.items"), TableRef.parse("app.thorough")
A, B, C = (Cell(b"row-" + name, b"col") for name in (b"a", b"b", b"c"))

COUNTS = (
    "entries", "range_deletes", "sentinels", "aborted_deletes", "parked", "unparked", "blocked", "quarantined",
    "cleaned_partitions", "batches", "progress_before", "progress", "stopped",
)  # fmt: skip


class World:
    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        for table, strategy in ((TABLE, CONSERVATIVE), (THOROUGH_TABLE, THOROUGH)):
            store.create_table(table, TableMetadata(strategy))

    # --- making history -----------------------------------------------------------------------------------------

    def write(
        self,
        start: int,
        commit: int | None,
        cells: Iterable[Cell] = (A,),
        *,
        table: TableRef = TABLE,
        delete: bool = False,
        store: bool = True,
    ) -> None:
        """A transaction; commit None is one that never finished, -1 one that aborted and left its values."""
        TimestampService(self.store).move_past(max(start, commit or 0), any_distance=True)
        writes = {table: dict.fromkeys(cells, b"" if delete else b"v")}
        QueueWriter(self.store).enqueue(start, writes, self.store.tables([table]))
        if store:
            self.store.put(start, writes)
        if commit is not None:
            CommitTable(self.store).decide(start, commit)

    def enter(self, start: int, value: bytes, index: int = 0, strategy: SweepStrategy = CONSERVATIVE) -> None:
        """Bytes in the queue that no version of ours wrote."""
        place = Cell(shared_row(fine(start), strategy, 0), cells_column(start % 50_000, index))
        self.store.put(start, {QUEUE_CELLS: {place: value}})

    def protect(self, name: str, ts: int, mode: Mode = Mode.AT, table: TableRef = TABLE) -> bool:
        return (
            ProtectionCatalog(self.store, clock=self.clock).protect(Record(name, ts, mode, (Target(table),))).accepted
        )

    def release(self, name: str) -> None:
        ProtectionCatalog(self.store).release(name)

    def sweep(self, sweep_ts: int, strategy: SweepStrategy = CONSERVATIVE, **options: Any) -> Summary:
        return sweep(self.store, self.clock, sweep_ts, strategy, **options)

    # --- reading ------------------------------------------------------------------------------------------------

    def versions(self, cell: Cell = A, table: TableRef = TABLE) -> list[int]:
        return sorted(self.store.timestamps(table, [cell]).get(cell, []))

    def parked(self, strategy: SweepStrategy = CONSERVATIVE) -> list[ParkedEntry]:
        return list(Parking(self.store, TimestampService(self.store), strategy, 0).all())

    def progress(self, strategy: SweepStrategy = CONSERVATIVE) -> int:
        return Progress(self.store).of(strategy, 0)

    def queue_is_empty(self) -> bool:
        return not any(self.store.scan(table, MAX_TS).items for table in (QUEUE_CELLS, QUEUE_TIMESTAMPS))

    def state(self) -> dict[str, Any]:
        return state_of(self.store)


def sweep(
    store: Store, clock: ManualClock, sweep_ts: int, strategy: SweepStrategy = CONSERVATIVE, **options: Any
) -> Summary:
    return ShardSweep(store, strategy, 0, Horizon(sweep_ts, clock.now_ms()), clock, SweepOptions(**options)).run()


def sweeper(clock: ManualClock, sweep_ts: int, **options: Any) -> Callable[[Store], Summary]:
    """The sweep as a process of its own runs it."""
    return lambda store: sweep(store, clock, sweep_ts, **options)


def counts(summary: Summary) -> dict[str, Any]:
    return {name: getattr(summary, name) for name in COUNTS}


def state_of(store: Store) -> dict[str, Any]:
    """Everything that a sweep may change.

    Parked and quarantined entries are stored at fresh timestamps, which never repeat. Of the entries of a cell under
    one protection only the greatest start is significant; how many below it are parked depends on where batches ended.
    """
    cells = [table for table in store.tables() if not table.is_system] + [QUEUE_CELLS, QUEUE_TIMESTAMPS]
    registers = (TRANSACTIONS, THRESHOLDS, QUEUE_PROGRESS, NAME_TO_ID, ID_TO_NAME, PROTECTIONS, CLOCK_SAMPLES)
    found: dict[str, Any] = {str(table): store.scan_versions(table, limit=10_000).items for table in cells}
    for table in registers:
        found[str(table)] = store.scan_registers(table, 10_000).items
    quarantined = store.scan(QUARANTINE, MAX_TS, limit=10_000).items
    found[str(QUARANTINE)] = [(cell, version.value) for cell, version in quarantined]
    found[str(PARKED)] = {
        (strategy, entry)
        for strategy in (CONSERVATIVE, THOROUGH)
        for entry in _greatest(Parking(store, TimestampService(store), strategy, 0).all())
    }
    return found


def _greatest(entries: Iterable[ParkedEntry]) -> Iterable[ParkedEntry]:
    by_cell: dict[tuple[Any, ...], ParkedEntry] = {}
    for entry in entries:
        alone = entry.start if entry.hold.why is not HoldReason.PROTECTED else None
        by_cell[entry.hold, entry.table_id, entry.cell, alone] = entry  # they come in the order of their starts
    return by_cell.values()


def parked_entries(world: World) -> list[ParkedEntry]:
    return list(Parking(world.store, TimestampService(world.store), CONSERVATIVE, 0).all())


def outcome(world: World, start: int) -> int | None:
    return CommitTable(world.store).outcomes([start]).get(start)
