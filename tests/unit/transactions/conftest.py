from __future__ import annotations

from collections.abc import Iterator

import pytest

from sweep_tasks.model import SweepStrategy, TableMetadata, TableRef
from sweep_tasks.store import Store
from sweep_tasks.transactions import TransactionManager
from tests.support.clock import ManualClock


@pytest.fixture
def manager(store: Store, clock: ManualClock) -> Iterator[TransactionManager]:
    with TransactionManager(store, clock=clock, renew_leases=False) as created:
        yield created


@pytest.fixture
def thorough(store: Store) -> TableRef:
    ref = TableRef.parse("app.thorough")
    store.create_table(ref, TableMetadata(SweepStrategy.THOROUGH))
    return ref
