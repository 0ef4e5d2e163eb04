"""A writer that still uses the old strategy commits while a table changes to another one, each in its own process.

The checks are the same for every store that several processes can share.
"""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import SnapshotSwept
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.run import LegacySweep
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.queue.encoding import read_cells_row
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.store import Store
from sweep_tasks.store.contract import every
from sweep_tasks.store.schema import QUEUE_CELLS
from sweep_tasks.sweep.run import Sweeper
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions import TransactionManager
from tests.support.late_writer import late_writer

TABLE = TableRef.parse("app.changing")
CELL = Cell(b"r", b"c")


def check_a_writer_of_the_old_strategy(
    store: Store, settings: Settings, old: SweepStrategy, new: SweepStrategy, value: str
) -> None:
    """Check that readers see what they must: between the change and the commit, after it, after each sweep and after
    the scan that the change requires. The entry in the queue of the old strategy is swept, and in the end nothing is
    left that does not belong to the table. A writer that used the strategy nothing has no entry: its write is left to
    the scan."""
    catalog = Catalog(store)
    catalog.create(TABLE, TableMetadata(old))
    manager = TransactionManager(store, settings)
    with manager.transaction() as tx:
        tx.put(TABLE, *CELL, b"first")
    with manager, late_writer(settings.store, str(TABLE), "r", "c", value) as writer:
        due = catalog.set_strategy(TABLE, new).after.scan_due
        assert due is None or (due.since is not None and due.since > writer.start)
        _sweep(store, settings)
        assert manager.read_at(writer.start).get(TABLE, *CELL) == b"first", (
            "its lease keeps sweeps below what it replaces"
        )
        commit = writer.commit()
    queued = old is not SweepStrategy.NOTHING
    assert queues_of(store, writer.start) == ({old} if queued else set())
    after = TimestampService(store).fresh()
    for _ in range(2):
        assert (manager.read_at(after).get(TABLE, *CELL) or b"") == value.encode()
        with pytest.raises(SnapshotSwept) if swept(store, commit) else nullcontext():
            assert manager.read_at(writer.start).get(TABLE, *CELL) == b"first"
        _sweep(store, settings)
        after = TimestampService(store).fresh()
    left = store.timestamps(TABLE, [CELL]).get(CELL, [])
    replaced = [ts for ts in left if 0 <= ts < writer.start]
    assert len(replaced) == (not queued), "what it replaced is removed if an entry leads there"
    marker_stays = not value and old is not SweepStrategy.THOROUGH
    assert (writer.start in left) == (bool(value) or marker_stays)
    LegacySweep(store, settings, SystemClock()).sweep(LegacyOrder(TABLE, ranges=2))
    after = TimestampService(store).fresh()
    assert (manager.read_at(after).get(TABLE, *CELL) or b"") == value.encode()
    assert catalog.show(TABLE).metadata.scan_due is None
    assert [ts for ts in store.timestamps(TABLE, [CELL]).get(CELL, []) if 0 <= ts < writer.start] == []
    if new is SweepStrategy.THOROUGH:
        kept = [writer.start] if value else []
        assert store.timestamps(TABLE, [CELL]).get(CELL, []) == kept, "neither sentinel nor marker is left"


def swept(store: Store, commit: int) -> bool:
    return Catalog(store).show(TABLE).for_readers > commit


def queues_of(store: Store, start: int) -> set[SweepStrategy]:
    """The strategies whose queues hold an entry of this transaction."""
    found = every(lambda resume: store.scan_versions(QUEUE_CELLS, after=resume))
    return {read_cells_row(cell.row)[1].strategy for cell, ts, _ in found if ts == start}


def _sweep(store: Store, settings: Settings) -> None:
    for _ in Sweeper(store, settings, SystemClock()).sweep(QUEUES):
        pass
