"""The registry of stores: which URL names which kind of store, and how each kind is opened and initialised.

URLs are `memory:`, `sqlite:///path` or `cassandra://host1,host2:9042/keyspace`. As elsewhere in Airflow, three slashes
start a relative path and four an absolute one. A new kind of store is one more entry in `_KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sweep_tasks.config import Settings
from sweep_tasks.errors import BadValue, NotInitialised, StoreMissing
from sweep_tasks.extras import name_missing_extra
from sweep_tasks.store.cassandra.address import FORM, CassandraAddress
from sweep_tasks.store.contract import Store
from sweep_tasks.store.schema import SYSTEM_TABLES
from sweep_tasks.store.sqlite import SQLiteStore

_BESIDE_SQLITE = ("-wal", "-shm", "-journal")
"""The endings of the files that SQLite keeps beside a database while it is in use."""

FreshTimestamps = Callable[[Store], Callable[[], int]]
"""Returns, for a store, the function that hands out its fresh timestamps."""


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """A parsed store URL, and what is known about such a store without opening it."""

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
            raise BadValue("store", f"is not a store URL; give {_forms()}", reason="malformed")
        kind = _KINDS.get(scheme)
        if kind is None:
            raise BadValue("store", f"unknown kind of store {scheme!r}; give {_forms()}", reason="unknown")
        return kind.parse(rest)

    @property
    def is_persistent(self) -> bool:
        """Data outlives the process, and other processes can open the same store."""
        return self._kind.is_persistent

    @property
    def has_tombstones(self) -> bool:
        """Deleted data stays in files until a compaction purges it (`Capabilities.tombstones` of the open store)."""
        return self._kind.has_tombstones

    @property
    def is_slow_to_open(self) -> bool:
        """Connecting takes so long that an open store is kept for the next task of the process."""
        return self._kind.is_slow_to_open

    @property
    def _kind(self) -> _StoreKind:
        return _KINDS[self.scheme]


@dataclass(frozen=True, slots=True)
class _StoreKind:
    """One entry of the registry."""

    forms: str
    """How a URL of this kind is written, for error messages."""
    parse: Callable[[str], StoreLocation]
    """Parses what follows the scheme and the colon."""
    open: Callable[[StoreLocation, Settings, FreshTimestamps], Store]
    initialise: Callable[[StoreLocation, Settings], bool]
    is_persistent: bool = True
    has_tombstones: bool = False
    is_slow_to_open: bool = False


def open_store(url: str, settings: Settings, fresh_timestamps: FreshTimestamps) -> Store:
    """Open an initialised store; `memory:` is always new and empty. Only Cassandra uses `fresh_timestamps`."""
    location = StoreLocation.parse(url)
    try:
        return _KINDS[location.scheme].open(location, settings, fresh_timestamps)
    except StoreMissing as error:
        if _is_default(url, settings) and not _has_left_files(location):
            raise NotInitialised(error.where) from error
        raise


def initialise_store(url: str, settings: Settings) -> bool:
    """Create what the store needs, or migrate an older store; True if it is new. Safe to repeat."""
    location = StoreLocation.parse(url)
    return _KINDS[location.scheme].initialise(location, settings)


def absolute_url(url: str) -> str:
    """Return the URL of the same store for a process that runs in another folder."""
    path = StoreLocation.parse(url).path
    return f"sqlite:///{path.absolute()}" if path else url


def _is_default(url: str, settings: Settings) -> bool:
    """Return whether this is the default store and no setting names it.

    A store that is named explicitly is expected to exist: a new one in its place would look as if all data were lost.
    """
    return "store" not in settings.model_fields_set and url == settings.store


def _has_left_files(location: StoreLocation) -> bool:
    """Return whether files beside a missing SQLite file show that there was one. They may hold its last changes, which
    a new store in its place would lose."""
    path = location.path
    return path is not None and any(path.with_name(path.name + ending).exists() for ending in _BESIDE_SQLITE)


def _forms() -> str:
    *others, last = (kind.forms for kind in _KINDS.values())
    return f"{', '.join(others)} or {last}"


# --- the kinds of stores ------------------------------------------------------------------------------------------


def _parse_memory(rest: str) -> StoreLocation:
    if rest.strip("/"):
        raise BadValue("store", "memory: takes nothing after the colon", reason="unexpected")
    return StoreLocation("memory")


def _open_memory(location: StoreLocation, settings: Settings, fresh_timestamps: FreshTimestamps) -> Store:  # noqa: ARG001
    from sweep_tasks.store.memory import MemoryStore

    store = MemoryStore()
    for table, metadata in SYSTEM_TABLES.items():
        store.create_table(table, metadata)
    return store


def _initialise_memory(location: StoreLocation, settings: Settings) -> bool:  # noqa: ARG001
    return True


def _parse_sqlite(rest: str) -> StoreLocation:
    path = rest.removeprefix("///")
    if path == rest or not path or path.endswith("/") or "?" in path:
        raise BadValue(
            "store",
            "names no file; give sqlite:///relative/path or sqlite:////absolute",
            reason="missing",
        )
    return StoreLocation("sqlite", Path(path))


def _open_sqlite(location: StoreLocation, settings: Settings, fresh_timestamps: FreshTimestamps) -> Store:  # noqa: ARG001
    assert location.path is not None  # noqa: S101 (set by _parse_sqlite)
    return SQLiteStore(
        location.path,
        busy_timeout_s=settings.sqlite_busy_timeout_s,
        durability=settings.sqlite_durability,
    )


def _initialise_sqlite(location: StoreLocation, settings: Settings) -> bool:
    assert location.path is not None  # noqa: S101 (set by _parse_sqlite)
    return SQLiteStore.initialise(location.path, busy_timeout_s=settings.sqlite_busy_timeout_s)


def _parse_cassandra(rest: str) -> StoreLocation:
    return StoreLocation("cassandra", cassandra=CassandraAddress.parse(rest))


def _open_cassandra(location: StoreLocation, settings: Settings, fresh_timestamps: FreshTimestamps) -> Store:
    # Importing the driver takes a third of a second. A command on SQLite must not wait for it.
    with name_missing_extra():
        from sweep_tasks.store.cassandra.store import CassandraStore

    assert location.cassandra is not None  # noqa: S101 (set by _parse_cassandra)
    return CassandraStore(location.cassandra, settings, fresh_timestamps)


def _initialise_cassandra(location: StoreLocation, settings: Settings) -> bool:
    with name_missing_extra():
        from sweep_tasks.store.cassandra.schema import initialise

    assert location.cassandra is not None  # noqa: S101 (set by _parse_cassandra)
    return initialise(location.cassandra, settings)


_KINDS = {
    "memory": _StoreKind("memory:", _parse_memory, _open_memory, _initialise_memory, is_persistent=False),
    "sqlite": _StoreKind(
        "sqlite:///relative/path, sqlite:////absolute/path", _parse_sqlite, _open_sqlite, _initialise_sqlite
    ),
    "cassandra": _StoreKind(
        FORM, _parse_cassandra, _open_cassandra, _initialise_cassandra, has_tombstones=True, is_slow_to_open=True
    ),
}
