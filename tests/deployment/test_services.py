"""The commands and health checks of the compose file work, as processes of this machine."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.environment import spark_submit
from sweep_tasks.orchestration.airflow_api import AirflowApi
from sweep_tasks.orchestration.pools import pool_names, pool_problem, scan_pools
from tests.deployment.checks import deployment_settings
from tests.deployment.compose import DOCKERFILE, Deployment, generated_variables, installed_airflow, load
from tests.deployment.stage import HERE, PATIENCE_S, Stage
from tests.support.waiting import eventually

JOB = """
import os, sys
from pyspark.sql import SparkSession

context = SparkSession.builder.getOrCreate().sparkContext
parts = context.parallelize(range(20), 20)
executors = parts.mapPartitions(lambda part: [os.path.basename(os.getcwd())]).distinct().collect()
print("driver", context.getConf().get("spark.driver.host"), "executors", len(executors), "python", sys.version_info[:2])
"""


pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    """Read the files once; a test that changes something changes a copy."""
    return Deployment(load(), DOCKERFILE.read_text(), generated_variables(), installed_airflow())


def test_two_workers_join_the_master_and_run_a_job_of_the_scheduler(deployment: Deployment, tmp_path: Path) -> None:
    stage = Stage(deployment, tmp_path)
    job = tmp_path / "job.py"
    job.write_text(JOB)
    workers = int(deployment.variables["SPARK_WORKERS"])
    with stage.running("spark-master"), stage.running("spark-worker", number=workers):
        assert eventually(lambda: alive(stage)["aliveworkers"] == workers)
        cores = int(deployment.variables["SPARK_WORKER_CORES"])
        assert {worker["cores"] for worker in alive(stage)["workers"]} == {cores}
        connection = json.loads(stage.environment("airflow-scheduler")["AIRFLOW_CONN_SPARK_DEFAULT"])
        ended = subprocess.run(
            [spark_submit(), "--master", connection["host"], "--deploy-mode", connection["extra"]["deploy-mode"], job],
            env=stage.environment("airflow-scheduler"),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr[-4_000:]
    assert f"driver {HERE} executors {workers} python (3, 11)" in ended.stdout


def test_the_first_start_leaves_a_store_pools_and_logins(deployment: Deployment, tmp_path: Path) -> None:
    """Use SQLite instead of PostgreSQL and Cassandra; everything else is as in the file."""
    metadata = f"sqlite:///{tmp_path}/airflow.db"
    stage = Stage(deployment, tmp_path, AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=metadata)
    for _ in range(2):
        stage.run("store-init")
        stage.run("airflow-init")
    assert (tmp_path / "store.db").exists()
    with stage.running("airflow-apiserver"):
        address = f"http://{HERE}:{stage.port('airflow-apiserver', 8080)}"
        with AirflowApi(address, "admin", deployment.variables["AIRFLOW_ADMIN_PASSWORD"]) as admin:
            assert admin.call("GET", "/connections")["total_entries"] >= 0
        given = json.loads(stage.environment("airflow-scheduler")["AIRFLOW_CONN_SWEEPFLOW_AIRFLOW"])
        assert given["host"] == address
        with AirflowApi(given["host"], given["login"], given["password"]) as task:
            settings = deployment_settings()
            pools = [*pool_names(settings.shards), *scan_pools(settings.legacy_slots)]
            assert pool_problem(pools, task.pool_slots()) is None
    assert (tmp_path / "airflow" / "passwords.json").stat().st_mode & 0o077 == 0
    assert deployment.variables["AIRFLOW_ADMIN_PASSWORD"] not in (tmp_path / "airflow-apiserver.log").read_text()


def test_a_service_that_does_not_run_is_not_healthy(deployment: Deployment, tmp_path: Path) -> None:
    stage = Stage(deployment, tmp_path)
    http_checks = ["airflow-apiserver", "airflow-scheduler", "spark-master", "spark-worker"]
    assert [name for name in http_checks if stage.healthy(name)] == []


def alive(stage: Stage) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{HERE}:{stage.port('spark-master', 8080)}/json/", timeout=30) as answer:
        document: dict[str, Any] = json.load(answer)
    return document
