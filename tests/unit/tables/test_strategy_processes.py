"""A table changes its strategy while a writer that holds the old one commits: two processes on one SQLite file."""

from __future__ import annotations

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.model import SweepStrategy
from sweep_tasks.store import Store
from tests.support.strategy_changes import check_a_writer_of_the_old_strategy

CONSERVATIVE, THOROUGH, NOTHING = SweepStrategy


@pytest.mark.parametrize("value", ["second", ""])
@pytest.mark.parametrize(
    ("old", "new"), [(CONSERVATIVE, THOROUGH), (THOROUGH, CONSERVATIVE), (NOTHING, CONSERVATIVE), (NOTHING, THOROUGH)]
)
def test_replaced_versions_are_removed_by_the_other_queue_or_by_the_scan_and_no_reader_is_wrong(
    sqlite: Store, sqlite_url: str, old: SweepStrategy, new: SweepStrategy, value: str
) -> None:
    check_a_writer_of_the_old_strategy(sqlite, Settings(store=sqlite_url, retention_s=0), old, new, value)
