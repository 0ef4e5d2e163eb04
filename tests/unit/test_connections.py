"""Stores that are kept between short pieces of work: opened once, and closed when they are evicted."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sweep_tasks import connections as opening
from sweep_tasks.config import Settings
from sweep_tasks.connections import KeptStores
from sweep_tasks.errors import StoreUnavailable
from sweep_tasks.store.contract import Store
from sweep_tasks.store.memory import MemoryStore


class Kept(MemoryStore):
    closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Kept]:
    """What was opened, in order; each takes its time."""
    created: list[Kept] = []

    def slowly(url: str, settings: Settings) -> Store:
        threading.Event().wait(0.05)
        created.append(Kept())
        return created[-1]

    monkeypatch.setattr(opening, "open_store", slowly)
    return created


def named(name: str) -> Settings:
    return Settings(store=f"cassandra://{name}:9042/k")


def test_concurrent_users_share_one_connection(opened: list[Kept]) -> None:
    kept = KeptStores(2)

    def use(_: int) -> Store:
        with kept.borrow(named("a")) as store:
            return store

    with ThreadPoolExecutor(8) as pool:
        assert len(set(map(id, pool.map(use, range(8))))) == len(opened) == 1


def test_an_evicted_store_is_closed_when_it_is_no_longer_used(opened: list[Kept]) -> None:
    kept = KeptStores(1)
    with kept.borrow(named("a")):
        with kept.borrow(named("b")):
            assert [store.closed for store in opened] == [False, False]
        assert [store.closed for store in opened] == [False, True], "the other is still in use"
    with kept.borrow(named("a")):
        assert len(opened) == 2
    with kept.borrow(named("c")):
        pass
    assert [store.closed for store in opened] == [True, True, False]


def test_one_that_can_not_be_opened_is_tried_again_by_the_next(
    opened: list[Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = KeptStores(2)

    def away(url: str, settings: Settings) -> Store:
        raise StoreUnavailable("store: away")

    with monkeypatch.context() as patch:
        patch.setattr(opening, "open_store", away)
        with pytest.raises(StoreUnavailable), kept.borrow(named("a")):
            pass
    with kept.borrow(named("a")) as store:
        assert store is opened[0]
