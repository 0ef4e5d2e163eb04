"""The form in the UI: what it offers, what it refuses, and what becomes of its answers."""

from __future__ import annotations

import pytest

from sweep_tasks.clock import SystemClock
from sweep_tasks.coordination.clock_history import ClockSample
from sweep_tasks.errors import AirflowNotReady
from sweep_tasks.local.airflow import LocalAirflow
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.names import TARGETED_SWEEP
from tests.airflow.logs import failures
from tests.airflow.queued import QueuedStore

pytestmark = pytest.mark.timeout(900)

THOROUGH = SweepStrategy.THOROUGH


def test_the_form_has_a_field_for_every_choice(airflow: LocalAirflow) -> None:
    fields = airflow.api("GET", f"/dags/{TARGETED_SWEEP}/details")["params"]
    assert {name: field["value"] for name, field in fields.items()} == {
        "strategies": ["conservative", "thorough"],
        "shards": "",
        "dry_run": False,
        "max_entries": 0,
        "max_seconds": 0,
        "stop_at": None,
    }
    assert all(field["schema"]["title"] and field["schema"]["section"] for field in fields.values())


@pytest.mark.parametrize(
    "answer",
    [
        {"strategies": ["nothing"]},
        {"strategies": []},
        {"shards": "all"},
        {"shards": "1-"},
        {"dry_run": "maybe"},
        {"max_entries": -1},
        {"max_seconds": "long"},
        {"stop_at": -1},
    ],
    ids=str,
)
def test_an_invalid_form_starts_no_run(airflow: LocalAirflow, answer: dict[str, object]) -> None:
    with pytest.raises(AirflowNotReady) as refused:
        airflow.trigger(TARGETED_SWEEP, answer)
    assert refused.value.status == 400


def test_what_was_not_chosen_is_skipped_and_limits_reach_the_spark_job(
    airflow: LocalAirflow, queued: QueuedStore
) -> None:
    """In a dry run of a store that is a week behind, which succeeds nevertheless."""
    queued.clock_history.record(ClockSample(SystemClock().now_ms() - 7 * 86_400_000, 1))
    queued.write(THOROUGH, 1, 4)
    stop_at = queued.timestamps.greatest() - 1
    answers = {"strategies": ["thorough"], "shards": "1", "dry_run": True, "max_entries": 20, "stop_at": stop_at}
    run = airflow.trigger(TARGETED_SWEEP, answers)
    assert airflow.wait_for_run(TARGETED_SWEEP, run) == "success", airflow.describe_run(TARGETED_SWEEP, run)

    states = airflow.task_states(TARGETED_SWEEP, run)
    assert {task for task, state in states.items() if state == "skipped"} == {
        "conservative.shard_0", "conservative.shard_1", "thorough.shard_0", "announce_tombstones",
    }  # fmt: skip
    summary = airflow.xcom(TARGETED_SWEEP, run, "thorough.shard_1")
    assert (summary["engine"], summary["dry_run"], summary["sweep_ts"]) == ("spark", True, stop_at)
    assert (summary["stopped"], summary["entries"]) == ("entries", 20)
    assert queued.versions(THOROUGH, 1) == {(False, 4)}


def test_a_shard_that_does_not_exist_is_refused_before_anything_is_swept(
    airflow: LocalAirflow, queued: QueuedStore
) -> None:
    run = airflow.trigger(TARGETED_SWEEP, {"shards": "0,7"})
    assert airflow.wait_for_run(TARGETED_SWEEP, run) == "failed"
    assert airflow.task_states(TARGETED_SWEEP, run)["conservative.shard_0"] == "upstream_failed"
    assert failures(airflow, TARGETED_SWEEP, run, "prepare") == [("bad_value", "shards", "out_of_range")]
