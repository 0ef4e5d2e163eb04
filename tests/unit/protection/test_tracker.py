"""The tracker: reads the records again only if it must, and one caller at a time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sweep_tasks.errors import StoreUnavailable
from sweep_tasks.model import TableMetadata, TableRef
from sweep_tasks.protection.catalog import KnownProtections, ProtectionCatalog, Tracker
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.store.faults import FaultyStore, StoreCall
from sweep_tasks.store.memory import MemoryStore
from tests.support.clock import ManualClock

TABLE = TableRef.parse("app.items")


class Watched:
    """A tracker on a store that records its reads."""

    def __init__(self, memory: MemoryStore, clock: ManualClock) -> None:
        memory.create_table(TABLE, TableMetadata())
        self.calls: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fails = False
        self.catalog = ProtectionCatalog(memory)
        self.tracker = Tracker(ProtectionCatalog(FaultyStore(memory, before=self._note)), clock, refresh_s=300)

    def _note(self, call: StoreCall) -> None:
        self.calls.append(call.name)
        self.gate.wait(60)
        if self.fails:
            raise StoreUnavailable("store: gone")

    def protect(self, name: str) -> None:
        assert self.catalog.protect(Record(name, 50, Mode.AT, (Target(TABLE),))).accepted

    def names(self, known: KnownProtections) -> list[str]:
        self.calls.clear()
        return sorted(record.id for record in known.records)


@pytest.fixture
def watched(memory: MemoryStore, clock: ManualClock) -> Watched:
    return Watched(memory, clock)


def test_the_list_is_read_only_if_the_version_moved(watched: Watched) -> None:
    watched.protect("a")
    assert watched.names(watched.tracker.refresh()) == ["a"]
    watched.tracker.refresh()
    assert watched.calls == ["read"], "the version alone"
    watched.protect("b")
    watched.calls.clear()
    known = watched.tracker.refresh()
    assert watched.calls == ["read", "read_rows"]
    assert watched.names(known) == ["a", "b"]


def test_it_reports_the_time_of_its_last_read(watched: Watched, clock: ManualClock) -> None:
    first = watched.tracker.known()
    assert first.as_of_ms == clock.now_ms()
    clock.advance(299)
    assert watched.tracker.known() is first, "young enough"
    clock.advance(1)
    assert watched.tracker.known().as_of_ms == clock.now_ms()
    assert watched.tracker.known().version == first.version


def test_a_change_is_known_after_the_interval_or_on_demand(watched: Watched, clock: ManualClock) -> None:
    watched.tracker.known()
    watched.protect("a")
    assert watched.names(watched.tracker.known()) == []
    assert watched.names(watched.tracker.refresh()) == ["a"]
    watched.protect("b")
    clock.advance(300)
    assert watched.names(watched.tracker.known()) == ["a", "b"]


def test_concurrent_callers_share_one_read_and_later_callers_the_next(watched: Watched) -> None:
    watched.gate.clear()
    with ThreadPoolExecutor(21) as pool:
        first = pool.submit(watched.tracker.refresh)
        while not watched.calls:
            pass
        watched.protect("a")
        others = [pool.submit(watched.tracker.refresh) for _ in range(20)]
        while watched.tracker.waiting < 20:
            pass
        watched.gate.set()
        assert {len(each.result().records) for each in others} == {1}, "started after their calls"
        first.result()
    assert watched.calls.count("read") == 2


def test_a_failed_read_returns_no_older_records(watched: Watched) -> None:
    watched.tracker.refresh()
    watched.fails = True
    with pytest.raises(StoreUnavailable):
        watched.tracker.refresh()
    watched.fails = False
    watched.protect("a")
    assert watched.names(watched.tracker.refresh()) == ["a"]
