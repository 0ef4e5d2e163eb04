"""Registers in Cassandra: one version each, changed only by lightweight transactions and read serially.

A lightweight transaction has a write time that Cassandra chooses from its wall clock, so a table of registers is never
written in any other way. Every change, also a removal, is the same conditional statement. A register that was removed,
has expired or never existed is absent for the next condition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from cassandra.query import BatchStatement, BatchType, PreparedStatement

from sweep_tasks import retries
from sweep_tasks.errors import OutcomeUnknown, StoreBusy
from sweep_tasks.model import Cell
from sweep_tasks.store.cassandra.connection import Connection
from sweep_tasks.store.contract import Change, chunks

_VERSION = -1
"""The complement of version 0, at which AtlasDB stores such values."""
_SET = f"UPDATE {{t}} USING TTL ? SET value = ? WHERE key = ? AND column1 = ? AND column2 = {_VERSION} IF value = ?"
_REMOVE = f"DELETE FROM {{t}} WHERE key = ? AND column1 = ? AND column2 = {_VERSION} IF EXISTS"
_ROWS_AT_ONCE = 100
_COLUMNS_AT_ONCE = 100


class Registers:
    """Reads and changes registers in physical tables."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._last_seen: dict[tuple[str, Cell], bytes | None] = {}

    # --- reading --------------------------------------------------------------------------------------------------

    def read(self, name: str, cells: Collection[Cell]) -> dict[Cell, bytes]:
        """Read registers with one request per row: a serial read is limited to one partition."""
        columns: dict[bytes, list[bytes]] = {}
        for row, column in cells:
            columns.setdefault(row, []).append(column)
        where = f"key = ? AND column1 IN ? AND column2 = {_VERSION}"
        statement = self._serially(f"SELECT key, column1, value FROM {name} WHERE {where}")
        return _found(
            self._connection.requests.all_rows(
                statement.bind((row, part))
                for row, names in columns.items()
                for part in chunks(names, _COLUMNS_AT_ONCE)
            )
        )

    def peek(self, name: str, cells: Collection[Cell]) -> dict[Cell, bytes]:
        """Read many rows per request. A value that an ordinary read finds is decided; it may miss decided values."""
        by_column: dict[bytes, list[tuple[bytes]]] = {}
        for row, column in cells:
            by_column.setdefault(column, []).append((row,))
        query = f"SELECT key, column1, value FROM {name} WHERE key IN ? AND column1 = ? AND column2 = {_VERSION}"
        statement = self._connection.prepare(query, self._connection.read_level)
        return _found(
            self._connection.requests.all_rows(
                statement.bind(([row for (row,) in part], column))
                for column, rows in by_column.items()
                for there in self._connection.ring.by_replicas(rows)
                for part in chunks(there, _ROWS_AT_ONCE)
            )
        )

    def read_rows(self, name: str, rows: Collection[bytes]) -> dict[Cell, bytes]:
        statement = self._serially(f"SELECT key, column1, value FROM {name} WHERE key = ?")
        return _found(self._connection.requests.all_rows(statement.bind((row,)) for row in rows))

    def _serially(self, query: str) -> PreparedStatement:
        return self._connection.prepare(query, self._connection.serial_level)

    # --- changing -------------------------------------------------------------------------------------------------

    def put_if_absent(self, name: str, values: Mapping[Cell, bytes], ttl_ms: int | None) -> dict[Cell, bytes]:
        """Put values into absent registers. Safe to retry: the result is the stored value, whichever process put it."""
        statement = self._setting(name)
        ttl = _seconds(ttl_ms)
        bound = (statement.bind((ttl, value, *cell, None)) for cell, value in values.items())
        current: dict[Cell, bytes] = {}
        for (cell, value), answer in zip(values.items(), self._connection.requests.changes(bound), strict=True):
            found = answer.one()
            current[cell] = value if found.applied else found.value
        return current

    def compare_and_set(self, name: str, row: bytes, changes: Mapping[bytes, Change], ttl_ms: int | None) -> bool:
        statement, ttl = self._setting(name), _seconds(ttl_ms)
        parameters = [(ttl, change.new, row, column, change.expected) for column, change in changes.items()]
        if len(parameters) == 1:
            return bool(self._connection.requests.decide(statement.bind(parameters[0])).was_applied)
        together = BatchStatement(
            BatchType.UNLOGGED,
            consistency_level=self._connection.write_level,
            serial_consistency_level=self._connection.serial_level,
        )
        for each in parameters:
            together.add(statement, each)
        return bool(self._connection.requests.decide(together).was_applied)

    def update(self, name: str, cell: Cell, change: Callable[[bytes | None], bytes]) -> bytes:
        """Update a register, starting from the value that was seen last.

        If that value is outdated, the failed attempt returns the current one. If `change` fails on it, the current
        value is read first, so that an error never refers to an outdated value.
        """
        statement, key = self._setting(name), (name, cell)
        guessed = key in self._last_seen
        current = self._last_seen[key] if guessed else self._current(name, cell)
        unanswered = 0
        for _ in range(retries.REGISTER_UPDATE.attempts):
            try:
                wanted = change(current)
            except Exception:
                if not guessed:
                    raise
                guessed, current = False, self._current(name, cell)
                continue
            if wanted == current and not guessed:
                return wanted
            if wanted != current:
                try:
                    answer = self._connection.requests.decide(statement.bind((0, wanted, *cell, current))).one()
                except OutcomeUnknown:
                    unanswered += 1
                    if unanswered == retries.UNANSWERED_UPDATE.attempts:
                        raise
                else:
                    if answer.applied:
                        self._last_seen[key] = wanted
                        return wanted
                    guessed, current = False, getattr(answer, "value", None)
                    continue
            guessed, current = False, self._current(name, cell)
        raise StoreBusy(
            "store: a register could not be updated: other writers changed it "
            f"{retries.REGISTER_UPDATE.attempts} times meanwhile; retry later, or with fewer concurrent writers"
        )

    def _current(self, name: str, cell: Cell) -> bytes | None:
        return self.read(name, [cell]).get(cell)

    def remove(self, name: str, cells: Iterable[Cell]) -> None:
        statement = self._connection.prepare(_REMOVE.format(t=name), self._connection.write_level)
        self._connection.requests.write(statement.bind(cell) for cell in cells)

    def _setting(self, name: str) -> PreparedStatement:
        return self._connection.prepare(_SET.format(t=name), self._connection.write_level, may_repeat=False)


def _found(rows: Iterator[Any]) -> dict[Cell, bytes]:
    return {Cell(row.key, row.column1): row.value for row in rows if row.value is not None}


def _seconds(ttl_ms: int | None) -> int:
    """Round up to seconds. One is added because Cassandra counts from the beginning of the current second."""
    return 0 if ttl_ms is None else -(-ttl_ms // 1000) + 1
