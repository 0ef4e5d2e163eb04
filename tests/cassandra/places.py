"""An empty store on a running Cassandra, again and again.

Making a keyspace takes many changes of the schema; emptying one takes a few truncations. Tables of the test's own are
dropped, so that the next of that name is another physical table; nothing is removed by tombstones, which would hide
what the next test writes below them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cassandra.cluster import Session
from cassandra.concurrent import execute_concurrent

from sweep_tasks.config import Settings
from sweep_tasks.dev.cassandra import LocalCluster
from sweep_tasks.model import Layout, TableRef
from sweep_tasks.opening import open_store
from sweep_tasks.store import initialise_store
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.store.system import SYSTEM_TABLES


class Place:
    """A keyspace of a local cluster."""

    def __init__(self, cluster: LocalCluster, keyspace: str, **settings: Any) -> None:
        self.cluster = cluster
        self.keyspace = keyspace
        self.url = cluster.url(keyspace)
        self.settings = Settings(store=self.url, **settings)
        initialise_store(self.url, self.settings)

    @contextmanager
    def opened(self, **changed: Any) -> Iterator[CassandraStore]:
        settings = self.settings.model_copy(update=changed)
        with open_store(self.url, settings) as store:
            assert isinstance(store, CassandraStore)
            yield store

    @contextmanager
    def emptied(self) -> Iterator[CassandraStore]:
        with self.opened() as store:
            empty(store)
            yield store

    def compact(self, store: CassandraStore, table: TableRef) -> None:
        """Everything to disk, then all of it into one file."""
        physical = physical_name(store, table)
        for number in self.cluster.running:
            self.cluster.nodetool(number, "flush", self.keyspace, physical)
            self.cluster.nodetool(number, "compact", self.keyspace, physical)


def empty(store: CassandraStore) -> None:
    """Tables of cells always: where nothing can be read, there may be tombstones."""
    found = store.tables()
    for table in found:
        if not table.is_system:
            store.drop_table(table)
    session = session_of(store)
    cells = [full_name(store, each) for each, metadata in SYSTEM_TABLES.items() if metadata.layout is Layout.CELLS]
    others = [full_name(store, each) for each, metadata in SYSTEM_TABLES.items() if metadata.layout is Layout.REGISTERS]
    looks = execute_concurrent(session, [(f"SELECT key FROM {name} LIMIT 1", ()) for name in others])
    filled = [name for name, (_, rows) in zip(others, looks, strict=True) if rows.one()]
    execute_concurrent(session, [(f"TRUNCATE {name}", ()) for name in cells + filled], concurrency=8)


def session_of(store: CassandraStore) -> Session:
    return store.connection.session


def full_name(store: CassandraStore, table: TableRef) -> str:
    return store.catalog.physical(table)


def physical_name(store: CassandraStore, table: TableRef) -> str:
    return full_name(store, table).partition(".")[2].strip('"')


def write_times(store: CassandraStore, table: TableRef) -> dict[tuple[bytes, bytes, int], int]:
    """Of what can be read, by cell and version."""
    rows = session_of(store).execute(
        f"SELECT key, column1, column2, WRITETIME(value) AS written FROM {full_name(store, table)}"
    )
    return {(row.key, row.column1, ~row.column2): row.written for row in rows}
