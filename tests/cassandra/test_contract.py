"""The conformance suite of all stores, on a real Cassandra."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sweep_tasks.store import Store
from sweep_tasks.timestamps.service import TimestampService
from tests.cassandra.places import Place
from tests.support.clock import PatientClock
from tests.unit.store.test_contract import *  # noqa: F403


@pytest.fixture
def clock() -> PatientClock:
    return PatientClock()


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    """Versions are written at timestamps that the service has handed out, as every writer's are."""
    with place.emptied() as made:
        TimestampService(made).move_past(1_000_000)
        yield made
