"""The memory store can fail, crash, delay or lose the answer of any call, on command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sweep_tasks.errors import OutcomeUnknown, StoreUnavailable
from sweep_tasks.model import EVERYTHING, Cell, TableMetadata, TableRef, TableState, VersionRange
from sweep_tasks.store import Change, Store
from sweep_tasks.store.faults import (
    FaultyStore,
    ProcessCrashed,
    crash,
    delay,
    fail,
    lose_answer,
    miss_a_replica,
    on,
    tear,
)
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.store.schema import LEASES
from tests.support.clock import ManualClock

T = TableRef.parse("app.items")
NEW, GONE = TableRef.parse("app.new"), TableRef.parse("app.gone")
A, B, C = (Cell(row, b"c") for row in (b"a", b"b", b"c"))

EVERY_CALL: dict[str, Callable[[Store], Any]] = {
    "create_table": lambda store: store.create_table(NEW, TableMetadata()),
    "alter_table": lambda store: store.alter_table(T, TableMetadata(), TableMetadata(retention_s=1)),
    "remove_table": lambda store: store.remove_table(GONE, 1),
    "catalog_rows": lambda store: store.catalog_rows(),
    "tables": lambda store: store.tables(),
    "get": lambda store: store.get(T, {A: 9}),
    "newest": lambda store: store.newest(T, {A: 9}),
    "timestamps": lambda store: store.timestamps(T, [A]),
    "scan": lambda store: store.scan(T, 9, EVERYTHING),
    "scan_versions": lambda store: store.scan_versions(T),
    "scan_ranges": lambda store: store.scan_ranges(T, 2),
    "end_of": lambda store: store.end_of(T),
    "put": lambda store: store.put(7, {T: {A: b"v"}}),
    "put_late": lambda store: store.put_late(7, {T: {A: b"v"}}),
    "add_sentinels": lambda store: store.add_sentinels(T, [A]),
    "delete_versions": lambda store: store.delete_versions(T, [(A, 5)]),
    "delete_ranges": lambda store: store.delete_ranges(T, [VersionRange(A, 0, 9)]),
    "delete_everywhere": lambda store: store.delete_everywhere(T, [VersionRange(A, 0, 9)]),
    "delete_rows": lambda store: store.delete_rows(T, [A.row]),
    "read": lambda store: store.read(LEASES, [A]),
    "peek": lambda store: store.peek(LEASES, [A]),
    "read_rows": lambda store: store.read_rows(LEASES, [A.row]),
    "scan_registers": lambda store: store.scan_registers(LEASES),
    "put_if_absent": lambda store: store.put_if_absent(LEASES, {A: b"x"}),
    "compare_and_set": lambda store: store.compare_and_set(LEASES, B.row, {B.column: Change(b"x", b"y")}),
    "update": lambda store: store.update(LEASES, B, lambda _: b"z"),
    "remove": lambda store: store.remove(LEASES, [B]),
    "size": lambda store: store.size(),
}
READS = {
    "catalog_rows",
    "tables",
    "get",
    "newest",
    "timestamps",
    "scan",
    "scan_versions",
    "scan_ranges",
    "end_of",
    "read",
    "peek",
    "read_rows",
    "scan_registers",
    "size",
}


@pytest.fixture
def faulty(memory: MemoryStore) -> FaultyStore:
    memory.create_table(T, TableMetadata())
    memory.create_table(GONE, TableMetadata())
    memory.put(5, {T: {A: b"v"}, GONE: {A: b"v"}})
    memory.alter_table(GONE, TableMetadata(), TableMetadata(state=TableState.GONE))
    memory.put_if_absent(LEASES, {B: b"x"})
    return FaultyStore(memory)


def everything(store: Store) -> object:
    assert isinstance(store, MemoryStore)
    return store.catalog_rows(), store.scan_versions(T), list(store.contents[GONE].rows), store.read(LEASES, [A, B])


def test_every_call_of_the_contract_is_tried_here() -> None:
    contract = {name for name, member in vars(Store).items() if callable(member) and not name.startswith("_")}
    no_step = {"row_order", "share_before", "tokens", "incarnation_in_use", "close"}
    several_steps = {"truncate"}
    assert set(EVERY_CALL) == contract - no_step - several_steps


@pytest.mark.parametrize("name", EVERY_CALL)
class TestEveryCall:
    def test_a_refused_call_does_nothing(self, faulty: FaultyStore, name: str) -> None:
        before = everything(faulty.inner)
        faulty.before = fail
        with pytest.raises(StoreUnavailable) as refused:
            EVERY_CALL[name](faulty)
        assert name in str(refused.value)
        assert everything(faulty.inner) == before

    def test_a_lost_answer_means_the_work_was_done(self, faulty: FaultyStore, name: str) -> None:
        before = everything(faulty.inner)
        faulty.after = lose_answer
        with pytest.raises(OutcomeUnknown) as lost:
            EVERY_CALL[name](faulty)
        assert name in str(lost.value)
        assert (everything(faulty.inner) == before) == (name in READS)

    def test_a_crash_before_the_call_is_the_end_of_the_process(self, faulty: FaultyStore, name: str) -> None:
        before = everything(faulty.inner)
        faulty.before = crash
        with pytest.raises(ProcessCrashed):
            EVERY_CALL[name](faulty)
        faulty.before = None
        with pytest.raises(ProcessCrashed):
            EVERY_CALL[name](faulty)
        assert everything(faulty.inner) == before

    def test_a_delayed_call_is_carried_out_late(self, faulty: FaultyStore, name: str, clock: ManualClock) -> None:
        began = clock.now_ms()
        faulty.before = delay(clock, 3)
        EVERY_CALL[name](faulty)
        assert clock.now_ms() == began + 3_000


def test_a_torn_bulk_call_does_a_part_and_loses_the_answer(faulty: FaultyStore) -> None:
    faulty.before = on("put", 1, tear(2))
    with pytest.raises(OutcomeUnknown):
        faulty.put(7, {T: {A: b"v", B: b"v", C: b"v"}})
    assert faulty.newest(T, dict.fromkeys((A, B, C), 9)) == {A: 7, B: 7}
    faulty.before = on("delete_versions", 1, tear(1))
    with pytest.raises(OutcomeUnknown):
        faulty.delete_versions(T, [(A, 7), (B, 7)])
    assert faulty.newest(T, dict.fromkeys((A, B, C), 9)) == {A: 5, B: 7}


@pytest.mark.parametrize(("reaches_the_others", "left"), [(True, {}), (False, {A: [5]})])
def test_with_a_replica_missing_nothing_is_confirmed_by_all(
    faulty: FaultyStore, reaches_the_others: bool, left: dict[Cell, list[int]]
) -> None:
    faulty.before = miss_a_replica(reaches_the_others)
    ranges = [VersionRange(A, 0, 9), VersionRange(B, 0, 9)]
    assert faulty.delete_everywhere(T, ranges) == ranges
    assert faulty.timestamps(T, [A]) == left
    faulty.delete_ranges(T, ranges)
    assert faulty.timestamps(T, [A]) == {}, "a call that does not need every replica is done"


def test_a_replica_may_be_missing_for_one_call(faulty: FaultyStore) -> None:
    faulty.before = on("delete_everywhere", 2, miss_a_replica(True))
    ranges = [VersionRange(A, 0, 9)]
    assert [faulty.delete_everywhere(T, ranges) for _ in range(3)] == [[], ranges, []]


def test_a_fault_may_wait_for_the_nth_call(faulty: FaultyStore) -> None:
    faulty.before = on("put", 2, fail)
    faulty.put(7, {T: {A: b"v"}})
    faulty.get(T, {A: 9})
    with pytest.raises(StoreUnavailable):
        faulty.put(8, {T: {A: b"v"}})
    faulty.put(9, {T: {A: b"v"}})
    assert faulty.timestamps(T, [A]) == {A: [9, 7, 5]}
    assert faulty.calls == 5
