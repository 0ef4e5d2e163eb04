from __future__ import annotations

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.errors import NotInitialised, ShardsLowered
from sweep_tasks.orchestration.prepare import settle_shards
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store import Store


def test_the_number_of_shards_is_raised_to_the_configured_one(sqlite: Store, sqlite_url: str) -> None:
    assert settle_shards(Settings(store=sqlite_url, shards=3), dry_run=False) == 3
    assert settle_shards(Settings(store=sqlite_url, shards=3), dry_run=False) == 3
    assert Progress(sqlite).shards() == 3


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_lower_number_is_refused(sqlite: Store, sqlite_url: str, dry_run: bool) -> None:
    Progress(sqlite).raise_shards(4)
    with pytest.raises(ShardsLowered) as refused:
        settle_shards(Settings(store=sqlite_url, shards=3), dry_run=dry_run)
    assert (refused.value.standing, refused.value.asked) == (4, 3)


def test_a_dry_run_raises_nothing(sqlite: Store, sqlite_url: str) -> None:
    assert settle_shards(Settings(store=sqlite_url, shards=3), dry_run=True) == 1
    assert Progress(sqlite).shards() == 1


def test_a_store_that_is_not_there_is_named() -> None:
    with pytest.raises(NotInitialised) as refused:
        settle_shards(Settings(store="sqlite:////nowhere/at/all.db"), dry_run=False)
    assert refused.value.where == "sqlite:////nowhere/at/all.db"
    assert f"sweepflow init --store {refused.value.where}" in str(refused.value)
