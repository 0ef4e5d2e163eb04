"""A cell with very many versions, written directly to the store: one call for each of them would take too long."""

from __future__ import annotations

from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.encoding import var_long, var_signed_long
from sweep_tasks.model import Cell, TableRef
from sweep_tasks.store.schema import TRANSACTIONS
from sweep_tasks.store.sqlite import SQLiteStore
from sweep_tasks.store.sqlite.schema import physical_name, quoted


def deep_cell(store: SQLiteStore, table: TableRef, cell: Cell, versions: int, value: bytes) -> None:
    """Versions at 0, 2, 4 …, each committed one later. The last one is a delete."""
    last = 2 * (versions - 1)
    with store.connections.writing() as connection:

        def name_of(ref: TableRef) -> str:
            (number,) = connection.execute(
                "SELECT main.catalog.id FROM main.catalog WHERE name = ?", (str(ref),)
            ).fetchone()
            return quoted(physical_name(ref, number))

        connection.executemany(
            f"INSERT INTO {name_of(table)} VALUES (?, ?, ?, ?)",
            ((cell.row, cell.column, ts, b"" if ts == last else value) for ts in range(0, last + 1, 2)),
        )
        connection.executemany(
            f"INSERT INTO {name_of(TRANSACTIONS)} VALUES (?, ?, ?, NULL)",
            ((var_long(ts), b"t", var_signed_long(ts + 1)) for ts in range(0, last + 1, 2)),
        )
    TimestampService(store).move_past(2 * versions)
