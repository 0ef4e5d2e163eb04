"""What a SQLite file must hold to be a store of ours, step by step since the first version.

The file says who made it (`application_id`) and which steps it has been through (`user_version`). A file that is a
few steps behind is brought up when it is opened; one that is ahead is refused, since an older program can't know
what the later steps promise.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence

from sweep_tasks.errors import ForeignStore, NewerSchema, NotInitialised, StoreUnavailable
from sweep_tasks.model import Layout, TableMetadata, TableRef
from sweep_tasks.store import system
from sweep_tasks.store.metadata import dump_metadata
from sweep_tasks.store.sqlite.connection import Connections

APPLICATION_ID = 0x53574550
Step = Callable[[sqlite3.Connection], None]


def quoted(identifier: str) -> str:
    """The only way a name gets into a statement."""
    return '"' + identifier.replace('"', '""') + '"'


def physical_name(table: TableRef, table_id: int) -> str:
    """Ends in an id that is never used again, so that a stale name can't reach a table created anew (SQLite also
    takes names that differ only in case for one)."""
    return f"{table}#{table_id}"


def add_table(connection: sqlite3.Connection, table: TableRef, metadata: TableMetadata) -> bool:
    """Within the caller's transaction."""
    entered = connection.execute(
        "INSERT INTO catalog (name, metadata) VALUES (?, ?) ON CONFLICT (name) DO NOTHING",
        (str(table), dump_metadata(metadata)),
    )
    if not entered.rowcount:
        return False
    assert entered.lastrowid is not None
    name = quoted(physical_name(table, entered.lastrowid))
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
        index = quoted(f"{physical_name(table, entered.lastrowid)} expiry")
        connection.execute(f"CREATE INDEX {index} ON {name} (expires_ms) WHERE expires_ms IS NOT NULL")
    return True


def _climbing(number: int, tables: Mapping[TableRef, TableMetadata]) -> Step:
    def step(connection: sqlite3.Connection) -> None:
        if number == 0:
            connection.execute(
                "CREATE TABLE catalog (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, "
                "metadata TEXT NOT NULL)"
            )
        for table, metadata in tables.items():
            add_table(connection, table, metadata)

    return step


STEPS: Sequence[Step] = tuple(_climbing(number, tables) for number, tables in enumerate(system.STEPS))
"""Only ever added to. Step n takes a store from version n to n + 1."""


def initialise(connections: Connections, steps: Sequence[Step] = STEPS) -> bool:
    """Make the file a store, or bring it up; True if it was not one before. Safe to run many times at once."""
    try:
        connections.path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"store: {connections.path.parent} can't be made a folder: {error.strerror}") from error
    connection = connections.open("rwc")
    try:
        with connections.explained():
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            try:
                new = _version(connections, connection) == 0
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                _climb(connections, connection, steps)
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            return new
    finally:
        connection.close()


def bring_up(connections: Connections, steps: Sequence[Step] = STEPS) -> None:
    """On opening: refuse what is no store of ours or a newer one, migrate an older one."""
    with connections.reading() as connection:
        found = _version(connections, connection)
    if found == 0:
        raise NotInitialised(f"sqlite:///{connections.path}")
    if found != len(steps):
        with connections.writing() as connection:
            _climb(connections, connection, steps)


def _climb(connections: Connections, connection: sqlite3.Connection, steps: Sequence[Step]) -> None:
    found = _version(connections, connection)
    if found > len(steps):
        raise NewerSchema(f"sqlite:///{connections.path}", found, len(steps))
    for step in steps[found:]:
        step(connection)
    connection.execute(f"PRAGMA user_version = {len(steps)}")


def _version(connections: Connections, connection: sqlite3.Connection) -> int:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION_ID and (application or version or objects):
        raise ForeignStore(
            f"store: {connections.path} is a SQLite file of another program; name another path",
            reason="another_program",
        )
    return int(version)
