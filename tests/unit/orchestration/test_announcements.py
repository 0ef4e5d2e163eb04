"""A run of the sweep announces its tombstones if there are many, over all shards."""

from __future__ import annotations

from typing import Any, cast

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowSkipException
from airflow.sdk.execution_time.context import OutletEventAccessors

from sweep_tasks.legacy.rules import ScanCounts
from sweep_tasks.legacy.run import LegacySummary
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.sweeping import (
    AnnounceTombstones,
    NothingWritten,
    TombstonesWritten,
    TooFewTombstones,
    is_worth_a_compaction,
    parse_summaries,
    tombstones_asset,
    tombstones_by_table,
)
from sweep_tasks.sweep.summary import Summary
from tests.support.lines import values_in


def shard(**tombstones: int) -> dict[str, Any]:
    by_table = {name.replace("_", "."): number for name, number in tombstones.items()}
    return Summary(SweepStrategy.CONSERVATIVE, 0, 10, tombstones=by_table).document()


SHARDS: dict[str, dict[str, Any] | None] = {
    "a": shard(shop_orders=600, shop_items=3),
    "b": shard(shop_orders=500),
    "failed": None,
    "idle": shard(),
}


class Instance:
    """The part of a task instance that the announcement uses."""

    def xcom_pull(self, task_ids: list[str]) -> list[dict[str, Any] | None]:
        return [SHARDS[task] for task in task_ids]


def announced(
    monkeypatch: pytest.MonkeyPatch, allowed: int, *, dry_run: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The result of the task, and the content of the event."""
    monkeypatch.setenv("SWEEPFLOW_COMPACTION_AFTER_TOMBSTONES", str(allowed))
    with DAG("sweep", schedule=None):
        announce = AnnounceTombstones(task_id="announce")
        for task in SHARDS:
            EmptyOperator(task_id=task) >> announce
    events = OutletEventAccessors()
    context = {"ti": Instance(), "outlet_events": events, "run_id": "hourly", "params": {"dry_run": dry_run}}
    result = announce.execute(cast(Any, context))
    return result, dict(events[tombstones_asset()].extra)


def test_writes_of_all_shards_are_reported_by_table(monkeypatch: pytest.MonkeyPatch) -> None:
    result, extra = announced(monkeypatch, 1_102)
    assert result == {"tombstones": 1_103, "tables": {"shop.orders": 1_100, "shop.items": 3}}
    assert extra == {**result, "run_id": "hourly"}


def test_writes_within_the_limit_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooFewTombstones) as skipped:
        announced(monkeypatch, 1_103)
    assert (skipped.value.tombstones, skipped.value.allowed) == (1_103, 1_103)
    assert values_in(str(skipped.value)) == ["1103", "1103"]
    assert issubclass(TooFewTombstones, AirflowSkipException), "the task is skipped, not failed"


def test_a_dry_run_starts_no_compaction_for_what_it_would_have_written(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NothingWritten):
        announced(monkeypatch, 1_102, dry_run=True)
    assert issubclass(NothingWritten, AirflowSkipException), "the task is skipped, not failed"


def test_zero_disables_the_announcement(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooFewTombstones) as skipped:
        announced(monkeypatch, 0)
    assert (skipped.value.tombstones, skipped.value.allowed) == (1_103, 0)
    assert "compaction_after_tombstones" in str(skipped.value)
    assert not is_worth_a_compaction(10**9, 0)


def test_writes_of_all_scans_in_all_slots_are_reported_by_table() -> None:
    def scan(table: str, tombstones: int) -> dict[str, Any]:
        all_of_it, this_time = ScanCounts(tombstones=10 * tombstones), ScanCounts(tombstones=tombstones)
        return LegacySummary("r", table, SweepStrategy.THOROUGH, 10, False, 4, 1, all_of_it, this_time).document()

    slots = [[scan("shop.orders", 7), scan("shop.items", 2)], None, [], [scan("shop.orders", 1)]]
    assert tombstones_by_table(*parse_summaries(slots)) == {"shop.orders": 8, "shop.items": 2}


def test_a_shard_without_a_summary_counts_as_no_writes() -> None:
    assert tombstones_by_table(*parse_summaries([None, None])) == {}


def test_the_event_is_read_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    _, extra = announced(monkeypatch, 1_102)
    assert TombstonesWritten.parse(extra) == TombstonesWritten(1_103, {"shop.orders": 1_100, "shop.items": 3}, "hourly")


@pytest.mark.parametrize(
    "extra", [{}, {"tombstones": 5}, {"tombstones": "many", "tables": {}, "run_id": "r"}, {"from": "a user"}]
)
def test_an_event_of_another_origin_is_not_taken_for_one_of_a_sweep(extra: dict[str, Any]) -> None:
    assert TombstonesWritten.parse(extra) is None
