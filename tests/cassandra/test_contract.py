"""The conformance suite of all stores, on a real Cassandra."""

from __future__ import annotations

import pytest

from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.store import Store
from sweep_tasks.store.cassandra.store import CassandraStore
from tests.support.clock import PatientClock
from tests.unit.store.test_contract import *  # noqa: F403
from tests.unit.store.test_scan_ranges import *  # noqa: F403


@pytest.fixture
def clock() -> PatientClock:
    return PatientClock()


@pytest.fixture
def store(cassandra: CassandraStore) -> Store:
    """Versions are written at timestamps that the service has handed out, as every writer's are."""
    TimestampService(cassandra).move_past(1_000_000)
    return cassandra
