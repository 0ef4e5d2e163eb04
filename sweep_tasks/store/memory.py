"""The store in memory: the fastest one, used by simulations, and the simplest implementation of the contract.

Several handles may share one `MemoryStore`, as processes share a database. Faults are injected around it (`faults.py`),
never inside.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.errors import UnknownTable
from sweep_tasks.model import (
    DELETE_MARKER,
    EVERYTHING,
    SENTINEL_TS,
    Cell,
    ColumnChoice,
    Span,
    StoredVersion,
    TableMetadata,
    TableRef,
    Version,
    VersionRange,
)
from sweep_tasks.processes import call_in_each_process
from sweep_tasks.store.contract import DEFAULT_PAGE, EVERYWHERE, CellPage, Change, Page, ScanRange, Store, VersionPage

Versions = dict[int, bytes]
Row = dict[bytes, Versions]


@dataclass(slots=True)
class MemoryRegister:
    """A register with its expiry."""

    value: bytes
    expires_ms: int | None


@dataclass(slots=True)
class MemoryTable:
    """The contents of one table."""

    metadata: TableMetadata
    rows: dict[bytes, Row] = field(default_factory=dict)
    registers: dict[bytes, dict[bytes, MemoryRegister]] = field(default_factory=dict)
    row_index: list[bytes] | None = None
    """The sorted rows; None if a row was added or removed since it was built."""

    def sorted_rows(self) -> list[bytes]:
        if self.row_index is None:
            self.row_index = sorted(self.rows)
        return self.row_index

    def versions(self, cell: Cell) -> Versions:
        row = self.rows.get(cell.row)
        return (row.get(cell.column) if row else None) or {}

    def versions_to_write(self, cell: Cell) -> Versions:
        row = self.rows.get(cell.row)
        if row is None:
            row = self.rows[cell.row] = {}
            self.row_index = None
        return row.setdefault(cell.column, {})

    def forget_if_empty(self, cell: Cell) -> None:
        row = self.rows.get(cell.row)
        if row is None or row.get(cell.column):
            return
        row.pop(cell.column, None)
        if not row:
            del self.rows[cell.row]
            self.row_index = None


class MemoryStore(Store):
    """A store in the memory of this process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.contents: dict[TableRef, MemoryTable] = {}
        call_in_each_process(self, MemoryStore._reset)

    def _reset(self) -> None:
        """Replace the lock in a forked child, and rebuild indexes: another thread may have been changing a table."""
        self._lock = threading.RLock()
        for table in self.contents.values():
            table.row_index = None

    # --- tables -------------------------------------------------------------------------------------------------

    def create_table(self, table: TableRef, metadata: TableMetadata, gone: TableMetadata | None = None) -> bool:
        with self._lock:
            current = self.contents.get(table)
            if (current.metadata if current else None) != gone or (gone and not gone.is_gone):
                return False
            self.contents[table] = MemoryTable(metadata)
            return True

    def alter_table(self, table: TableRef, expected: TableMetadata, new: TableMetadata) -> bool:
        with self._lock:
            found = self._table(table)
            if found.metadata != expected:
                return False
            found.metadata = new
            return True

    def remove_table(self, table: TableRef, incarnation: int) -> bool:
        with self._lock:
            found = self.contents.get(table)
            if found is None or not found.metadata.is_gone or found.metadata.incarnation != incarnation:
                return False
            held = bool(found.rows or found.registers)
            self.contents[table] = MemoryTable(found.metadata)
            return held

    def catalog_rows(self, only: Collection[TableRef] | None = None) -> dict[TableRef, TableMetadata]:
        with self._lock:
            wanted = sorted(self.contents) if only is None else only
            return {ref: self.contents[ref].metadata for ref in wanted if ref in self.contents}

    # --- cells: reading -----------------------------------------------------------------------------------------

    def get(self, table: TableRef, before: Mapping[Cell, int]) -> dict[Cell, Version]:
        with self._lock:
            found = self._table(table)
            newest = ((cell, _newest(found.versions(cell), ts)) for cell, ts in before.items())
            return {cell: version for cell, version in newest if version}

    def newest(self, table: TableRef, before: Mapping[Cell, int]) -> dict[Cell, int]:
        return {cell: version.ts for cell, version in self.get(table, before).items()}

    def timestamps(self, table: TableRef, cells: Collection[Cell]) -> dict[Cell, list[int]]:
        with self._lock:
            found = self._table(table)
            return {cell: sorted(ts, reverse=True) for cell in cells if (ts := found.versions(cell))}

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
        with self._lock:
            items: list[tuple[Cell, Version]] = []
            for cell, versions in self._cells(table, scan_range.of_rows(rows), after, columns):
                version = _newest(versions, before)
                if version is None or cell == after:
                    continue
                if len(items) == limit:
                    return Page(items, items[-1][0])
                items.append((cell, version))
            return Page(items, None)

    def scan_versions(
        self,
        table: TableRef,
        rows: Span = EVERYTHING,
        limit: int = DEFAULT_PAGE,
        after: tuple[Cell, int] | None = None,
        scan_range: ScanRange = EVERYWHERE,
    ) -> VersionPage:
        with self._lock:
            items: list[StoredVersion] = []
            for cell, versions in self._cells(table, scan_range.of_rows(rows), after[0] if after else None):
                for ts in sorted(versions, reverse=True):
                    if after and cell == after[0] and ts >= after[1]:
                        continue
                    if len(items) == limit:
                        return Page(items, (items[-1].cell, items[-1].ts))
                    items.append(StoredVersion(cell, ts, versions[ts] == DELETE_MARKER))
            return Page(items, None)

    def scan_ranges(self, table: TableRef, parts: int, since: bytes = b"") -> list[ScanRange]:
        with self._lock:
            rows = self._table(table).sorted_rows()
            index = rows[bisect_left(rows, since) :]
            each = max(1, -(-len(index) // parts))
            return ScanRange.between(index[each::each], since)

    def end_of(self, table: TableRef) -> bytes:
        with self._lock:
            rows = self._table(table).sorted_rows()
            return (rows[-1] if rows else b"") + b"\0"

    def _cells(
        self, table: TableRef, rows: Span, since: Cell | None, columns: ColumnChoice = EVERYTHING
    ) -> Iterable[tuple[Cell, Versions]]:
        """Yield the cells in scan order, from `since` on."""
        found = self._table(table)
        index = found.sorted_rows()
        first = bisect_left(index, max(rows.start, since.row if since else b""))
        last = bisect_left(index, rows.end) if rows.end else len(index)
        for row in index[first:last]:
            content = found.rows[row]
            chosen = _chosen(content, columns)
            if since and row == since.row:
                chosen = chosen[bisect_left(chosen, since.column) :]
            for column in chosen:
                yield Cell(row, column), content[column]

    # --- cells: writing -----------------------------------------------------------------------------------------

    def put(self, ts: int, writes: Mapping[TableRef, Mapping[Cell, bytes]]) -> None:
        with self._lock:
            tables = {table: self._table(table) for table in writes}
            for table, values in writes.items():
                found = tables[table]
                for cell, value in values.items():
                    found.versions_to_write(cell)[ts] = value

    def add_sentinels(self, table: TableRef, cells: Collection[Cell]) -> None:
        self.put(SENTINEL_TS, {table: dict.fromkeys(cells, DELETE_MARKER)})

    def delete_versions(self, table: TableRef, versions: Collection[tuple[Cell, int]]) -> None:
        with self._lock:
            found = self._table(table)
            for cell, ts in versions:
                found.versions(cell).pop(ts, None)
                found.forget_if_empty(cell)

    def delete_ranges(self, table: TableRef, ranges: Collection[VersionRange]) -> None:
        with self._lock:
            found = self._table(table)
            for cell, first, end in ranges:
                versions = found.versions(cell)
                for ts in [ts for ts in versions if first <= ts < end]:
                    del versions[ts]
                found.forget_if_empty(cell)

    def delete_rows(self, table: TableRef, rows: Collection[bytes]) -> None:
        with self._lock:
            found = self._table(table)
            for row in rows:
                if found.rows.pop(row, None) is not None:
                    found.row_index = None

    # --- registers ----------------------------------------------------------------------------------------------

    def read(self, table: TableRef, cells: Collection[Cell]) -> dict[Cell, bytes]:
        with self._lock:
            found = self._table(table)
            current = ((cell, self._current(found, cell)) for cell in cells)
            return {cell: value for cell, value in current if value is not None}

    def read_rows(self, table: TableRef, rows: Collection[bytes]) -> dict[Cell, bytes]:
        with self._lock:
            registers = self._table(table).registers
            return self.read(table, [Cell(row, column) for row in rows for column in sorted(registers.get(row, ()))])

    def scan_registers(
        self, table: TableRef, limit: int = DEFAULT_PAGE, after: Cell | None = None
    ) -> Page[tuple[Cell, bytes], Cell]:
        with self._lock:
            found = self._table(table)
            cells = sorted(Cell(row, column) for row, columns in found.registers.items() for column in columns)
            current = self.read(table, cells[bisect_right(cells, after) :] if after else cells)
            items = list(current.items())
            return Page(items[:limit], items[limit - 1][0] if len(items) > limit else None)

    def put_if_absent(
        self, table: TableRef, values: Mapping[Cell, bytes], ttl_ms: int | None = None
    ) -> dict[Cell, bytes]:
        with self._lock:
            for cell, value in values.items():
                self.compare_and_set(table, cell.row, {cell.column: Change(None, value)}, ttl_ms)
            return self.read(table, list(values))

    def compare_and_set(
        self, table: TableRef, row: bytes, changes: Mapping[bytes, Change], ttl_ms: int | None = None
    ) -> bool:
        with self._lock:
            found = self._table(table)
            if any(self._current(found, Cell(row, column)) != change.expected for column, change in changes.items()):
                return False
            registers = found.registers.setdefault(row, {})
            expires_ms = None if ttl_ms is None else self.clock.now_ms() + ttl_ms
            for column, change in changes.items():
                if change.new is None:
                    registers.pop(column, None)
                else:
                    registers[column] = MemoryRegister(change.new, expires_ms)
            return True

    def remove(self, table: TableRef, cells: Iterable[Cell]) -> None:
        with self._lock:
            registers = self._table(table).registers
            for cell in cells:
                registers.get(cell.row, {}).pop(cell.column, None)

    def update(self, table: TableRef, cell: Cell, change: Callable[[bytes | None], bytes]) -> bytes:
        with self._lock:
            return super().update(table, cell, change)

    def _current(self, table: MemoryTable, cell: Cell) -> bytes | None:
        register = table.registers.get(cell.row, {}).get(cell.column)
        if register is None or (register.expires_ms is not None and register.expires_ms <= self.clock.now_ms()):
            return None
        return register.value

    # --- housekeeping -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Do nothing: no resources are held outside the process."""

    def _table(self, table: TableRef) -> MemoryTable:
        found = self.contents.get(table)
        if found is None or found.metadata.is_gone:
            raise UnknownTable(table)
        return found


def _chosen(content: Mapping[bytes, Versions], columns: ColumnChoice) -> list[bytes]:
    """Return the chosen columns of a row, in order."""
    if not isinstance(columns, Span):
        return sorted(column for column in columns if column in content)
    found = sorted(content)
    first = bisect_left(found, columns.start) if columns.start else 0
    return found[first : bisect_left(found, columns.end) if columns.end else len(found)]


def _newest(versions: Versions, before: int) -> Version | None:
    if not versions:
        return None
    ts = max(versions) if len(versions) > 1 else next(iter(versions))
    if ts >= before:
        below = [ts for ts in versions if ts < before]
        if not below:
            return None
        ts = max(below)
    return Version(ts, versions[ts])
