"""Strategy changes on a real Cassandra, whose writes and tombstones have times of their own."""

from __future__ import annotations

import pytest

from sweep_tasks.model import SweepStrategy
from sweep_tasks.store.cassandra.store import CassandraStore
from tests.cassandra.places import Place
from tests.support.strategy_changes import check_a_writer_of_the_old_strategy

CONSERVATIVE, THOROUGH, NOTHING = SweepStrategy


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [(CONSERVATIVE, THOROUGH, ""), (THOROUGH, CONSERVATIVE, "second"), (NOTHING, THOROUGH, "")],
)
def test_versions_replaced_under_the_old_strategy_are_removed_and_no_reader_is_wrong(
    cassandra: CassandraStore, place: Place, old: SweepStrategy, new: SweepStrategy, value: str
) -> None:
    settings = place.settings.model_copy(update={"retention_s": 0})
    check_a_writer_of_the_old_strategy(cassandra, settings, old, new, value)
