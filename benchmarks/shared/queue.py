"""A queue-like workload on a real Cassandra: items are added at the end, taken from the front, and swept.

In the store's own layout, a queue is a row, and its items are columns in the order of their numbers. 300 000 items are
put into ten rows, and all but the last hundred of each are deleted like a sweep does it: a range of versions for each
item, with a fresh write time. A read of the head has to skip the tombstones of the 29 900 items before it. (One row
with all of them could not be read at all: Cassandra fails a read of more than 100 000 tombstones.) Other rows are cold:
written once and never touched again. The values are flushed before the deletes, because in production there are hours
between them. In one file, the deletes would remove the values at once. Values and deletes are one file each, like on a
server with enough memory. A small node flushes more often, so its files are merged first.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any
from zlib import crc32

from cassandra.cluster import Session

from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.local.cassandra import LocalCluster
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef, VersionRange
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.store.contract import chunks
from sweep_tasks.tables.catalog import Catalog

QUEUES, ITEMS, LEFT = 10, 30_000, 100
"""Rows, items per row by default, and items that are left at the end of each row."""
COLD_ROWS, COLD_ITEMS = 10, 300
WRITTEN, DELETED = 10, 20
_AT_ONCE = 10_000
_KEEP_TRYING_S = 240
_NOISE = random.Random(0).randbytes(4 * 1024 * 1024)

STCS = "{'class': 'SizeTieredCompactionStrategy'}"
_OFF = "{'class': 'SizeTieredCompactionStrategy', 'enabled': 'false'}"
UCS = "{'class': 'UnifiedCompactionStrategy'}"


class Workload:
    def __init__(self, cluster: LocalCluster, store: CassandraStore, value_bytes: int, items: int = ITEMS) -> None:
        """`items` are put into each row. All but `LEFT` of them are deleted."""
        self.items = items
        self._cluster = cluster
        self._store = store
        self._value_bytes = value_bytes
        TimestampService(store).move_past(1_000)  # tombstones must be later than the versions they cover

    # --- tables ----------------------------------------------------------------------------------------------------

    def table(self, name: str, compaction: str = STCS, gc_grace_s: int = 0) -> TableRef:
        table = TableRef.parse(f"queue.{name}")
        Catalog(self._store).create(table, TableMetadata(SweepStrategy.THOROUGH))
        self._alter(table, f"compaction = {compaction} AND gc_grace_seconds = {gc_grace_s}")
        return table

    def fill(self, table: TableRef) -> None:
        """Put all items, then delete most of them."""
        self._alter(table, f"compaction = {_OFF}")
        self._put(table, range(self.items))
        self._cluster.nodetool(1, "compact", *self._parts(table))
        values = self._await_files(table, 1)
        for part in chunks(self._items(range(self.items - LEFT)), _AT_ONCE):
            self._store.delete_ranges(table, [VersionRange(cell, -1, DELETED) for cell in part])
        self.flush(table)
        deletes = [str(self.folder(table) / file) for file in self.files(table) if file not in values]
        self._cluster.nodetool(1, "compact", "--user-defined", *deletes)
        self._await_files(table, 2)
        self._alter(table, f"compaction = {STCS}")

    def fill_with_what_is_left(self, table: TableRef) -> None:
        """Put only the items that are never deleted."""
        self._put(table, range(self.items - LEFT, self.items))

    def copy(self, source: TableRef, to: TableRef) -> None:
        """Import the same files into another table, which is faster than writing everything again."""
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary, *self._parts(to))
            folder.mkdir(parents=True)
            for file in self.folder(source).glob("*.*"):
                os.link(file, folder / file.name)
            self._cluster.nodetool(1, "import", "--quick", "--copy-data", *self._parts(to), str(folder))

    def flush(self, *tables: TableRef) -> None:
        for table in tables:
            self._cluster.nodetool(1, "flush", *self._parts(table))

    # --- reading ---------------------------------------------------------------------------------------------------

    def contents(self, table: TableRef) -> list[tuple[bytes, bytes, int, bytes]]:
        """Return everything that can be read, row by row: one read over all tombstones would fail."""
        query = self._session.prepare(f"SELECT key, column1, column2, value FROM {self.name(table)} WHERE key = ?")
        rows = [b"queue%d" % number for number in range(QUEUES)] + [b"cold%d" % number for number in range(COLD_ROWS)]
        return [tuple(found) for row in rows for found in self._session.execute(query, (row,))]

    def read_heads(self, tables: list[TableRef], rounds: int) -> dict[TableRef, float]:
        """Return the seconds to read the first item of every queue, measured alternately, the minimum of some rounds:
        other load on the machine can only add to it."""
        heads = {table: self._heads(table) for table in tables}
        seconds: dict[TableRef, list[float]] = {table: [] for table in tables}
        for _ in range(rounds):
            for table, read in heads.items():
                began = time.perf_counter()
                read()
                seconds[table].append(time.perf_counter() - began)
        return {table: min(each) for table, each in seconds.items()}

    def tombstones_read(self, table: TableRef) -> int:
        """Return how many tombstones a read of the head of the first queue skips, as the server counts them. The server
        only counts tombstones within gc_grace, although it skips all, so gc_grace is raised first."""
        self._alter(table, f"gc_grace_seconds = {10 * 365 * 86_400}")
        query = self._session.prepare(f"SELECT * FROM {self.name(table)} WHERE key = ? LIMIT 1")
        trace = self._session.execute(query, (b"queue0",), trace=True).get_query_trace(max_wait_sec=_KEEP_TRYING_S)
        output = next(each.description for each in trace.events if " tombstone cells" in each.description)
        return int(output.rpartition(" tombstone cells")[0].split()[-1])

    def left_alone(self, table: TableRef) -> dict[str, Any]:
        """Return whether Cassandra's own compaction is enabled, and how many files it has left."""
        keyspace, name = self._parts(table)
        output = self._cluster.nodetool(1, "statusautocompaction", keyspace, name)
        return {"autocompaction": "not running" not in output and "running" in output, "files": len(self.files(table))}

    def files(self, table: TableRef) -> list[str]:
        return sorted(file.name for file in self.folder(table).glob("*-Data.db"))

    def folder(self, table: TableRef) -> Path:
        keyspace, name = self._parts(table)
        (found,) = (self._cluster.data_folder(1) / keyspace).glob(f"{name}-*")
        return found

    def name(self, table: TableRef) -> str:
        return self._store.catalog.in_use(table)[1]

    def qualified(self, table: TableRef) -> str:
        return ".".join(self._parts(table))

    # --- internals -------------------------------------------------------------------------------------------------

    @property
    def _session(self) -> Session:
        return self._store.connection.session

    def _alter(self, table: TableRef, options: str) -> None:
        self._session.execute(f"ALTER TABLE {self.name(table)} WITH {options}")

    def _await_files(self, table: TableRef, number: int) -> list[str]:
        """Wait until Cassandra has removed the files that it replaced, which takes a moment."""
        until = time.monotonic() + _KEEP_TRYING_S
        while len(found := self.files(table)) != number:
            if time.monotonic() > until:
                raise TimeoutError(f"{len(found)} files of {table}, and not {number}")
            time.sleep(0.1)
        return found

    def _parts(self, table: TableRef) -> list[str]:
        return [part.strip('"') for part in self.name(table).split(".")]

    def _put(self, table: TableRef, items: range) -> None:
        cold = (Cell(b"cold%d" % row, b"%08d" % item) for row in range(COLD_ROWS) for item in range(COLD_ITEMS))
        for part in chunks(chain(self._items(items), cold), _AT_ONCE):
            self._store.put(WRITTEN, {table: {cell: self._value(cell) for cell in part}})
        self.flush(table)

    def _items(self, items: range) -> Iterator[Cell]:
        return (Cell(b"queue%d" % queue, b"%08d" % item) for queue in range(QUEUES) for item in items)

    def _value(self, cell: Cell) -> bytes:
        """Return the value of a cell: always the same for a cell, and different from its neighbours so that it does not
        compress well."""
        start = crc32(cell.column, crc32(cell.row)) % (len(_NOISE) - self._value_bytes)
        return _NOISE[start : start + self._value_bytes]

    def _heads(self, table: TableRef) -> Callable[[], Any]:
        query = self._session.prepare(f"SELECT column1, value FROM {self.name(table)} WHERE key = ? LIMIT 1")
        rows = [b"queue%d" % number for number in range(QUEUES)]
        return lambda: [self._session.execute(query, (row,)).one() for row in rows]
