from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import BaseBranchOperator
from airflow.sdk.exceptions import AirflowFailException

from sweep_tasks.config import Settings
from sweep_tasks.errors import BadValue, SweepflowError
from sweep_tasks.orchestration.compacting import PrepareCompaction
from sweep_tasks.orchestration.prepare import PrepareSweep, raise_shards
from sweep_tasks.orchestration.scanning import ChooseTables
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store import Store
from tests.support.errors import having


def test_the_number_of_shards_is_raised_to_the_configured_one(sqlite: Store, sqlite_url: str) -> None:
    assert raise_shards(sqlite, Settings(store=sqlite_url, shards=3), dry_run=False) == 3
    assert raise_shards(sqlite, Settings(store=sqlite_url, shards=3), dry_run=False) == 3
    assert Progress(sqlite).shards() == 3


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_lower_number_is_refused(sqlite: Store, sqlite_url: str, dry_run: bool) -> None:
    Progress(sqlite).raise_shards(4)
    with pytest.raises(SweepflowError, check=having(code="shards_lowered")) as refused:
        raise_shards(sqlite, Settings(store=sqlite_url, shards=3), dry_run=dry_run)
    assert (refused.value.details["standing"], refused.value.details["asked"]) == (4, 3)


def test_a_dry_run_raises_nothing(sqlite: Store, sqlite_url: str) -> None:
    assert raise_shards(sqlite, Settings(store=sqlite_url, shards=3), dry_run=True) == 1
    assert Progress(sqlite).shards() == 1


@pytest.mark.parametrize(
    "first",
    [
        PrepareSweep(task_id="prepare"),
        ChooseTables(task_id="choose"),
        PrepareCompaction(task_id="prepare", nodes=[]),
    ],
    ids=lambda task: type(task).__name__,
)
def test_the_first_task_of_a_run_refuses_a_variable_that_names_no_setting(
    monkeypatch: pytest.MonkeyPatch, sqlite_url: str, first: BaseBranchOperator
) -> None:
    monkeypatch.setenv("SWEEPFLOW_STORE", sqlite_url)
    monkeypatch.setenv("SWEEPFLOW_LAG_OBJECTIVE_THOROGH_S", "60")
    context: Any = {"triggering_asset_events": {}, "params": {"dry_run": False}}
    with pytest.raises(AirflowFailException) as failed:
        first.choose_branch(context)
    error = failed.value.__context__
    assert isinstance(error, BadValue)
    assert error.field == "SWEEPFLOW_LAG_OBJECTIVE_THOROGH_S"
    assert error.details["nearest"] == "SWEEPFLOW_LAG_OBJECTIVE_THOROUGH_S"
