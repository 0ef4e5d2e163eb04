"""The store contract on Cassandra.

Cells and registers have their own modules (`cells.py`, `registers.py`). This one maps tables to physical tables. The
store needs a source of fresh timestamps: every bulk call that writes tombstones or sentinels takes one at the time of
the call. A timestamp that was taken earlier could be below what was written since, and versions that should be removed
would stay.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

from sweep_tasks import retries
from sweep_tasks.config import Settings
from sweep_tasks.errors import StoreUnavailable
from sweep_tasks.model import (
    EVERYTHING,
    GREATEST_TOKEN,
    LEAST_TOKEN,
    Cell,
    ColumnChoice,
    Span,
    StoredVersion,
    TableMetadata,
    TableRef,
    Version,
    VersionRange,
)
from sweep_tasks.store.cassandra.address import CassandraAddress
from sweep_tasks.store.cassandra.catalog import CassandraCatalog, physical_tables
from sweep_tasks.store.cassandra.cells import Cells
from sweep_tasks.store.cassandra.connection import Connection
from sweep_tasks.store.cassandra.registers import Registers
from sweep_tasks.store.cassandra.requests import NoSuchTable
from sweep_tasks.store.cassandra.ring import equal_ranges, token_of, tokens_of
from sweep_tasks.store.cassandra.schema import check
from sweep_tasks.store.contract import (
    DEFAULT_PAGE,
    EVERYWHERE,
    Capabilities,
    CellPage,
    Change,
    Page,
    PhysicalTable,
    ScanRange,
    Store,
    VersionPage,
)

T = TypeVar("T")
FreshTimestamp = Callable[[], int]


class CassandraStore(Store):
    """The store in one keyspace of a cluster."""

    def __init__(
        self,
        address: CassandraAddress,
        settings: Settings,
        fresh_timestamps: Callable[[Store], FreshTimestamp],
    ) -> None:
        """`fresh_timestamps` is called with this store, because the timestamp service may keep its state in it."""
        self.connection = Connection(address, settings)
        try:
            self.catalog = CassandraCatalog(self.connection, settings.cassandra_gc_grace_s)
            check(self.connection, self.catalog)
            self.connection.check_levels()
        except BaseException:
            self.connection.close()
            raise
        self.cells = Cells(self.connection, settings.cassandra_batch_statements, settings.cassandra_batch_bytes)
        self._registers = Registers(self.connection)
        self._fresh = fresh_timestamps(self)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(tombstones=self)

    # --- tables ---------------------------------------------------------------------------------------------------

    def create_table(self, table: TableRef, metadata: TableMetadata, gone: TableMetadata | None = None) -> bool:
        return self.catalog.add(table, metadata, gone)

    def alter_table(self, table: TableRef, expected: TableMetadata, new: TableMetadata) -> bool:
        return self.catalog.alter(table, expected, new)

    def remove_table(self, table: TableRef, incarnation: int) -> bool:
        return self.catalog.remove(table, incarnation)

    def catalog_rows(self, only: Collection[TableRef] | None = None) -> dict[TableRef, TableMetadata]:
        return self.catalog.rows(only)

    def incarnation_in_use(self, table: TableRef) -> int:
        return self.catalog.in_use(table)[0]

    def physical_tables(self) -> dict[TableRef, PhysicalTable]:
        return physical_tables(self.connection, self.catalog.physical_names())

    # --- cells: reading -------------------------------------------------------------------------------------------

    def get(self, table: TableRef, before: Mapping[Cell, int]) -> dict[Cell, Version]:
        columns = "key, column1, column2, value"
        return self._on(
            table, lambda name: {_cell(row): _version(row) for row in self.cells.newest(name, before, columns)}
        )

    def newest(self, table: TableRef, before: Mapping[Cell, int]) -> dict[Cell, int]:
        columns = "key, column1, column2"
        return self._on(
            table, lambda name: {_cell(row): ~row.column2 for row in self.cells.newest(name, before, columns)}
        )

    def timestamps(self, table: TableRef, cells: Collection[Cell]) -> dict[Cell, list[int]]:
        def found(name: str) -> dict[Cell, list[int]]:
            versions: dict[Cell, list[int]] = {}
            for row in self.cells.versions(name, cells):
                versions.setdefault(_cell(row), []).append(~row.column2)
            return versions

        return self._on(table, found)

    def scan(
        self,
        table: TableRef,
        before: int,
        rows: Span = EVERYTHING,
        columns: ColumnChoice = EVERYTHING,
        limit: int = DEFAULT_PAGE,
        after: Cell | None = None,
        scan_range: ScanRange = EVERYWHERE,
    ) -> CellPage:
        found = self._first(
            table, limit + 1, lambda name: self.cells.scan(name, before, rows, columns, after, scan_range, limit + 1)
        )
        items = [
            (Cell(row, column), Version(~complement, value)) for row, column, complement, value in islice(found, limit)
        ]
        return Page(items, items[-1][0] if len(found) > limit else None)

    def scan_versions(
        self,
        table: TableRef,
        rows: Span = EVERYTHING,
        limit: int = DEFAULT_PAGE,
        after: tuple[Cell, int] | None = None,
        scan_range: ScanRange = EVERYWHERE,
    ) -> VersionPage:
        found = self._first(
            table, limit + 1, lambda name: self.cells.scan_versions(name, rows, after, scan_range, limit + 1)
        )
        items = [StoredVersion(_cell(row), ~row.column2, row.hashed == LEAST_TOKEN) for row in found[:limit]]
        return Page(items, (items[-1].cell, items[-1].ts) if len(found) > limit else None)

    def scan_ranges(self, table: TableRef, parts: int, since: bytes = b"") -> list[ScanRange]:
        return self._on(table, lambda _: equal_ranges(parts, since))

    def end_of(self, table: TableRef) -> bytes:
        """Return an open end: later rows are anywhere on the ring, not after all others."""
        return self._on(table, lambda _: b"")

    def share_before(self, scan_range: ScanRange, row: bytes) -> float:
        """Return the share of the range before a row, estimated from its token: tokens are evenly distributed."""
        first, end = tokens_of(scan_range)
        return (token_of(row) - first) / ((GREATEST_TOKEN if end is None else end) - first)

    def row_order(self, row: bytes) -> object:
        return token_of(row), row

    def tokens(self, rows: Iterable[bytes]) -> list[int]:
        return [token_of(row) for row in rows]

    # --- cells: writing -------------------------------------------------------------------------------------------

    def put(self, ts: int, writes: Mapping[TableRef, Mapping[Cell, bytes]]) -> None:
        self._put(ts, writes, lambda: ts)

    def put_late(self, ts: int, writes: Mapping[TableRef, Mapping[Cell, bytes]]) -> None:
        self._put(ts, writes, self._fresh)

    def _put(self, ts: int, writes: Mapping[TableRef, Mapping[Cell, bytes]], write_time: FreshTimestamp) -> None:
        def put(names: dict[TableRef, str]) -> None:
            self.cells.put({names[table]: values for table, values in writes.items()}, ts, write_time())

        self._with_physical_names(list(writes), put)

    def add_sentinels(self, table: TableRef, cells: Collection[Cell]) -> None:
        self._with_fresh_timestamp(table, cells, self.cells.add_sentinels)

    def delete_versions(self, table: TableRef, versions: Collection[tuple[Cell, int]]) -> None:
        self._with_fresh_timestamp(table, versions, self.cells.delete_versions)

    def delete_ranges(self, table: TableRef, ranges: Collection[VersionRange]) -> None:
        self._with_fresh_timestamp(table, ranges, self.cells.delete_ranges)

    def delete_rows(self, table: TableRef, rows: Collection[bytes]) -> None:
        self._with_fresh_timestamp(table, rows, self.cells.delete_rows)

    def delete_everywhere(self, table: TableRef, ranges: Collection[VersionRange]) -> list[VersionRange]:
        return self._with_fresh_timestamp(table, ranges, self.cells.delete_everywhere)

    def _with_fresh_timestamp(
        self, table: TableRef, what: Collection[Any], action: Callable[[str, Collection[Any], int], T]
    ) -> T:
        """Call `action` with one fresh timestamp, taken now."""
        return self._on(table, lambda name: action(name, what, self._fresh() if what else 0))

    # --- registers ------------------------------------------------------------------------------------------------

    def read(self, table: TableRef, cells: Collection[Cell]) -> dict[Cell, bytes]:
        return self._on(table, lambda name: self._registers.read(name, cells))

    def peek(self, table: TableRef, cells: Collection[Cell]) -> dict[Cell, bytes]:
        return self._on(table, lambda name: self._registers.peek(name, cells))

    def read_rows(self, table: TableRef, rows: Collection[bytes]) -> dict[Cell, bytes]:
        return self._on(table, lambda name: self._registers.read_rows(name, rows))

    def scan_registers(
        self, table: TableRef, limit: int = DEFAULT_PAGE, after: Cell | None = None
    ) -> Page[tuple[Cell, bytes], Cell]:
        """Find registers by an ordinary scan, and read their values serially."""
        page = self.scan_versions(table, limit=limit, after=(after, 0) if after else None)
        current = self.read(table, [found.cell for found in page.items])
        return Page(
            [(found.cell, current[found.cell]) for found in page.items if found.cell in current],
            page.resume[0] if page.resume else None,
        )

    def put_if_absent(
        self, table: TableRef, values: Mapping[Cell, bytes], ttl_ms: int | None = None
    ) -> dict[Cell, bytes]:
        return self._on(table, lambda name: self._registers.put_if_absent(name, values, ttl_ms))

    def compare_and_set(
        self, table: TableRef, row: bytes, changes: Mapping[bytes, Change], ttl_ms: int | None = None
    ) -> bool:
        return self._on(table, lambda name: self._registers.compare_and_set(name, row, changes, ttl_ms))

    def update(self, table: TableRef, cell: Cell, change: Callable[[bytes | None], bytes]) -> bytes:
        return self._on(table, lambda name: self._registers.update(name, cell, change))

    def remove(self, table: TableRef, cells: Iterable[Cell]) -> None:
        gone = list(cells)
        self._on(table, lambda name: self._registers.remove(name, gone))

    # --- housekeeping ---------------------------------------------------------------------------------------------

    def request_counts(self) -> Counter[str]:
        """Return the number of requests of this store by outcome."""
        return self.connection.meters.counts()

    def close(self) -> None:
        self.connection.close()

    def __repr__(self) -> str:
        return f"CassandraStore({self.connection.address})"

    def _first(self, table: TableRef, limit: int, scan: Callable[[str], Iterator[Any]]) -> list[Any]:
        return self._on(table, lambda name: list(islice(scan(name), limit)))

    def _on(self, table: TableRef, call: Callable[[str], T]) -> T:
        return self._with_physical_names([table], lambda names: call(names[table]))

    def _with_physical_names(self, tables: Collection[TableRef], call: Callable[[dict[TableRef, str]], T]) -> T:
        """Call with the physical names of tables.

        If a node does not know a physical table, the table was dropped, and its name is looked up again; or the table
        is new, and the node will learn of it soon.
        """
        for attempt in range(retries.UNKNOWN_TABLE.attempts):
            names = {table: self.catalog.in_use(table)[1] for table in tables}
            try:
                return call(names)
            except NoSuchTable:
                for table in tables:
                    self.catalog.forget(table)
                if attempt:
                    time.sleep(retries.UNKNOWN_TABLE.pause_s(attempt))
        raise StoreUnavailable(
            "store: a node does not know a table that exists; check with 'nodetool describecluster' that all nodes "
            "have the same schema"
        )


def _cell(row: Any) -> Cell:
    return Cell(row.key, row.column1)


def _version(row: Any) -> Version:
    return Version(~row.column2, row.value)
