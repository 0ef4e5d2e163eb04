"""How many calls to the store a transaction costs. On Cassandra each is at least one round trip."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sweep_tasks.model import Cell, ConflictHandling, TableMetadata, TableRef
from sweep_tasks.store.faults import FaultyStore
from sweep_tasks.transactions import TransactionManager
from tests.conftest import memory_store
from tests.support.clock import ManualClock

TABLE = TableRef.parse("app.items")
START = ["update", "put_if_absent", "update"]
"""A lower bound for the lease, the lease, the start timestamp."""
ENQUEUE = ["tables", "compare_and_set", "put"]
"""How the tables are swept, the start among those that are committing, the entries."""
CHECK = ["tables", "read"]
"""The catalog rows and the thresholds."""
CONFLICTS = ["newest", "newest"]
"""Writers that started later, and earlier ones that committed since the start."""
COMMIT = ["update", *CHECK, "put_if_absent", "remove"]
"""The commit timestamp, the second check, the decision; the lease ends."""
CELLS = [Cell(b"row", b"%d" % number) for number in range(20)]


@pytest.fixture(params=ConflictHandling)
def conflicts(request: pytest.FixtureRequest) -> ConflictHandling:
    handling: ConflictHandling = request.param
    return handling


@pytest.fixture
def counted(clock: ManualClock, conflicts: ConflictHandling) -> FaultyStore:
    store = memory_store(clock)
    store.create_table(TABLE, TableMetadata(conflicts=conflicts))
    return FaultyStore(store)


@pytest.fixture
def manager(counted: FaultyStore, clock: ManualClock) -> TransactionManager:
    """Has done what only a first transaction has to do."""
    made = TransactionManager(counted, clock=clock, renew_leases=False)
    write(made, 1)
    return made


def write(manager: TransactionManager, cells: int) -> None:
    with manager.transaction() as tx:
        for cell in CELLS[:cells]:
            tx.put(TABLE, *cell, b"value")


def calls_of(counted: FaultyStore, work: Callable[[], object]) -> list[str]:
    """Return the names of the calls, in order."""
    calls: list[str] = []
    counted.before = lambda call: calls.append(call.name)
    work()
    counted.before = None
    return calls


@pytest.mark.parametrize("cells", [1, 20])
def test_the_calls_of_a_commit_do_not_depend_on_the_number_of_cells(
    counted: FaultyStore, manager: TransactionManager, conflicts: ConflictHandling, cells: int
) -> None:
    """Sixteen, or fourteen in a table that does not look for conflicts."""
    looks = CONFLICTS if conflicts is ConflictHandling.FIRST_COMMITTER_WINS else []
    calls = calls_of(counted, lambda: write(manager, cells))
    assert calls == [*START, *ENQUEUE, *CHECK, "put", *looks, *COMMIT]


@pytest.mark.parametrize("cells", [1, 20])
def test_the_calls_of_a_read_do_not_depend_on_the_number_of_cells(
    counted: FaultyStore, manager: TransactionManager, cells: int
) -> None:
    """Four: is the timestamp handed out, the versions, and the check after them."""
    write(manager, 20)
    at = manager.timestamps.fresh()
    calls = calls_of(counted, lambda: manager.read_at(at).get_many(TABLE, CELLS[:cells]))
    assert calls == ["read", "get", *CHECK]
