"""Which tables there are, and where: one partition that only ever changes by compare-and-set.

An entry outlives its table, so that the next table of that name gets a number that was never used. The physical name
of a table is remembered between calls, its metadata never is: who comes with a name that is gone is told so by
Cassandra, and looks again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from sweep_tasks.errors import UnknownTable
from sweep_tasks.model import Layout, TableMetadata, TableRef
from sweep_tasks.store.cassandra.connection import Connection
from sweep_tasks.store.cassandra.names import identity, physical_name, quoted
from sweep_tasks.store.metadata import dump_metadata, load_metadata
from sweep_tasks.store.system import ALERTS, LEASES, QUEUE_TABLES

CATALOG = "_sweepflow"
_TABLES, _VERSION = "tables", "version"
_QUEUE_GRACE_S = 3_600
"""Entries that come back from a copy that missed their removal are judged once more, and do no harm."""
_LEASE_GRACE_S = 300
"""A lease that comes back runs out anyhow. Every transaction leaves one behind, and every sweep reads them all."""


class Catalog:
    def __init__(self, connection: Connection, gc_grace_s: int) -> None:
        self._connection = connection
        self._keyspace = connection.address.keyspace
        self._gc_grace_s = gc_grace_s
        self._name = f"{quoted(self._keyspace)}.{quoted(CATALOG)}"
        self._known: dict[TableRef, str] = {}

    # --- the schema -----------------------------------------------------------------------------------------------

    def create(self) -> None:
        self._connection.define(
            f"CREATE TABLE IF NOT EXISTS {self._name} (scope text, name text, generation int, metadata text, "
            f"PRIMARY KEY (scope, name)) WITH id = {identity(self._keyspace, CATALOG)}"
        )

    def version(self) -> int:
        found = next(self._rows(_VERSION, [_VERSION]), None)
        return int(found.generation) if found else 0

    def climb(self, found: int) -> bool:
        """From one version to the next; False if somebody else did."""
        return self._set(_VERSION, _VERSION, found or None, found + 1, None)

    # --- tables ---------------------------------------------------------------------------------------------------

    def tables(self, only: Collection[TableRef] | None) -> dict[TableRef, TableMetadata]:
        rows = self._rows(_TABLES, None if only is None else [str(table) for table in only])
        found = {TableRef.stored(row.name): load_metadata(row.metadata) for row in rows if row.metadata}
        return found if only is None else {table: found[table] for table in only if table in found}

    def physical_names(self) -> dict[TableRef, str]:
        """Of all tables, without quotes."""
        found = {TableRef.stored(row.name): row for row in self._rows(_TABLES, None) if row.metadata}
        return {table: physical_name(table, row.generation) for table, row in found.items()}

    def add(self, table: TableRef, metadata: TableMetadata) -> bool:
        """The physical table first: one that is entered can be used."""
        entry = self._entry(table)
        if entry and entry.metadata:
            return False
        generation = entry.generation if entry else None
        physical = physical_name(table, (generation or 0) + 1)
        self._define(table, physical, metadata)
        if self._set(_TABLES, str(table), generation, (generation or 0) + 1, dump_metadata(metadata)):
            return True
        standing = self._entry(table)
        if not (standing and standing.metadata and physical == physical_name(table, standing.generation)):
            self._drop(physical)  # it was dropped while we made it, and came back by our hand
        return False

    def alter(self, table: TableRef, expected: TableMetadata, new: TableMetadata) -> bool:
        entry = self._entry(table)
        if entry is None or not entry.metadata:
            raise UnknownTable(table)
        if load_metadata(entry.metadata) != expected:
            return False
        statement = self._conditional(
            "UPDATE {name} SET metadata = ? WHERE scope = ? AND name = ? IF generation = ? AND metadata = ?"
        )
        bound = statement.bind((dump_metadata(new), _TABLES, str(table), entry.generation, entry.metadata))
        return bool(self._connection.requests.decide(bound).was_applied)

    def remove(self, table: TableRef) -> bool:
        """Out of the catalog first: what is not there any more must not be found."""
        self._known.pop(table, None)
        entry = self._entry(table)
        if entry is None or not entry.metadata:
            return False
        if not self._set(_TABLES, str(table), entry.generation, entry.generation, None, entry.metadata):
            return self.remove(table)
        self._drop(physical_name(table, entry.generation))
        return True

    def physical(self, table: TableRef) -> str:
        """The quoted name, with its keyspace."""
        name = self._known.get(table)
        if name is None:
            entry = self._entry(table)
            if entry is None or not entry.metadata:
                raise UnknownTable(table)
            name = self._known[table] = self._full(physical_name(table, entry.generation))
        return name

    def forget(self, table: TableRef) -> None:
        self._known.pop(table, None)

    # --- statements -----------------------------------------------------------------------------------------------

    def _entry(self, table: TableRef) -> Any:
        return next(self._rows(_TABLES, [str(table)]), None)

    def _rows(self, scope: str, names: list[str] | None) -> Iterator[Any]:
        query = f"SELECT name, generation, metadata FROM {self._name} WHERE scope = ?"
        parameters: tuple[object, ...] = (scope,)
        if names is not None:
            query, parameters = f"{query} AND name IN ?", (scope, names)
        statement = self._connection.prepared(query, self._connection.serial_level)
        return self._connection.requests.rows(statement.bind(parameters))

    def _set(
        self,
        scope: str,
        name: str,
        expected: int | None,
        generation: int,
        metadata: str | None,
        standing: str | None = None,
    ) -> bool:
        statement = self._conditional(
            "UPDATE {name} SET generation = ?, metadata = ? WHERE scope = ? AND name = ?"
            " IF generation = ? AND metadata = ?"
        )
        bound = statement.bind((generation, metadata, scope, name, expected, standing))
        return bool(self._connection.requests.decide(bound).was_applied)

    def _conditional(self, query: str) -> Any:
        return self._connection.prepared(query.format(name=self._name), self._connection.write_level, may_repeat=False)

    def _define(self, table: TableRef, physical: str, metadata: TableMetadata) -> None:
        options = " AND ".join(_options(table, metadata, self._gc_grace_s))
        self._connection.define(
            f"CREATE TABLE IF NOT EXISTS {self._full(physical)} (key blob, column1 blob, column2 bigint, value blob, "
            f"PRIMARY KEY (key, column1, column2)) WITH id = {identity(self._keyspace, physical)} AND {options}"
        )

    def _drop(self, physical: str) -> None:
        self._connection.define(f"DROP TABLE IF EXISTS {self._full(physical)}")

    def _full(self, physical: str) -> str:
        return f"{quoted(self._keyspace)}.{quoted(physical)}"


def _options(table: TableRef, metadata: TableMetadata, gc_grace_s: int) -> list[str]:
    if table in (LEASES, ALERTS):
        return [f"gc_grace_seconds = {_LEASE_GRACE_S}", "memtable_flush_period_in_ms = 300000"]
    if table in QUEUE_TABLES and metadata.layout is Layout.CELLS:
        return [f"gc_grace_seconds = {_QUEUE_GRACE_S}"]
    return [f"gc_grace_seconds = {gc_grace_s}"]
