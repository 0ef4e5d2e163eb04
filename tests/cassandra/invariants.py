"""What transactions were promised, and a checker that reads everything back and compares."""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

from sweep_tasks.clock import SystemClock
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import CommitUnknown, SweepflowError
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.queue.parking import ParkedEntry, Parking
from sweep_tasks.queue.progress import QUEUES, Progress
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.store.contract import every
from sweep_tasks.sweep.run import Sweeper
from sweep_tasks.sweep.summary import Summary
from sweep_tasks.transactions import TransactionManager
from sweep_tasks.transactions.outcomes import ABORTED, CommitTable
from tests.cassandra.places import Place

KEPT, GOING = TableRef.parse("app.kept"), TableRef.parse("app.going")
TABLES = {KEPT: SweepStrategy.CONSERVATIVE, GOING: SweepStrategy.THOROUGH}
CELLS = [Cell(b"row %d" % row, b"column %d" % column) for row in range(20) for column in range(2)]
Write = tuple[TableRef, Cell, bytes]


class Position(NamedTuple):
    """The progress of every shard, and the published thresholds."""

    progress: dict[tuple[SweepStrategy, int], int]
    thresholds: list[int]


class Invariants:
    """Transactions on a store that may be in trouble. A write that was reported as committed must
    always be found; the outcome of a write without a response is checked later."""

    def __init__(self, place: Place, store: CassandraStore, seed: int) -> None:
        self.store = store
        self.settings = place.settings.model_copy(update={"retention_s": 0, "grace_s": 0, "lease_ttl_s": 20.0})
        self.outcomes: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._expected: dict[tuple[TableRef, Cell], bytes] = {}
        self._doubtful: list[tuple[int, list[Write]]] = []
        self._number = 0
        for table, strategy in TABLES.items():
            store.create_table(table, TableMetadata(strategy))
        Progress(store).raise_shards(2)

    def write(self, transactions: int) -> None:
        """One after the other, so that the later one wins."""
        with TransactionManager(self.store, self.settings) as manager:
            for _ in range(transactions):
                self._write(manager)

    def _write(self, manager: TransactionManager) -> None:
        writes = [self._chosen() for _ in range(self._random.randint(1, 8))]
        start = None
        try:
            with manager.transaction() as tx:
                start = tx.start
                for table, cell, value in writes:
                    if value:
                        tx.put(table, cell.row, cell.column, value)
                    else:
                        tx.delete(table, cell.row, cell.column)
        except CommitUnknown:
            assert start is not None
            self._doubtful.append((start, writes))
            self.outcomes["unknown"] += 1
        except SweepflowError as error:
            self.outcomes[error.code] += 1
        else:
            self._expected |= {(table, cell): value for table, cell, value in writes}
            self.outcomes["committed"] += 1

    def _chosen(self) -> Write:
        self._number += 1
        value = b"" if self._random.random() < 0.4 else b"value %d" % self._number
        return self._random.choice(list(TABLES)), self._random.choice(CELLS), value

    def sweep(self) -> list[Summary]:
        return list(Sweeper(self.store, self.settings, SystemClock()).sweep(QUEUES))

    # --- the checker ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Every cell of every table, read as a new transaction sees it."""
        for start, writes in self._doubtful:
            if CommitTable(self.store).abort([start])[start] != ABORTED:
                self._expected |= {(table, cell): value for table, cell, value in writes}
        self._doubtful = []
        with TransactionManager(self.store, self.settings) as manager, manager.transaction() as tx:
            for table in TABLES:
                found = tx.get_many(table, CELLS)
                promised = {cell: value for (of, cell), value in self._expected.items() if of == table and value}
                assert found == promised, f"{table}: {len(found)} cells found, {len(promised)} promised"

    def check_nothing_is_left_over(self) -> None:
        """One version of each live cell, no delete marker in a thorough table, nothing queued or parked."""
        live = {key: bool(value) for key, value in self._expected.items()}
        versions: Counter[tuple[TableRef, Cell]] = Counter()
        for table in TABLES:
            for found in every(lambda after, table=table: self.store.scan_versions(table, after=after)):  # type: ignore[misc]
                if found.ts >= 0:
                    versions[table, found.cell] += 1
        assert all(count == 1 for count in versions.values())
        assert {key for key in versions if key[0] == GOING} == {
            key for key, alive in live.items() if alive and key[0] == GOING
        }
        assert self.parked() == []

    def parked(self) -> list[ParkedEntry]:
        timestamps = TimestampService(self.store)
        return [
            entry
            for strategy in QUEUES
            for shard in range(2)
            for entry in Parking(self.store, timestamps, strategy, shard).all()
        ]

    def position(self) -> Position:
        thresholds = Thresholds(self.store)
        return Position(Progress(self.store).all(), [thresholds.of_strategy(strategy) for strategy in QUEUES])
