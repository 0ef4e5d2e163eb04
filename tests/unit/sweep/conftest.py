from __future__ import annotations

import pytest

from sweep_tasks.store import Store
from tests.support.clock import ManualClock
from tests.unit.sweep.world import World


@pytest.fixture
def world(store: Store, clock: ManualClock) -> World:
    return World(store, clock)
