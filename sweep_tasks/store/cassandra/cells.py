"""Versioned cells in Cassandra: `(key, column1, column2, value)`, where column2 is the complement of the timestamp.

So the newest version of a cell comes first. Write times are timestamps of the store, not wall clocks. A version at TS
has the write time TS. A sentinel or a tombstone has a fresh timestamp, which is above everything that it covers and
above every tombstone that could cover it. The caller passes one fresh timestamp for each bulk call.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from struct import Struct
from typing import Any, TypeAlias

from cassandra import ConsistencyLevel
from cassandra.query import BatchStatement, BatchType, BoundStatement, PreparedStatement, Statement

from sweep_tasks.model import (
    DELETE_MARKER,
    EVERYTHING,
    MAX_TS,
    SENTINEL_TS,
    Cell,
    ColumnChoice,
    Span,
    VersionRange,
)
from sweep_tasks.store.cassandra.connection import Connection
from sweep_tasks.store.cassandra.requests import NO_LIMIT, FailedRequest
from sweep_tasks.store.cassandra.ring import token_of, tokens_of
from sweep_tasks.store.contract import ScanRange, chunks

_ROWS_AT_ONCE = 50
"""Rows with the same replicas in one request."""
_COLUMNS_AT_ONCE = 200
_OVERHEAD_BYTES = 40
"""Bytes of a statement in a batch in addition to its row, column and value."""

_PUT = "INSERT INTO {t} (key, column1, column2, value) VALUES (?, ?, ?, ?) USING TIMESTAMP ?"
_DELETE_ONE = "DELETE FROM {t} USING TIMESTAMP ? WHERE key = ? AND column1 = ? AND column2 = ?"
_DELETE_RANGE = "DELETE FROM {t} USING TIMESTAMP ? WHERE key = ? AND column1 = ? AND column2 > ? AND column2 <= ?"
_DELETE_ROW = "DELETE FROM {t} USING TIMESTAMP ? WHERE key = ?"

_bigint = Struct(">q").pack
Values: TypeAlias = tuple[bytes, ...]
"""The serialised parameters of a statement."""
CellWrite: TypeAlias = tuple[bytes, int, Values]
"""A row, the number of bytes to send, and the values."""


class Cells:
    """Reads and writes cells in physical tables."""

    def __init__(self, connection: Connection, batch_statements: int, batch_bytes: int) -> None:
        self._connection = connection
        self._batch_statements = batch_statements
        self._batch_bytes = batch_bytes

    # --- reading --------------------------------------------------------------------------------------------------

    def newest(self, name: str, before: Mapping[Cell, int], columns: str) -> Iterator[Any]:
        """Yield for each cell its newest version below its timestamp, which is the first in the table."""
        by_ts: dict[int, list[Cell]] = {}
        for cell, ts in before.items():
            by_ts.setdefault(ts, []).append(cell)
        select = f"SELECT {columns} FROM {name} WHERE"
        one_column = f"{select} key IN ? AND column1 = ? AND column2 > ? PER PARTITION LIMIT 1"
        one_row = f"{select} key = ? AND column1 IN ? AND column2 > ? GROUP BY key, column1"
        return self._connection.requests.all_rows(
            self._reading(one_column if isinstance(rows, list) else one_row).bind((rows, names, ~ts))
            for ts, cells in by_ts.items()
            for rows, names in self._grouped(cells)
        )

    def versions(self, name: str, cells: Collection[Cell]) -> Iterator[Any]:
        select = f"SELECT key, column1, column2 FROM {name} WHERE"
        one_column, one_row = f"{select} key IN ? AND column1 = ?", f"{select} key = ? AND column1 IN ?"
        return self._connection.requests.all_rows(
            self._reading(one_column if isinstance(rows, list) else one_row).bind((rows, names))
            for rows, names in self._grouped(cells)
        )

    def _grouped(self, cells: Iterable[Cell]) -> Iterator[tuple[list[bytes], bytes] | tuple[bytes, list[bytes]]]:
        """Group cells into requests: one column of many rows with the same replicas, or many columns of one row."""
        columns: dict[bytes, list[bytes]] = {}
        for row, column in cells:
            columns.setdefault(row, []).append(column)
        alone: dict[bytes, list[tuple[bytes]]] = {}
        for row, names in columns.items():
            if len(names) == 1:
                alone.setdefault(names[0], []).append((row,))
            else:
                for part in chunks(names, _COLUMNS_AT_ONCE):
                    yield row, part
        for column, rows in alone.items():
            for there in self._connection.ring.by_replicas(rows):
                for together in chunks(there, _ROWS_AT_ONCE):
                    yield [row for (row,) in together], column

    def scan(
        self,
        name: str,
        before: int,
        rows: Span,
        columns: ColumnChoice,
        after: Cell | None,
        scan_range: ScanRange,
        limit: int,
    ) -> Iterator[Any]:
        """Yield each cell with its newest version, in the order of the ring; pages are fetched when needed."""
        below, limits = ("", []) if before == MAX_TS else (" AND column2 > ?", [~before])
        for where, keys, resumed in self._parts(name, rows, after, scan_range):
            chosen, choices = _within(_after(after.column, columns) if after and resumed else columns)
            query = (
                f"SELECT key, column1, column2, value FROM {name} WHERE {where}{chosen}{below}"
                " GROUP BY key, column1 ALLOW FILTERING"
            )
            yield from self._fetch(query, [*keys, *choices, *limits], rows, limit)

    def scan_versions(
        self, name: str, rows: Span, after: tuple[Cell, int] | None, scan_range: ScanRange, limit: int
    ) -> Iterator[Any]:
        """Yield versions without values: `hashed` is the token of the value, which is the least only if it is empty."""
        query = "SELECT key, column1, column2, token(value) AS hashed FROM {t} WHERE {where}"
        if after:
            (row, column), ts = after
            rest = query.format(t=name, where="key = ? AND column1 = ? AND column2 > ?")
            yield from self._fetch(rest, [row, column, ~ts], rows, limit)
        for where, keys, resumed in self._parts(name, rows, after[0] if after else None, scan_range):
            chosen, choices = _within(_after(after[0].column, EVERYTHING) if after and resumed else EVERYTHING)
            yield from self._fetch(query.format(t=name, where=where + chosen), keys + choices, rows, limit)

    def _fetch(self, query: str, parameters: list[Any], rows: Span, limit: int) -> Iterator[Any]:
        """Yield the rows of a query. A row range is spread over the ring, so its reads can't be limited."""
        statement = self._reading(query).bind(parameters)
        if rows == EVERYTHING or rows.is_one:
            return self._connection.requests.rows(statement, limit)
        return (each for each in self._connection.requests.rows(statement, NO_LIMIT) if each.key in rows)

    def _parts(
        self, name: str, rows: Span, after: Cell | None, scan_range: ScanRange
    ) -> Iterator[tuple[str, list[Any], bool]]:
        """Yield the parts of a scan: a condition, its parameters, and whether it selects one row only.

        A resumed scan has three parts: the rest of that row, other rows with the same token, then all later tokens.
        """
        first, end = tokens_of(scan_range)
        before_end, ends = ("", []) if end is None else (" AND token(key) < ?", [end])
        if rows.is_one:
            token = token_of(rows.start)
            if first <= token and (end is None or token < end):
                yield "key = ?", [rows.start], True
            return
        if after is None:
            yield f"token(key) >= ?{before_end}", [first, *ends], False
            return
        yield "key = ?", [after.row], True
        token = token_of(after.row)
        same = self._reading(f"SELECT DISTINCT key FROM {name} WHERE token(key) >= ? AND token(key) <= ?")
        for row in sorted(each.key for each in self._connection.requests.rows(same.bind((token, token)))):
            if row > after.row:
                yield "key = ?", [row], False
        yield f"token(key) > ?{before_end}", [token, *ends], False

    def _reading(self, query: str) -> PreparedStatement:
        return self._connection.prepare(query, self._connection.read_level)

    # --- writing --------------------------------------------------------------------------------------------------

    def put(self, writes: Mapping[str, Mapping[Cell, bytes]], ts: int, write_time: int) -> None:
        complement, written = _bigint(~ts), _bigint(write_time)
        batches = (
            batch
            for name, values in writes.items()
            for batch in self._batches(
                self._writing(_PUT, name),
                (
                    (row, len(row) + len(column) + len(value), (row, column, complement, value, written))
                    for (row, column), value in values.items()
                ),
            )
        )
        self._connection.requests.write(batches)

    def add_sentinels(self, name: str, cells: Iterable[Cell], fresh: int) -> None:
        self.put({name: dict.fromkeys(cells, DELETE_MARKER)}, SENTINEL_TS, fresh)

    def delete_versions(self, name: str, versions: Iterable[tuple[Cell, int]], fresh: int) -> None:
        written = _bigint(fresh)
        writes = ((row, len(row) + len(column), (written, row, column, _bigint(~ts))) for (row, column), ts in versions)
        self._connection.requests.write(self._batches(self._writing(_DELETE_ONE, name), writes))

    def delete_ranges(self, name: str, ranges: Iterable[VersionRange], fresh: int) -> None:
        statement, written = self._writing(_DELETE_RANGE, name), _bigint(fresh)
        self._connection.requests.write(self._batches(statement, (_range_write(each, written) for each in ranges)))

    def delete_rows(self, name: str, rows: Iterable[bytes], fresh: int) -> None:
        written = _bigint(fresh)
        writes = ((row, len(row), (written, row)) for row in rows)
        self._connection.requests.write(self._batches(self._writing(_DELETE_ROW, name), writes))

    def delete_everywhere(self, name: str, ranges: Collection[VersionRange], fresh: int) -> list[VersionRange]:
        """Delete on all replicas, and return what was not confirmed by all. A replica that is down is not retried."""
        everywhere = self._connection.prepare(_DELETE_RANGE.format(t=name), ConsistencyLevel.ALL)
        writes = [_range_write(each, _bigint(fresh)) for each in ranges]
        by_values = {values: each for (_, _, values), each in zip(writes, ranges, strict=True)}
        sent: list[list[VersionRange]] = []

        def batches() -> Iterator[Statement]:
            for batch, packed in self._packed(everywhere, writes):
                sent.append([by_values[values] for values in packed])
                yield batch

        waiting: list[VersionRange] = []
        for number, answer in enumerate(self._connection.requests.answers(batches(), attempts=1)):
            if isinstance(answer, FailedRequest):
                waiting += sent[number]
        return waiting

    def _writing(self, query: str, name: str) -> PreparedStatement:
        return self._connection.prepare(query.format(t=name), self._connection.write_level)

    def _batches(self, statement: PreparedStatement, writes: Iterable[CellWrite]) -> Iterator[Statement]:
        return (batch for batch, _ in self._packed(statement, writes))

    def _packed(
        self, statement: PreparedStatement, writes: Iterable[CellWrite]
    ) -> Iterator[tuple[Statement, list[Values]]]:
        """Yield unlogged batches, each for one set of replicas and within the limits, unless one write exceeds them."""
        for there in self._connection.ring.by_replicas(writes):
            packed: list[Values] = []
            size = 0
            for _, length, values in there:
                if packed and (len(packed) == self._batch_statements or size + length > self._batch_bytes):
                    yield _batch(statement, packed), packed
                    packed, size = [], 0
                packed.append(values)
                size += length + _OVERHEAD_BYTES
            if packed:
                yield _batch(statement, packed), packed


