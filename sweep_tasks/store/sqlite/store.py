"""The store contract on one SQLite file in WAL mode.

Readers never wait. There is one writer at a time, in a short transaction of at most `CELLS_PER_TRANSACTION` cells, so
that other writers get in between during a large bulk call. Reads of many cells join a list of the wanted cells, which
is 1.5 times as fast as one statement for each cell.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
from sweep_tasks.store.contract import (
    DEFAULT_PAGE,
    EVERYWHERE,
    Capabilities,
    CellPage,
    Change,
    Page,
    ScanRange,
    Size,
    Store,
    Vacuumed,
    VacuumMethod,
    VersionPage,
    chunks,
)
from sweep_tasks.store.schema import ALWAYS_DURABLE, dump_metadata, load_metadata
from sweep_tasks.store.sqlite.connection import Connections, Durability
from sweep_tasks.store.sqlite.schema import (
    STEPS,
    Migration,
    add_table,
    check_and_migrate,
    initialise,
    physical_name,
    quoted,
)
from sweep_tasks.store.sqlite.vacuum import size, vacuum, vacuum_method

# ---------------------------------------------------------------------------------------------------------------------
# Conditions of scans in SQL. Values are always parameters.
# ---------------------------------------------------------------------------------------------------------------------

ScanCondition = tuple[str, list[Any]]
"""A condition and its parameters."""


def scan_parts(rows: Span, columns: ColumnChoice, after: Cell | None) -> list[ScanCondition]:
    """Return the conditions of a scan, each of which the primary key can serve as one range.

    Resuming in the middle of a row needs two: the rest of that row, then the rows after it. A single comparison of both
    columns would read a wide row from its beginning for every page.
    """
    chosen, choices = _within("col", columns)
    if after is None:
        where, bounds = _within("row", rows)
        return [(f"{where} AND {chosen}", bounds + choices)]
    later, bounds = _within("row", Span(after.row + b"\0", rows.end))
    return [
        (f"row = ? AND col > ? AND {chosen}", [after.row, after.column, *choices]),
        (f"{later} AND {chosen}", bounds + choices),
    ]


def _within(column: str, keys: ColumnChoice) -> ScanCondition:
    if not isinstance(keys, Span):
        return f"{column} IN ({', '.join('?' * len(keys))})", list(keys)
    if keys.is_one:
        return f"{column} = ?", [keys.start]
    if keys.end:
        return f"{column} >= ? AND {column} < ?", [keys.start, keys.end]
    return f"{column} >= ?", [keys.start]


CELLS_PER_TRANSACTION = 10_000
CELLS_PER_STATEMENT = 500


class SQLiteStore(Store):
    """A store in one SQLite file."""

    def __init__(
        self,
        path: Path | str,
        *,
        busy_timeout_s: float = 30.0,
        durability: Durability = "full",
        clock: Clock | None = None,
        steps: Sequence[Migration] = STEPS,
    ) -> None:
        self.connections = Connections(Path(path), busy_timeout_s, durability)
        self._clock = clock or SystemClock()
        check_and_migrate(self.connections, steps)

    @staticmethod
    def initialise(path: Path | str, *, busy_timeout_s: float = 30.0, steps: Sequence[Migration] = STEPS) -> bool:
        """Create the store, or migrate an older one; True if it is new."""
        return initialise(Connections(Path(path), busy_timeout_s, "full"), steps)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(vacuum=self)

    # --- tables -------------------------------------------------------------------------------------------------

    def create_table(self, table: TableRef, metadata: TableMetadata, gone: TableMetadata | None = None) -> bool:
        with self.connections.writing() as connection:
            if gone is not None:
                self._remove(connection, table, gone.incarnation)
                connection.execute(
                    "DELETE FROM catalog WHERE name = ? AND metadata = ? AND gone", (str(table), dump_metadata(gone))
                )
            return add_table(connection, table, metadata)

    def alter_table(self, table: TableRef, expected: TableMetadata, new: TableMetadata) -> bool:
        with self._writing(table) as (connection, _):
            changed = connection.execute(
                "UPDATE catalog SET metadata = ?, gone = ? WHERE name = ? AND metadata = ?",
                (dump_metadata(new), new.is_gone, str(table), dump_metadata(expected)),
            )
            return changed.rowcount == 1

    def remove_table(self, table: TableRef, incarnation: int) -> bool:
        with self.connections.writing() as connection:
            return self._remove(connection, table, incarnation)

    def _remove(self, connection: sqlite3.Connection, table: TableRef, incarnation: int) -> bool:
        found = connection.execute("SELECT id, metadata FROM catalog WHERE name = ? AND gone", (str(table),)).fetchone()
        if found is None or load_metadata(found[1]).incarnation != incarnation:
            return False
        name = physical_name(table, found[0])
        there = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (name,)).fetchone() is not None
        connection.execute(f"DROP TABLE IF EXISTS {quoted(name)}")
        return there

    def catalog_rows(self, only: Collection[TableRef] | None = None) -> dict[TableRef, TableMetadata]:
        with self.connections.reading() as connection:
            if only is None:
                found = connection.execute("SELECT name, metadata FROM catalog ORDER BY name").fetchall()
            else:
                marks = ", ".join("?" * len(only))
                names = [str(table) for table in only]
                found = connection.execute(
                    f"SELECT name, metadata FROM catalog WHERE name IN ({marks})", names
                ).fetchall()
        return {TableRef.stored(name): load_metadata(metadata) for name, metadata in found}

    # --- cells: reading -----------------------------------------------------------------------------------------

    def get(self, table: TableRef, before: Mapping[Cell, int]) -> dict[Cell, Version]:
        rows = self._wanted(
            table,
            before,
            "SELECT wanted.i, cell.ts, cell.value FROM wanted CROSS JOIN {name} AS cell ON cell.row = wanted.row"
            " AND cell.col = wanted.col AND cell.ts = (SELECT max(ts) FROM {name}"
            " WHERE row = wanted.row AND col = wanted.col AND ts < wanted.before)",
        )
        return {cell: Version(ts, value) for cell, ts, value in rows}

    def newest(self, table: TableRef, before: Mapping[Cell, int]) -> dict[Cell, int]:
        rows = self._wanted(
            table,
            before,
            "SELECT wanted.i, (SELECT max(ts) FROM {name}"
            " WHERE row = wanted.row AND col = wanted.col AND ts < wanted.before) FROM wanted",
        )
        return {cell: ts for cell, ts in rows if ts is not None}

    def timestamps(self, table: TableRef, cells: Collection[Cell]) -> dict[Cell, list[int]]:
        rows = self._wanted(
            table,
            dict.fromkeys(cells, 0),
            "SELECT wanted.i, cell.ts FROM wanted CROSS JOIN {name} AS cell"
            " ON cell.row = wanted.row AND cell.col = wanted.col ORDER BY wanted.i, cell.ts DESC",
        )
        found: dict[Cell, list[int]] = {}
        for cell, ts in rows:
            found.setdefault(cell, []).append(ts)
        return found

    def _wanted(self, table: TableRef, before: Mapping[Cell, int], query: str) -> Iterator[Any]:
        """Yield the rows of a query over `wanted(i, row, col, before)`, with the cell instead of its index."""
        for part in chunks(before.items(), CELLS_PER_STATEMENT):
            marks = ", ".join(["(?, ?, ?, ?)"] * len(part))
            parameters = [value for i, (cell, ts) in enumerate(part) for value in (i, cell.row, cell.column, ts)]
            with self._reading(table) as (connection, name):
                rows = connection.execute(
                    f"WITH wanted (i, row, col, before) AS (VALUES {marks}) " + query.format(name=name), parameters
                ).fetchall()
            yield from ((part[i][0], *rest) for i, *rest in rows)

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
        # A bare column next to max() comes from the row with the maximum: documented SQLite behaviour.
        query = (
            "SELECT row, col, max(ts), value FROM {name} WHERE ts < ? AND {where}"
            " GROUP BY row, col ORDER BY row, col LIMIT ?"
        )
        parts = scan_parts(scan_range.of_rows(rows), columns, after)
        found = self._fetch_parts(table, query, [(where, [before, *bounds]) for where, bounds in parts], limit + 1)
        items = [(Cell(row, column), Version(ts, value)) for row, column, ts, value in found[:limit]]
        return Page(items, items[-1][0] if len(found) > limit else None)

    def scan_versions(
        self,
        table: TableRef,
        rows: Span = EVERYTHING,
        limit: int = DEFAULT_PAGE,
        after: tuple[Cell, int] | None = None,
        scan_range: ScanRange = EVERYWHERE,
    ) -> VersionPage:
        # length() of a blob reads only its header, so large values are not loaded.
        query = "SELECT row, col, ts, length(value) = 0 FROM {name} WHERE {where} ORDER BY row, col, ts DESC LIMIT ?"
        parts = scan_parts(scan_range.of_rows(rows), EVERYTHING, after[0] if after else None)
        if after:
            cell, ts = after
            parts.insert(0, ("row = ? AND col = ? AND ts < ?", [cell.row, cell.column, ts]))
        found = self._fetch_parts(table, query, parts, limit + 1)
        items = [StoredVersion(Cell(row, column), ts, bool(empty)) for row, column, ts, empty in found[:limit]]
        return Page(items, (items[-1].cell, items[-1].ts) if len(found) > limit else None)

    def scan_ranges(self, table: TableRef, parts: int, since: bytes = b"") -> list[ScanRange]:
        """Split the table by the number of versions, which are counted over the primary key without reading values."""
        edges: list[bytes] = []
        with self._reading(table) as (connection, name):
            (versions,) = connection.execute(f"SELECT count(*) FROM {name} WHERE row >= ?", [since]).fetchone()
            step = max(1, -(-versions // parts))
            query = f"SELECT row FROM {name} WHERE row > ? ORDER BY row, col, ts LIMIT 1 OFFSET {step}"
            while len(edges) < parts - 1 and (found := connection.execute(query, edges[-1:] or [since]).fetchone()):
                edges += found
        return ScanRange.between(edges, since)

    def end_of(self, table: TableRef) -> bytes:
        with self._reading(table) as (connection, name):
            (last,) = connection.execute(f"SELECT max(row) FROM {name}").fetchone()
        return (last or b"") + b"\0"

    def _fetch_parts(self, table: TableRef, query: str, parts: list[ScanCondition], limit: int) -> list[Any]:
        found: list[Any] = []
        with self._reading(table) as (connection, name):
            for where, parameters in parts:
                if len(found) < limit:
                    statement = query.format(name=name, where=where)
                    found += connection.execute(statement, [*parameters, limit - len(found)]).fetchall()
        return found

    # --- cells: writing -----------------------------------------------------------------------------------------

    def put(self, ts: int, writes: Mapping[TableRef, Mapping[Cell, bytes]]) -> None:
        flat = ((table, cell, value) for table, values in writes.items() for cell, value in values.items())
        for part in chunks(flat, CELLS_PER_TRANSACTION):
            by_table: dict[TableRef, list[tuple[bytes, bytes, int, bytes]]] = {}
            for table, (row, column), value in part:
                by_table.setdefault(table, []).append((row, column, ts, value))
            with self.connections.writing() as connection:
                names = {table: _name_of(connection, table) for table in writes}
                for table, rows in by_table.items():
                    connection.executemany(f"INSERT OR REPLACE INTO {names[table]} VALUES (?, ?, ?, ?)", rows)

    def add_sentinels(self, table: TableRef, cells: Collection[Cell]) -> None:
        self.put(SENTINEL_TS, {table: dict.fromkeys(cells, DELETE_MARKER)})

    def delete_versions(self, table: TableRef, versions: Collection[tuple[Cell, int]]) -> None:
        exact = ((cell.row, cell.column, ts) for cell, ts in versions)
        self._delete(table, "row = ? AND col = ? AND ts = ?", exact)

    def delete_ranges(self, table: TableRef, ranges: Collection[VersionRange]) -> None:
        bounds = ((cell.row, cell.column, first, end) for cell, first, end in ranges)
        self._delete(table, "row = ? AND col = ? AND ts >= ? AND ts < ?", bounds)

    def delete_rows(self, table: TableRef, rows: Collection[bytes]) -> None:
        self._delete(table, "row = ?", ((row,) for row in rows))

    def _delete(self, table: TableRef, where: str, keys: Iterable[tuple[object, ...]]) -> None:
        for part in chunks(keys, CELLS_PER_TRANSACTION):
            with self._writing(table) as (connection, name):
                connection.executemany(f"DELETE FROM {name} WHERE {where}", part)

    # --- registers ----------------------------------------------------------------------------------------------

    def read(self, table: TableRef, cells: Collection[Cell]) -> dict[Cell, bytes]:
        with self._reading(table) as (connection, name):
            return self._current(connection, name, cells)

    def read_rows(self, table: TableRef, rows: Collection[bytes]) -> dict[Cell, bytes]:
        if not rows:
            return {}  # an empty VALUES list is not valid SQL
        marks = ", ".join(["(?, ?)"] * len(rows))
        numbered = [value for i, row in enumerate(rows) for value in (i, row)]
        with self._reading(table) as (connection, name):
            found = connection.execute(
                f"WITH wanted (i, row) AS (VALUES {marks}) SELECT r.row, r.col, r.value FROM wanted CROSS JOIN"
                f" {name} AS r ON r.row = wanted.row WHERE r.expires_ms IS NULL OR r.expires_ms > ?"
                " ORDER BY wanted.i, r.col",
                [*numbered, self._clock.now_ms()],
            ).fetchall()
        return {Cell(row, column): value for row, column, value in found}

    def scan_registers(
        self, table: TableRef, limit: int = DEFAULT_PAGE, after: Cell | None = None
    ) -> Page[tuple[Cell, bytes], Cell]:
        query = (
            "SELECT row, col, value FROM {name} WHERE (expires_ms IS NULL OR expires_ms > ?) AND {where}"
            " ORDER BY row, col LIMIT ?"
        )
        now = self._clock.now_ms()
        parts = [(where, [now, *bounds]) for where, bounds in scan_parts(EVERYTHING, EVERYTHING, after)]
        found = self._fetch_parts(table, query, parts, limit + 1)
        items = [(Cell(row, column), value) for row, column, value in found[:limit]]
        return Page(items, items[-1][0] if len(found) > limit else None)

    def put_if_absent(
        self, table: TableRef, values: Mapping[Cell, bytes], ttl_ms: int | None = None
    ) -> dict[Cell, bytes]:
        current: dict[Cell, bytes] = {}
        for part in chunks(values.items(), CELLS_PER_TRANSACTION):
            with self._writing(table) as (connection, name):
                now = self._clock.now_ms()
                if ttl_ms is not None:
                    connection.execute(f"DELETE FROM {name} WHERE expires_ms <= ?", (now,))
                expires = None if ttl_ms is None else now + ttl_ms
                connection.executemany(
                    f"INSERT INTO {name} VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE"
                    f" SET value = excluded.value, expires_ms = excluded.expires_ms WHERE expires_ms <= {now}",
                    [(cell.row, cell.column, value, expires) for cell, value in part],
                )
                current |= self._current(connection, name, [cell for cell, _ in part])
        return current

    def compare_and_set(
        self, table: TableRef, row: bytes, changes: Mapping[bytes, Change], ttl_ms: int | None = None
    ) -> bool:
        with self._writing(table) as (connection, name):
            current = self._current(connection, name, [Cell(row, column) for column in changes])
            if any(current.get(Cell(row, column)) != change.expected for column, change in changes.items()):
                return False
            for column, change in changes.items():
                self._set(connection, name, Cell(row, column), change.new, ttl_ms)
            return True

    def update(self, table: TableRef, cell: Cell, change: Callable[[bytes | None], bytes]) -> bytes:
        """Update under the write lock, so that no retry is necessary."""
        with self._writing(table) as (connection, name):
            current = self._current(connection, name, [cell]).get(cell)
            wanted = change(current)
            if wanted != current:
                self._set(connection, name, cell, wanted, None)
            return wanted

    def remove(self, table: TableRef, cells: Iterable[Cell]) -> None:
        self._delete(table, "row = ? AND col = ?", cells)

    def _current(self, connection: sqlite3.Connection, name: str, cells: Collection[Cell]) -> dict[Cell, bytes]:
        current: dict[Cell, bytes] = {}
        now = self._clock.now_ms()
        for part in chunks(cells, CELLS_PER_STATEMENT):
            marks = ", ".join(["(?, ?)"] * len(part))
            # CROSS JOIN fixes this order; otherwise SQLite compares every row of the table with the list.
            found = connection.execute(
                f"WITH wanted (row, col) AS (VALUES {marks}) SELECT r.row, r.col, r.value FROM wanted CROSS JOIN"
                f" {name} AS r ON r.row = wanted.row AND r.col = wanted.col"
                " WHERE r.expires_ms IS NULL OR r.expires_ms > ?",
                [*(key for cell in part for key in cell), now],
            )
            current.update({Cell(row, column): value for row, column, value in found})
        return current

    def _set(
        self, connection: sqlite3.Connection, name: str, cell: Cell, value: bytes | None, ttl_ms: int | None
    ) -> None:
        if value is None:
            connection.execute(f"DELETE FROM {name} WHERE row = ? AND col = ?", cell)
        else:
            expires = None if ttl_ms is None else self._clock.now_ms() + ttl_ms
            connection.execute(f"INSERT OR REPLACE INTO {name} VALUES (?, ?, ?, ?)", (*cell, value, expires))

    # --- housekeeping -------------------------------------------------------------------------------------------

    def size(self) -> Size:
        return size(self.connections)

    def vacuum(self) -> Vacuumed:
        return vacuum(self.connections)

    def how_to_vacuum(self) -> VacuumMethod:
        return vacuum_method(self.connections)

    def close(self) -> None:
        self.connections.close()

    @contextmanager
    def _reading(self, table: TableRef) -> Iterator[tuple[sqlite3.Connection, str]]:
        with self.connections.reading() as connection, _check_not_dropped(table):
            yield connection, _name_of(connection, table)

    @contextmanager
    def _writing(self, table: TableRef) -> Iterator[tuple[sqlite3.Connection, str]]:
        with self.connections.writing(durable=table in ALWAYS_DURABLE) as connection:
            yield connection, _name_of(connection, table)


def _name_of(connection: sqlite3.Connection, table: TableRef) -> str:
    """Return the quoted name of the physical table. It is looked up each time, which takes microseconds."""
    found = connection.execute("SELECT id FROM catalog WHERE name = ? AND NOT gone", (str(table),)).fetchone()
    if found is None:
        raise UnknownTable(table)
    return quoted(physical_name(table, found[0]))


@contextmanager
def _check_not_dropped(table: TableRef) -> Iterator[None]:
    """Raise `UnknownTable` if a table is dropped between its lookup and its use: readers hold no lock."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            raise UnknownTable(table) from error
        raise
