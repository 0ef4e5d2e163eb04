"""Table ids: small numbers in place of names in the queue, given once and never freed.

A name is first reserved as −id, then the id is given its name, then the reservation becomes +id: whoever dies in
between leaves something the next one finishes. An id that was given to another name meanwhile is left, and the next
one tried.
"""

from __future__ import annotations

from sweep_tasks.encoding import read_var_long, read_var_signed_long, var_long, var_signed_long
from sweep_tasks.model import Cell, TableRef
from sweep_tasks.queue.encoding import hash_prefix
from sweep_tasks.store.contract import Change, Store
from sweep_tasks.store.system import ID_TO_NAME, NAME_TO_ID

_ID = b"i"
_NAMES_ROW = hash_prefix(b"s") + b"s"


class TableIds:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._ids: dict[TableRef, int] = {}
        self._names: dict[int, TableRef] = {}

    def id_of(self, table: TableRef) -> int:
        """The table's id, given now if it has none."""
        known = self._ids.get(table)
        if known is None:
            known = self._ids[table] = self._assign(table)
        return known

    def known_id(self, table: TableRef) -> int | None:
        """None for a table that was never given one; none is given now."""
        name = str(table).encode()
        cell = Cell(hash_prefix(name) + name, _ID)
        standing = self._store.read(NAME_TO_ID, [cell]).get(cell)
        number = read_var_signed_long(standing)[0] if standing else 0
        return number if number > 0 else None

    def name_of(self, table_id: int) -> TableRef | None:
        """None for an id that was never given."""
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
            standing = self._store.read(NAME_TO_ID, [cell]).get(cell)
            number = read_var_signed_long(standing)[0] if standing else 0
            if number > 0:
                return number
            if number == 0:
                self._replace(cell, standing, -self._next())
                continue
            given = self._store.put_if_absent(ID_TO_NAME, {_id_cell(-number): name})
            taken = given[_id_cell(-number)] != name
            self._replace(cell, standing, -self._next() if taken else -number)

    def _next(self) -> int:
        given = self._store.read_rows(ID_TO_NAME, [_NAMES_ROW])
        return max((_read_id(cell.column) for cell in given), default=0) + 1

    def _replace(self, cell: Cell, expected: bytes | None, number: int) -> None:
        """Lost to another writer is as good: the next turn of the loop reads what stands."""
        self._store.compare_and_set(NAME_TO_ID, cell.row, {cell.column: Change(expected, var_signed_long(number))})


def _id_cell(table_id: int) -> Cell:
    return Cell(_NAMES_ROW, _complement(var_long(table_id)))


def _read_id(column: bytes) -> int:
    return read_var_long(_complement(column))[0]


def _complement(data: bytes) -> bytes:
    return bytes(byte ^ 0xFF for byte in data)
