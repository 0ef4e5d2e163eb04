"""The catalog of tables in Cassandra, and the names and options of the physical tables.

The catalog is one partition that changes only by compare-and-set. A row outlives its table, so that the next table of
the same name gets a number that was never used. The physical name of a table is cached between calls; its metadata are
not. If a physical table was removed, Cassandra reports that and the catalog is read again. A table that is dropped but
not removed yet causes no error, so every read of a catalog row also updates the cached name.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

from sweep_tasks.errors import UnknownTable
from sweep_tasks.model import Layout, TableMetadata, TableRef, TableState
from sweep_tasks.store.cassandra.connection import Connection
from sweep_tasks.store.contract import PhysicalTable
from sweep_tasks.store.schema import ALERTS, LEASES, QUEUE_TABLES, dump_metadata, load_metadata

CATALOG = "_sweepflow"
_TABLES, _VERSION = "tables", "version"
_QUEUE_GRACE_S = 3_600
"""Short, because a queue entry that reappears from a replica that missed its removal is only judged again."""
_LEASE_GRACE_S = 300
"""Short, because a lease that reappears expires anyway. Every transaction leaves a tombstone that all sweeps read."""


class CassandraCatalog:
    """The catalog rows of a keyspace."""

    def __init__(self, connection: Connection, gc_grace_s: int) -> None:
        self._connection = connection
        self._keyspace = connection.address.keyspace
        self._gc_grace_s = gc_grace_s
        self._name = f"{quoted(self._keyspace)}.{quoted(CATALOG)}"
        self._known: dict[TableRef, tuple[int, str]] = {}

    # --- the schema -----------------------------------------------------------------------------------------------

    def create(self) -> None:
        self._connection.define(
            f"CREATE TABLE IF NOT EXISTS {self._name} (scope text, name text, generation int, metadata text, "
            f"PRIMARY KEY (scope, name)) WITH id = {identity(self._keyspace, CATALOG)}"
        )

    def version(self) -> int:
        found = next(self._rows(_VERSION, [_VERSION]), None)
        return int(found.generation) if found else 0

    def raise_version(self, found: int) -> bool:
        """Raise the schema version by one; False if another process did."""
        return self._set(_VERSION, _VERSION, found or None, found + 1, None)

    def move_marks(self, marks: Callable[[Collection[TableRef]], Mapping[TableRef, int]]) -> None:
        """Move the marks from the thresholds into the catalog rows. Safe to repeat and to run concurrently.

        A row without metadata belongs to a dropped table.
        """
        rows = {TableRef.stored(row.name): row for row in self._rows(_TABLES, None)}
        for table, mark in marks([table for table in rows if not table.is_system]).items():
            found = rows[table].metadata
            metadata = load_metadata(found) if found else TableMetadata(state=TableState.GONE)
            if metadata.mark < mark or not found:
                marked = _text(replace(metadata, mark=max(mark, metadata.mark)))
                self._set(_TABLES, str(table), rows[table].generation, rows[table].generation, marked, found)

    # --- tables ---------------------------------------------------------------------------------------------------

    def rows(self, only: Collection[TableRef] | None) -> dict[TableRef, TableMetadata]:
        """Return the current catalog rows. Later calls use the incarnations in these rows, or later ones."""
        rows = self._rows(_TABLES, None if only is None else [str(table) for table in only])
        found = {TableRef.stored(row.name): _loaded(row) for row in rows if row.metadata}
        for table, metadata in found.items():
            self._note(table, metadata)
        return found if only is None else {table: found[table] for table in only if table in found}

    def physical_names(self) -> dict[TableRef, str]:
        """Return the unquoted physical names of all tables."""
        found = self.rows(None)
        return {table: physical_name(table, row.incarnation) for table, row in found.items() if not row.is_gone}

    def add(self, table: TableRef, metadata: TableMetadata, gone: TableMetadata | None) -> bool:
        """Add a table. The physical table is created first, so that every table in the catalog can be used.

        A row without metadata only keeps the last number that was used. A process that dies in between leaves an empty
        physical table. It has the name of the next incarnation, so the next attempt to create the table uses it.
        """
        entry = self._entry(table)
        if (_loaded(entry) if entry and entry.metadata else None) != gone or (gone and not gone.is_gone):
            return False
        generation, current = (entry.generation, entry.metadata) if entry else (None, None)
        incarnation = max(metadata.incarnation, (generation or 0) + 1)
        self._define(table, physical_name(table, incarnation), metadata)
        if self._set(_TABLES, str(table), generation, incarnation, _text(metadata), current):
            self._note(table, replace(metadata, incarnation=incarnation))
            return True
        self.remove(table, incarnation)  # it may have been dropped meanwhile, and our statement created it again
        return False

    def alter(self, table: TableRef, expected: TableMetadata, new: TableMetadata) -> bool:
        entry = self._entry(table)
        if entry is None or not entry.metadata or _loaded(entry).is_gone:
            raise UnknownTable(table)
        if _loaded(entry) != expected:
            return False
        statement = self._conditional(
            "UPDATE {name} SET metadata = ? WHERE scope = ? AND name = ? IF generation = ? AND metadata = ?"
        )
        bound = statement.bind((_text(new), _TABLES, str(table), entry.generation, entry.metadata))
        changed = bool(self._connection.requests.decide(bound).was_applied)
        if changed:
            self._note(table, new)
        return changed

    def remove(self, table: TableRef, incarnation: int) -> bool:
        """Remove the physical table of a dropped incarnation, never that of a current or later one."""
        entry = self._entry(table)
        if entry is None or incarnation > entry.generation:
            return False
        if incarnation == entry.generation and entry.metadata and not _loaded(entry).is_gone:
            return False
        physical = physical_name(table, incarnation)
        if not self._is_there(physical):
            return False
        self._drop(physical)
        return True

    def in_use(self, table: TableRef) -> tuple[int, str]:
        """Return the cached incarnation of a table, and the quoted name of its physical table with the keyspace."""
        known = self._known.get(table)
        if known is None:
            self.rows([table])
            known = self._known.get(table)
            if known is None:
                raise UnknownTable(table)
        return known

    def _note(self, table: TableRef, metadata: TableMetadata) -> None:
        """Cache the incarnation of a table; a late response with an earlier incarnation is ignored."""
        known = self._known.get(table)
        if known and metadata.incarnation < known[0]:
            return
        if metadata.is_gone:
            self._known.pop(table, None)
        elif known is None or metadata.incarnation > known[0]:
            name = self._full(physical_name(table, metadata.incarnation))
            self._known[table] = (metadata.incarnation, name)

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
        statement = self._connection.prepare(query, self._connection.serial_level)
        return self._connection.requests.rows(statement.bind(parameters))

    def _set(
        self,
        scope: str,
        name: str,
        expected: int | None,
        generation: int,
        metadata: str | None,
        current: str | None = None,
    ) -> bool:
        statement = self._conditional(
            "UPDATE {name} SET generation = ?, metadata = ? WHERE scope = ? AND name = ?"
            " IF generation = ? AND metadata = ?"
        )
        bound = statement.bind((generation, metadata, scope, name, expected, current))
        return bool(self._connection.requests.decide(bound).was_applied)

    def _conditional(self, query: str) -> Any:
        return self._connection.prepare(query.format(name=self._name), self._connection.write_level, may_repeat=False)

    def _define(self, table: TableRef, physical: str, metadata: TableMetadata) -> None:
        options = " AND ".join(_options(table, metadata, self._gc_grace_s))
        self._connection.define(
            f"CREATE TABLE IF NOT EXISTS {self._full(physical)} (key blob, column1 blob, column2 bigint, value blob, "
            f"PRIMARY KEY (key, column1, column2)) WITH id = {identity(self._keyspace, physical)} AND {options}"
        )

    def _is_there(self, physical: str) -> bool:
        statement = self._connection.prepare(
            "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?",
            self._connection.read_level,
        )
        return any(self._connection.requests.rows(statement.bind((self._keyspace, physical))))

    def _drop(self, physical: str) -> None:
        self._connection.define(f"DROP TABLE IF EXISTS {self._full(physical)}")

    def _full(self, physical: str) -> str:
        return f"{quoted(self._keyspace)}.{quoted(physical)}"


def _loaded(row: Any) -> TableMetadata:
    """Parse a row. The incarnation has its own column, because the physical name depends on it."""
    return replace(load_metadata(row.metadata), incarnation=row.generation)


def _text(metadata: TableMetadata) -> str:
    return dump_metadata(replace(metadata, incarnation=1))


def _options(table: TableRef, metadata: TableMetadata, gc_grace_s: int) -> list[str]:
    if table in (LEASES, ALERTS):
        return [f"gc_grace_seconds = {_LEASE_GRACE_S}", "memtable_flush_period_in_ms = 300000"]
    if table in QUEUE_TABLES and metadata.layout is Layout.CELLS:
        return [f"gc_grace_seconds = {_QUEUE_GRACE_S}"]
    return [f"gc_grace_seconds = {gc_grace_s}"]


# ---------------------------------------------------------------------------------------------------------------------
# Names in Cassandra: `ns.table` becomes `ns__table`, as in AtlasDB, so that both find the queue.
#
# A table that is created again after a drop gets another physical table, with a number after its name. So a writer that
# still uses the old one can't reach the new one.
#
# No two tables share a physical table. If a name is ambiguous (`ns.a__b` and `ns__a.b`, or `ns.a__2` and the second
# `ns.a`), one of the tables has it: in the first case, the one that AtlasDB derives from it. The name of the other one
# starts with a hash. So does a name with characters that Cassandra does not allow.
# ---------------------------------------------------------------------------------------------------------------------

_OURS = uuid.UUID("5c1e0f0a-7a0f-5d64-9f0f-6c9b6f2f6b1d")
_JOIN = "__"
_HASHED = "_0"
"""The prefix of hashed names; no other name starts like this."""
_NUMBERED = re.compile(r".*__[0-9]+\Z")
"""The form of the name of a table that was created again."""
_READABLE = 20
"""Characters of the original name after the hash; Cassandra allows 48 in total."""


def quoted(identifier: str) -> str:
    """Quote an identifier. All names in statements are quoted by this function."""
    return '"' + identifier.replace('"', '""') + '"'


def physical_name(table: TableRef, generation: int) -> str:
    name = f"{table.namespace}{_JOIN}{table.name}" if table.namespace else table.name
    if not _leads_back(name, table):
        readable = re.sub(r"\W", "_", name, flags=re.ASCII)[:_READABLE]
        name = f"{_HASHED}{sha256(str(table).encode()).hexdigest()[:16]}_{readable}"
    return name if generation == 1 else f"{name}{_JOIN}{generation}"


def _leads_back(name: str, table: TableRef) -> bool:
    """Return whether AtlasDB derives this table from the physical name.

    The first two underscores end the namespace, unless the name starts with an underscore.
    """
    if not re.fullmatch(r"\w+", name, re.ASCII) or name.startswith(_HASHED) or _NUMBERED.match(name):
        return False
    if name.startswith("_"):
        return not table.namespace
    namespace, join, rest = name.partition(_JOIN)
    return (namespace, rest) == table if join else not table.namespace


def identity(keyspace: str, physical: str) -> uuid.UUID:
    """Return the table id, which is the same for all processes that create this table at the same time."""
    return uuid.uuid5(_OURS, f"{keyspace}.{physical}")


# ---------------------------------------------------------------------------------------------------------------------
# Physical tables with gc_grace and compaction options, from Cassandra's schema.
# ---------------------------------------------------------------------------------------------------------------------


def physical_tables(connection: Connection, names: Mapping[TableRef, str]) -> dict[TableRef, PhysicalTable]:
    """Return the physical tables with these names; a table that was dropped meanwhile is omitted."""
    keyspace = connection.address.keyspace
    statement = connection.prepare(
        "SELECT table_name, gc_grace_seconds, compaction FROM system_schema.tables WHERE keyspace_name = ?",
        connection.read_level,
    )
    rows = {row.table_name: row for row in connection.requests.rows(statement.bind((keyspace,)))}
    return {
        table: PhysicalTable(keyspace, name, int(row.gc_grace_seconds), dict(row.compaction), table)
        for table, name in names.items()
        if (row := rows.get(name))
    }
