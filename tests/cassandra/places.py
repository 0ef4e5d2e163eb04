"""An empty store on a running Cassandra, again and again.

Making a keyspace takes many changes of the schema; emptying one takes a few truncations. Nothing is removed by
tombstones, which would hide what the next test writes below them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cassandra.cluster import Session
from cassandra.concurrent import execute_concurrent

from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.local.cassandra import LocalCluster
from sweep_tasks.model import Layout, TableRef
from sweep_tasks.store import initialise_store
from sweep_tasks.store.cassandra.catalog import CATALOG
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.store.schema import SYSTEM_TABLES
from sweep_tasks.tables.catalog import Catalog
from tests.support.waiting import eventually

COMPACTION_ATTEMPTS = 6


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
        """Flush everything, then compact it into one file. A busy node may decline and report it in its log only, and
        files that were replaced are removed a little later."""
        physical = physical_name(store, table)
        for number in self.cluster.running:
            self.cluster.nodetool(number, "flush", self.keyspace, physical)
            folder = self.cluster.data_folder(number) / self.keyspace

            def is_one_file(folder: Path = folder) -> bool:
                return len(list(folder.glob(f"{physical}-*/*-Data.db"))) <= 1

            for _ in range(COMPACTION_ATTEMPTS):
                self.cluster.nodetool(number, "compact", self.keyspace, physical)
                if eventually(is_one_file, patience_s=10):
                    break
            else:
                raise AssertionError(f"node {number} still has several files of {physical}")


def empty(store: CassandraStore) -> None:
    """Remove all data and all tables, as if none had ever been there.

    The server takes half a second to drop a table and another to create it, so physical tables stay, truncated, for
    the next table of that name. A dropped one keeps its number, which is in use in Cassandra's files. Tables of cells
    are truncated whether something can be read in them or not: there may be tombstones.
    """
    session = session_of(store)
    forget = (
        f'UPDATE {store.connection.address.keyspace}."{CATALOG}" SET generation = %s, metadata = null'
        " WHERE scope = 'tables' AND name = %s IF EXISTS"
    )
    existing = {table: row for table, row in store.catalog_rows().items() if not table.is_system}
    cells = [full_name(store, each) for each, metadata in SYSTEM_TABLES.items() if metadata.layout is Layout.CELLS]
    cells += [full_name(store, table) for table, row in existing.items() if not row.is_gone]
    others = [full_name(store, each) for each, metadata in SYSTEM_TABLES.items() if metadata.layout is Layout.REGISTERS]
    looks = execute_concurrent(session, [(f"SELECT key FROM {name} LIMIT 1", ()) for name in others])
    filled = [name for name, (_, rows) in zip(others, looks, strict=True) if rows.one()]
    execute_concurrent(session, [(f"TRUNCATE {name}", ()) for name in cells + filled], concurrency=8)
    for table, row in existing.items():
        session.execute(forget, (row.incarnation if row.is_gone else row.incarnation - 1, str(table)))
        store.catalog.forget(table)


@contextmanager
def altered(store: CassandraStore, table: TableRef, options: str) -> Iterator[None]:
    """Give a physical table other options, and drop it afterwards: the next table of that name has none of them."""
    session_of(store).execute(f"ALTER TABLE {full_name(store, table)} WITH {options}")
    try:
        yield
    finally:
        Catalog(store).drop(table, force=True)


def session_of(store: CassandraStore) -> Session:
    return store.connection.session


def full_name(store: CassandraStore, table: TableRef) -> str:
    return store.catalog.in_use(table)[1]


def physical_name(store: CassandraStore, table: TableRef) -> str:
    return full_name(store, table).partition(".")[2].strip('"')


def write_times(store: CassandraStore, table: TableRef) -> dict[tuple[bytes, bytes, int], int]:
    """Return the write time of each version that can be read, by cell and version."""
    rows = session_of(store).execute(
        f"SELECT key, column1, column2, WRITETIME(value) AS written FROM {full_name(store, table)}"
    )
    return {(row.key, row.column1, ~row.column2): row.written for row in rows}
