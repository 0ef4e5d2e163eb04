"""Which store is meant: `memory:`, `sqlite:///path` or `cassandra://host1,host2:9042/keyspace`.

As everywhere in the Airflow world, three slashes start a relative path and four an absolute one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sweep_tasks.config import Settings
from sweep_tasks.errors import BadValue
from sweep_tasks.store.cassandra.address import FORM, CassandraAddress
from sweep_tasks.store.contract import Store
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.store.sqlite import SQLiteStore
from sweep_tasks.store.system import SYSTEM_TABLES

_FORMS = "memory:, sqlite:///relative/path, sqlite:////absolute/path or " + FORM


@dataclass(frozen=True, slots=True)
class StoreLocation:
    scheme: str
    path: Path | None = None
    cassandra: CassandraAddress | None = None

    def __str__(self) -> str:
        if self.cassandra:
            return str(self.cassandra)
        return f"sqlite:///{self.path}" if self.path else f"{self.scheme}:"

    @classmethod
    def parse(cls, url: str) -> StoreLocation:
        scheme, colon, rest = url.partition(":")
        if not colon:
            raise BadValue("store", f"{url!r} is not a store address; give {_FORMS}", reason="malformed")
        if scheme == "memory":
            if rest.strip("/"):
                raise BadValue("store", "memory: takes nothing behind the colon", reason="unexpected")
            return cls("memory")
        if scheme == "sqlite":
            path = rest.removeprefix("///")
            if path == rest or not path or path.endswith("/") or "?" in path:
                raise BadValue(
                    "store",
                    f"{url!r} names no file; give sqlite:///relative/path or sqlite:////absolute",
                    reason="missing",
                )
            return cls("sqlite", Path(path))
        if scheme == "cassandra":
            return cls("cassandra", cassandra=CassandraAddress.parse(rest))
        raise BadValue("store", f"unknown kind of store {scheme!r}; give {_FORMS}", reason="unknown")


def from_anywhere(url: str) -> str:
    """The same store for a process that works in another folder."""
    path = StoreLocation.parse(url).path
    return f"sqlite:///{path.absolute()}" if path else url


def open_store(url: str, settings: Settings, fresh_timestamps: Callable[[Store], Callable[[], int]]) -> Store:
    """A store that was initialised before; `memory:` is always new and empty. Only Cassandra asks for timestamps."""
    location = StoreLocation.parse(url)
    if location.cassandra:
        # The driver takes a third of a second to import, which a command on SQLite should not wait for.
        from sweep_tasks.store.cassandra.store import CassandraStore

        return CassandraStore(location.cassandra, settings, fresh_timestamps)
    if location.path is None:
        return _new_memory_store()
    return SQLiteStore(
        location.path,
        busy_timeout_s=settings.sqlite_busy_timeout_s,
        durability=settings.sqlite_durability,
    )


def initialise_store(url: str, settings: Settings) -> bool:
    """Create what the store needs, or bring an older one up; True if it is new. Safe to repeat."""
    location = StoreLocation.parse(url)
    if location.cassandra:
        from sweep_tasks.store.cassandra.schema import initialise

        return initialise(location.cassandra, settings)
    if location.path is None:
        return True
    return SQLiteStore.initialise(location.path, busy_timeout_s=settings.sqlite_busy_timeout_s)


def _new_memory_store() -> MemoryStore:
    store = MemoryStore()
    for table, metadata in SYSTEM_TABLES.items():
        store.create_table(table, metadata)
    return store
