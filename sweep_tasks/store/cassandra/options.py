"""What Cassandra's schema says about the tables of a store: their names there, gc_grace and how they are compacted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sweep_tasks.model import TableRef
from sweep_tasks.store.cassandra.connection import Connection


@dataclass(frozen=True, slots=True)
class PhysicalTable:
    keyspace: str
    name: str
    gc_grace_s: int
    compaction: Mapping[str, str]
    """As `compaction = {…}` of the table has it, the class by its whole name."""
    table: TableRef | None = None
    """As the store calls it."""

    @property
    def qualified(self) -> str:
        return f"{self.keyspace}.{self.name}"


def physical_tables(connection: Connection, names: Mapping[TableRef, str]) -> dict[TableRef, PhysicalTable]:
    """Of tables by their names in Cassandra; one that was dropped meanwhile is left out."""
    keyspace = connection.address.keyspace
    statement = connection.prepared(
        "SELECT table_name, gc_grace_seconds, compaction FROM system_schema.tables WHERE keyspace_name = ?",
        connection.read_level,
    )
    rows = {row.table_name: row for row in connection.requests.rows(statement.bind((keyspace,)))}
    return {
        table: PhysicalTable(keyspace, name, int(row.gc_grace_seconds), dict(row.compaction), table)
        for table, name in names.items()
        if (row := rows.get(name))
    }
