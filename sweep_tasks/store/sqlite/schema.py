"""The schema of a SQLite store, as a list of migration steps.

The file has our `application_id` and, as `user_version`, the number of steps that were applied to it. An older file is
migrated when it is opened. A newer one is refused, because an older program can't know what later steps guarantee.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sweep_tasks.encoding import stored_long
from sweep_tasks.errors import NotInitialised, OtherSchema, StoreError, StoreMissing
from sweep_tasks.model import Layout, TableMetadata, TableRef, TableState
from sweep_tasks.store import schema as system
from sweep_tasks.store.schema import dump_metadata, load_metadata
from sweep_tasks.store.sqlite.connection import Connections

APPLICATION_ID = 0x53574550
Migration = Callable[[sqlite3.Connection], None]


def quoted(identifier: str) -> str:
    """Quote an identifier. All names in statements are quoted by this function."""
    return '"' + identifier.replace('"', '""') + '"'


def physical_name(table: TableRef, table_id: int) -> str:
    """Return the name of the physical table.

    It ends in an id that is never reused, so that an outdated name can't refer to a table that was created again.
    SQLite also treats names that differ only in case as equal.
    """
    return f"{table}#{table_id}"


def add_table(connection: sqlite3.Connection, table: TableRef, metadata: TableMetadata) -> bool:
    """Add a table to the catalog and create it, within the caller's transaction; False if the name is used."""
    added = connection.execute(
        "INSERT INTO catalog (name, metadata) VALUES (?, ?) ON CONFLICT (name) DO NOTHING",
        (str(table), dump_metadata(metadata)),
    )
    if not added.rowcount:
        return False
    assert added.lastrowid is not None
    name = quoted(physical_name(table, added.lastrowid))
    if metadata.layout is Layout.CELLS:
        connection.execute(
            f"CREATE TABLE {name} (row BLOB NOT NULL, col BLOB NOT NULL, ts INTEGER NOT NULL, value BLOB NOT NULL, "
            "PRIMARY KEY (row, col, ts DESC)) WITHOUT ROWID"
        )
    else:
        connection.execute(
            f"CREATE TABLE {name} (row BLOB NOT NULL, col BLOB NOT NULL, value BLOB NOT NULL, expires_ms INTEGER, "
            "PRIMARY KEY (row, col)) WITHOUT ROWID"
        )
        index = quoted(f"{physical_name(table, added.lastrowid)} expiry")
        connection.execute(f"CREATE INDEX {index} ON {name} (expires_ms) WHERE expires_ms IS NOT NULL")
    return True


def _migration_step(number: int, tables: Mapping[TableRef, TableMetadata]) -> Migration:
    def step(connection: sqlite3.Connection) -> None:
        if number == 0:
            connection.execute(
                "CREATE TABLE catalog (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, "
                "metadata TEXT NOT NULL)"
            )
        if number == system.MARKS_MOVE_AT:
            connection.execute("ALTER TABLE catalog ADD COLUMN gone INTEGER NOT NULL DEFAULT 0")
            _move_marks(connection)
        for table, metadata in tables.items():
            add_table(connection, table, metadata)

    return step


def _move_marks(connection: sqlite3.Connection) -> None:
    """Move the marks from the thresholds into the catalog. A mark without a table belongs to a dropped table."""
    (thresholds,) = connection.execute("SELECT id FROM catalog WHERE name = ?", (str(system.THRESHOLDS),)).fetchone()
    name = quoted(physical_name(system.THRESHOLDS, thresholds))
    for row, value in connection.execute(f"SELECT row, value FROM {name}").fetchall():
        table = system.marked_table(row)
        if table is None:
            continue
        mark = stored_long(value)
        found = connection.execute("SELECT metadata FROM catalog WHERE name = ?", (str(table),)).fetchone()
        if found:
            marked = dump_metadata(replace(load_metadata(found[0]), mark=mark))
            connection.execute("UPDATE catalog SET metadata = ? WHERE name = ?", (marked, str(table)))
        else:
            gone = dump_metadata(TableMetadata(state=TableState.GONE, mark=mark))
            connection.execute("INSERT INTO catalog (name, metadata, gone) VALUES (?, ?, 1)", (str(table), gone))


STEPS: Sequence[Migration] = tuple(_migration_step(number, tables) for number, tables in enumerate(system.STEPS))
"""The migration steps; step n migrates a store from version n to n + 1."""


def initialise(connections: Connections, steps: Sequence[Migration] = STEPS) -> bool:
    """Create a store in the file, or migrate an older one; True if it is new. Safe to run several times at once.

    The folder must exist. Creating it could hide that the file system with the real store is not mounted.
    """
    if not connections.path.parent.is_dir():
        raise StoreMissing(
            f"sqlite:///{connections.path}",
            f"can't be created: {connections.path.parent} is not a folder; correct the path, mount the file system, or "
            "create the folder",
            reason="missing_folder",
        )
    with connections.creating() as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            new = _version(connections, connection) == 0
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            _migrate(connections, connection, steps)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        return new


def check_and_migrate(connections: Connections, steps: Sequence[Migration] = STEPS) -> None:
    """Migrate an older store when it is opened; refuse a newer one, and files of other programs."""
    with connections.reading() as connection:
        found = _version(connections, connection)
    if found == 0:
        raise NotInitialised(f"sqlite:///{connections.path}")
    if found != len(steps):
        with connections.writing() as connection:
            _migrate(connections, connection, steps)


def _migrate(connections: Connections, connection: sqlite3.Connection, steps: Sequence[Migration]) -> None:
    found = _version(connections, connection)
    if found > len(steps):
        raise OtherSchema(f"sqlite:///{connections.path}", found, len(steps))
    for step in steps[found:]:
        step(connection)
    connection.execute(f"PRAGMA user_version = {len(steps)}")


def _version(connections: Connections, connection: sqlite3.Connection) -> int:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION_ID and (application or version or objects):
        raise StoreError(
            f"store: {connections.path} is a SQLite file of another program; name another path",
            reason="another_program",
        )
    return int(version)
