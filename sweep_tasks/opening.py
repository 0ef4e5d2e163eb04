"""Opening a store, with the timestamp service that it may need for its own writes.

The service keeps its state in the store, and a store such as Cassandra takes the write times of its tombstones from the
service. So they are put together here, above both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sweep_tasks.config import Settings
from sweep_tasks.store import StoreLocation, location
from sweep_tasks.store.contract import Store
from sweep_tasks.timestamps.service import TimestampService


def open_store(url: str, settings: Settings) -> Store:
    """A store that was initialised before; `memory:` is always new and empty."""
    return location.open_store(url, settings, _fresh_timestamps)


@contextmanager
def borrowed_store(settings: Settings) -> Iterator[Store]:
    """For a task that is soon over: making a connection to a cluster can take longer than the task itself, so it is
    kept for the next one of this process."""
    if StoreLocation.parse(settings.store).cassandra:
        with _KEPT.borrowed(settings) as store:
            yield store
    else:
        with open_store(settings.store, settings) as store:
            yield store


class _Kept:
    """One store for whoever comes with its settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.users = 0
        self._opening = threading.Lock()
        self._store: Store | None = None

    def opened(self) -> Store:
        """By the first who comes; the others wait for that instead of opening one each."""
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
    """The last few, by their settings. One that makes room is closed when its last user is done with it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: dict[Settings, _Kept] = {}

    @contextmanager
    def borrowed(self, settings: Settings) -> Iterator[Store]:
        with self._lock:
            kept = self._kept.pop(settings, None) or _Kept(settings)
            self._kept[settings] = kept  # the last in line
            kept.users += 1
        try:
            yield kept.opened()
        finally:
            with self._lock:
                kept.users -= 1
                leaving = self._leaving()
            for each in leaving:
                each.close()

    def _leaving(self) -> list[_Kept]:
        """Those that nobody uses, the oldest first, until few enough are left."""
        idle = [each for each in self._kept.values() if not each.users]
        leaving = idle[: max(0, len(self._kept) - self._most)]
        for each in leaving:
            del self._kept[each.settings]
        return leaving


_KEPT = KeptStores(2)


def _fresh_timestamps(store: Store) -> Callable[[], int]:
    return TimestampService(store).fresh
