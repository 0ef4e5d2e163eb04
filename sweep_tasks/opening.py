"""Opening a store, with the timestamp service that it may need for its own writes.

The service keeps its state in the store, and a store such as Cassandra takes the write times of its tombstones from the
service. So they are put together here, above both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

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
        yield _kept(settings)
    else:
        with open_store(settings.store, settings) as store:
            yield store


@lru_cache(maxsize=2)
def _kept(settings: Settings) -> Store:
    return open_store(settings.store, settings)


def _fresh_timestamps(store: Store) -> Callable[[], int]:
    return TimestampService(store).fresh
