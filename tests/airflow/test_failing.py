"""A failure is reported in one sentence, to the right recipients, and delays no other task."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sweep_tasks.local.airflow import LocalAirflow
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.names import SPARK_CONNECTION, TARGETED_SWEEP
from sweep_tasks.orchestration.pools import pools_document
from tests.airflow.logs import failures
from tests.airflow.queued import QueuedStore
from tests.airflow.webhook import Webhook

pytestmark = pytest.mark.timeout(900)

SWEEPFLOW = Path(sys.executable).parent / "sweepflow"
NOT_STARTED = {"conservative.shard_0", "conservative.shard_1", "thorough.shard_0", "thorough.shard_1", "finish"}


def test_a_failing_shard_delays_no_other_and_is_alerted_once(
    airflow: LocalAirflow, queued: QueuedStore, webhook: Webhook
) -> None:
    queued.write(SweepStrategy.THOROUGH, 1, 1)
    for attempt in (1, 2):  # the path of the summary is a folder
        (airflow.folder / "tasks" / f"{TARGETED_SWEEP}-unlucky-thorough.shard_1-{attempt}.json").mkdir(parents=True)
    airflow.trigger(TARGETED_SWEEP, run_id="unlucky")
    assert airflow.wait_for_run(TARGETED_SWEEP, "unlucky") == "failed"

    assert airflow.task_states(TARGETED_SWEEP, "unlucky") == {
        "prepare": "success",
        "conservative.shard_0": "success",
        "conservative.shard_1": "success",
        "thorough.shard_0": "success",
        "thorough.shard_1": "failed",
        "check_lag": "success",
        "announce_tombstones": "skipped",
        "finish": "upstream_failed",
    }
    assert airflow.task_instances(TARGETED_SWEEP, "unlucky")["thorough.shard_1"]["try_number"] == 2
    airflow.wait(
        "the alert", lambda: webhook.about("unlucky"), explain=lambda: airflow.describe_run(TARGETED_SWEEP, "unlucky")
    )
    assert [alert["failed_tasks"] for alert in webhook.about("unlucky")] == [["thorough.shard_1"]]


def test_a_missing_pool_fails_the_first_task_and_a_command_creates_it(
    airflow: LocalAirflow, queued: QueuedStore
) -> None:
    airflow.api("DELETE", "/pools/sweep_thorough_1")
    try:
        run = airflow.trigger(TARGETED_SWEEP)
        assert airflow.wait_for_run(TARGETED_SWEEP, run) == "failed"
        only_the_first_task_ran(airflow, run)
        assert failures(airflow, TARGETED_SWEEP, run, "prepare") == [("unavailable", "pools", "missing")]
        named = re.findall(r"sweep_[a-z]+_\d+", airflow.log(TARGETED_SWEEP, run, "prepare"))
        assert set(named) == {"sweep_thorough_1"}
    finally:
        for _ in range(2):  # safe to repeat
            done = subprocess.run(
                [SWEEPFLOW, "airflow", "pools", "--json"], env=airflow.environment, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["pools"] == list(pools_document(2, scan_slots=2))
    assert {name: pool["slots"] for name, pool in pools_document(2, scan_slots=2).items()} == airflow.pool_slots()


def test_a_missing_spark_connection_fails_the_first_task(airflow: LocalAirflow, queued: QueuedStore) -> None:
    airflow.api("DELETE", f"/connections/{SPARK_CONNECTION}")
    try:
        run = airflow.trigger(TARGETED_SWEEP)
        assert airflow.wait_for_run(TARGETED_SWEEP, run) == "failed"
        only_the_first_task_ran(airflow, run)
        missing = ("unavailable", f"connection {SPARK_CONNECTION}", "missing")
        assert failures(airflow, TARGETED_SWEEP, run, "prepare") == [missing]
    finally:
        airflow.set_spark_connection()


def only_the_first_task_ran(airflow: LocalAirflow, run: str) -> None:
    tasks = airflow.task_instances(TARGETED_SWEEP, run)
    assert (tasks["prepare"]["state"], tasks["prepare"]["try_number"]) == ("failed", 1)
    assert {task for task, each in tasks.items() if each["state"] == "upstream_failed"} == NOT_STARTED
