"""Table ids: small numbers that stand for table names in the queue. An id is assigned once and never reused.

Assignment takes three writes. The name is reserved as −id, the id is mapped to the name, and the reservation becomes
+id. A process that stops in between leaves a state that the next process completes. An id that another name took
meanwhile is skipped, and the next one is attempted.
"""

from __future__ import annotations

from sweep_tasks.encoding import read_var_long, read_var_signed_long, var_long, var_signed_long
from sweep_tasks.model import Cell, TableRef
from sweep_tasks.queue.encoding import hash_prefix
from sweep_tasks.store.contract import Change, Store
from sweep_tasks.store.schema import ID_TO_NAME, NAME_TO_ID

_ID = b"i"
_NAMES_ROW = hash_prefix(b"s") + b"s"


class TableIds:
    """Assigns table ids, looks them up in both directions and caches them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ids: dict[TableRef, int] = {}
        self._names: dict[int, TableRef] = {}

    def id_of(self, table: TableRef) -> int:
        """Return the table's id. A table without one is assigned one now."""
        known = self._ids.get(table)
        if known is None:
            known = self._ids[table] = self._assign(table)
        return known

    def known_id(self, table: TableRef) -> int | None:
        """Return the table's id, or None if it has none. Assigns nothing."""
        name = str(table).encode()
        cell = Cell(hash_prefix(name) + name, _ID)
        current = self._store.read(NAME_TO_ID, [cell]).get(cell)
        number = read_var_signed_long(current)[0] if current else 0
        return number if number > 0 else None

    def name_of(self, table_id: int) -> TableRef | None:
        """Return the table with this id, or None if the id was never assigned."""
        known = self._names.get(table_id)
        if known is None:
            cell = _id_cell(table_id)
            found = self._store.read(ID_TO_NAME, [cell]).get(cell)
            if found is None:
                return None
            known = self._names[table_id] = TableRef.stored(found.decode())
        return known

    def _assign(self, table: TableRef) -> int:
        name = str(table).encode()
        cell = Cell(hash_prefix(name) + name, _ID)
        while True:
            current = self._store.read(NAME_TO_ID, [cell]).get(cell)
            number = read_var_signed_long(current)[0] if current else 0
            if number > 0:
                return number
            if number == 0:
                self._replace(cell, current, -self._next())
                continue
            stored = self._store.put_if_absent(ID_TO_NAME, {_id_cell(-number): name})
            taken = stored[_id_cell(-number)] != name
            self._replace(cell, current, -self._next() if taken else -number)

    def _next(self) -> int:
        assigned = self._store.read_rows(ID_TO_NAME, [_NAMES_ROW])
        return max((_read_id(cell.column) for cell in assigned), default=0) + 1

    def _replace(self, cell: Cell, expected: bytes | None, number: int) -> None:
        """Losing the race to another writer is fine: the next iteration reads what that writer stored."""
        self._store.compare_and_set(NAME_TO_ID, cell.row, {cell.column: Change(expected, var_signed_long(number))})


def _id_cell(table_id: int) -> Cell:
    return Cell(_NAMES_ROW, _complement(var_long(table_id)))


def _read_id(column: bytes) -> int:
    return read_var_long(_complement(column))[0]


def _complement(data: bytes) -> bytes:
    return bytes(byte ^ 0xFF for byte in data)
