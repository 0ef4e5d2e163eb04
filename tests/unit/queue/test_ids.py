"""Table ids: each is assigned once to one name, even if a process dies or is overtaken in between."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sweep_tasks.encoding import read_var_signed_long, var_signed_long
from sweep_tasks.model import Cell, TableRef
from sweep_tasks.queue.encoding import hash_prefix
from sweep_tasks.queue.ids import TableIds
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore
from sweep_tasks.store.schema import ID_TO_NAME, NAME_TO_ID
from tests.conftest import memory_store
from tests.support.processes import in_processes
from tests.support.simulation import Process
from tests.unit.queue.concurrent import give_many

ONE, OTHER, THIRD = (TableRef.parse(f"app.{name}") for name in ("one", "other", "third"))


def give(store: Store, *tables: TableRef) -> list[int]:
    ids = TableIds(store)
    return [ids.id_of(table) for table in tables]


def giver(table: TableRef) -> Callable[[Store], list[int]]:
    return lambda store: give(store, table)


def test_ids_count_from_one(store: Store) -> None:
    assert give(store, ONE, OTHER, THIRD) == [1, 2, 3]


def test_a_name_keeps_its_id(store: Store) -> None:
    assert give(store, ONE, OTHER, ONE) == [1, 2, 1]
    assert give(store, OTHER, ONE) == [2, 1], "another process"


def test_a_name_is_found_by_its_id(store: Store) -> None:
    give(store, ONE, OTHER)
    ids = TableIds(store)
    assert [ids.name_of(number) for number in (1, 2, 3, 1)] == [ONE, OTHER, None, ONE]


def test_an_unknown_id_is_read_again_later(store: Store) -> None:
    ids = TableIds(store)
    assert ids.name_of(1) is None
    give(store, ONE)
    assert ids.name_of(1) == ONE


def test_ids_are_stored_as_atlasdb_stores_them(store: Store) -> None:
    give(store, ONE)
    name = b"app.one"
    assert store.read_rows(NAME_TO_ID, [hash_prefix(name) + name]) == {
        Cell(hash_prefix(name) + name, b"i"): var_signed_long(1)
    }
    assert store.read_rows(ID_TO_NAME, [hash_prefix(b"s") + b"s"]) == {Cell(hash_prefix(b"s") + b"s", b"\xfe"): name}


def test_the_greatest_id_sorts_first_in_its_row(store: Store) -> None:
    give(store, *(TableRef.parse(f"app.t{number}") for number in range(70)))
    columns = [cell.column for cell in store.read_rows(ID_TO_NAME, [hash_prefix(b"s") + b"s"])]
    assert columns == sorted(columns), "as the store returns them"
    assert columns[-1] == b"\xfe", "1 is the last"


def test_a_known_name_costs_no_call(store: Store) -> None:
    counting = FaultyStore(store)
    ids = TableIds(counting)
    ids.id_of(ONE)
    calls = counting.calls
    assert ids.id_of(ONE) == 1
    assert counting.calls == calls


@pytest.mark.parametrize("after", [False, True])
def test_after_a_crash_at_any_step_the_next_process_finishes_the_assignment(after: bool) -> None:
    counted = FaultyStore(memory_store())
    give(counted, ONE)
    for calls in range(1, counted.calls + 1):
        for next_one, first in ((ONE, True), (OTHER, False)):
            shared = memory_store()
            process = Process(shared, lambda store: give(store, ONE))
            for _ in range(calls):
                process.step()
            (process.crash_after_call if after else process.crash_here)()
            expected = give(shared, next_one)
            assert first is False or expected == [1], "what it had reserved is used"
            numbers = give(shared, ONE, OTHER)
            assert sorted(numbers) in ([1, 2], [2, 3], [1, 3])
            assert_consistent(shared, ONE, OTHER)


@pytest.mark.parametrize("names", [(ONE, ONE), (ONE, OTHER)])
def test_in_every_interleaving_a_name_has_one_id_and_an_id_one_name(names: tuple[TableRef, TableRef]) -> None:
    counted = FaultyStore(memory_store())
    give(counted, ONE)
    for lead in range(counted.calls + 1):
        for then in range(counted.calls + 1):
            shared = memory_store()
            first, second = (Process(shared, giver(name)) for name in names)
            for process, steps in ((first, lead), (second, then)):
                for _ in range(steps):
                    process.step()
            one, other = first.finish(), second.finish()
            assert one is not None
            assert (one == other) == (names[0] == names[1])
            assert_consistent(shared, *names)


def assert_consistent(store: Store, *tables: TableRef) -> None:
    ids = TableIds(store)
    for table in tables:
        assert ids.name_of(ids.id_of(table)) == table
    existing = [read_var_signed_long(value)[0] for _, value in store.scan_registers(NAME_TO_ID).items]
    assert all(number > 0 for number in existing), "nothing is left reserved"
    assert len(set(existing)) == len(existing)


def test_eight_processes_agree_on_every_id(sqlite: Store, sqlite_url: str) -> None:
    agreed: dict[str, int] = {}
    for given in in_processes(8, give_many, sqlite_url):
        for name, number in given.items():
            assert agreed.setdefault(name, number) == number
    assert len(agreed) == 14
    assert len(set(agreed.values())) == 14
    assert_consistent(sqlite, *map(TableRef.parse, agreed))