def _batch(statement: PreparedStatement, packed: list[Values]) -> Statement:
    """Build a batch. The values are already serialised: binding them one by one would double the time."""
    bound = BoundStatement(statement)
    bound.values = packed[0]
    if len(packed) == 1:
        return bound
    batch = BatchStatement(BatchType.UNLOGGED, consistency_level=statement.consistency_level)
    batch.is_idempotent = True
    for values in packed:
        bound.values = values
        batch.add(bound)
    return batch


def _range_write(each: VersionRange, written: bytes) -> CellWrite:
    (row, column), first, end = each
    return row, len(row) + len(column), (written, row, column, _bigint(~end), _bigint(~first))


def _after(column: bytes, columns: ColumnChoice) -> ColumnChoice:
    if not isinstance(columns, Span):
        return [each for each in columns if each > column]
    return Span(max(columns.start, column + b"\0"), columns.end)


def _within(columns: ColumnChoice) -> tuple[str, list[Any]]:
    if not isinstance(columns, Span):
        return " AND column1 IN ?", [list(columns)]
    where, bounds = "", []
    if columns.start:
        where, bounds = " AND column1 >= ?", [columns.start]
    if columns.end:
        where, bounds = f"{where} AND column1 < ?", [*bounds, columns.end]
    return where, bounds
