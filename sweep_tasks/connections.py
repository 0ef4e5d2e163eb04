"""Opening stores, with the timestamp service that a store may need for its own writes.

The timestamp service keeps its state in the store, and Cassandra's store takes the write times of tombstones from the
service. So both are connected here, in a module above both packages.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sweep_tasks.config import Settings
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.processes import call_in_each_process
from sweep_tasks.store import StoreLocation, location
from sweep_tasks.store.contract import Store


def open_store(url: str, settings: Settings) -> Store:
    """Open an initialised store; `memory:` is always new and empty."""
    return location.open_store(url, settings, _fresh_timestamps)


@contextmanager
def borrow_store(settings: Settings) -> Iterator[Store]:
    """Lend a store to a short task.

    Connecting to a cluster can take longer than the task itself, so the connection is kept for the next task of this
    process.
    """
    if StoreLocation.parse(settings.store).is_slow_to_open:
        with _KEPT.borrow(settings) as store:
            yield store
    else:
        with open_store(settings.store, settings) as store:
            yield store


class _Kept:
    """One open store, shared by all users with the same settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.users = 0
        self._opening = threading.Lock()
        self._store: Store | None = None

    def open(self) -> Store:
        """Return the store. The first user opens it, and the others wait for that."""
        with self._opening:
            if self._store is None:
                self._store = open_store(self.settings.store, self.settings)
            return self._store

    def close(self) -> None:
        with self._opening:
            if self._store is not None:
                self._store.close()
                self._store = None


class KeptStores:
    """The last few stores, by their settings. A store that is evicted is closed after its last user has returned it."""

    def __init__(self, most: int) -> None:
        self._most = most
        call_in_each_process(self, KeptStores._reset)

    def _reset(self) -> None:
        """Start empty in a forked child: the users of the stores are threads of its parent."""
        self._lock = threading.Lock()
        self._kept: dict[Settings, _Kept] = {}

    @contextmanager
    def borrow(self, settings: Settings) -> Iterator[Store]:
        with self._lock:
            kept = self._kept.pop(settings, None) or _Kept(settings)
            self._kept[settings] = kept  # moved to the end: most recently used
            kept.users += 1
        try:
            yield kept.open()
        finally:
            with self._lock:
                kept.users -= 1
                evicted = self._evict()
            for each in evicted:
                each.close()

    def _evict(self) -> list[_Kept]:
        """Remove and return unused stores, the oldest first, until few enough are left."""
        idle = [each for each in self._kept.values() if not each.users]
        evicted = idle[: max(0, len(self._kept) - self._most)]
        for each in evicted:
            del self._kept[each.settings]
        return evicted


_KEPT = KeptStores(2)


def _fresh_timestamps(store: Store) -> Callable[[], int]:
    return TimestampService(store).fresh
