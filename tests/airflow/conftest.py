"""One real Airflow for all tests here, and for each test a store of its own.

The DAG's schedule begins in a far future, so that no run starts but those a test asks for. The store is named in a
settings file, which every task reads when it starts: a test points it at its own. DAG files are read again only where a
test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sweep_tasks.config import FILE_VARIABLE, Settings
from sweep_tasks.local.airflow import LocalAirflow
from sweep_tasks.local.cassandra import LocalCluster
from sweep_tasks.orchestration.names import TARGETED_SWEEP
from tests.airflow.queued import QueuedStore
from tests.airflow.webhook import Webhook
from tests.support.cassandra import cassandra_cluster

__all__ = ["cassandra_cluster"]

SHARDS = 2
UNFINISHED = ("queued", "running")


@pytest.fixture(scope="session")
def webhook() -> Iterator[Webhook]:
    with Webhook() as listening:
        yield listening


@pytest.fixture(scope="session")
def settings_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("settings") / "sweepflow.toml"
    file.touch()
    return file


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory, webhook: Webhook, settings_file: Path) -> Iterator[LocalAirflow]:
    folder = tmp_path_factory.mktemp("airflow")
    settings = Settings(
        shards=SHARDS,
        catch_up_from="2099-01-01T00:00:00+00:00",  # type: ignore[arg-type]  # as a variable gives it
        runs_at_once=4,
        task_folder=folder / "tasks",
        task_retries=1,
        task_retry_delay_s=1,
        alert_webhook_url=webhook.address,  # type: ignore[arg-type]
    )
    variables = {FILE_VARIABLE: str(settings_file), "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600"}
    with LocalAirflow(folder, settings, variables=variables) as running:
        running.unpause(TARGETED_SWEEP)
        yield running


@pytest.fixture
def queued(airflow: LocalAirflow, settings_file: Path, tmp_path: Path) -> Iterator[QueuedStore]:
    with swept_by(airflow, settings_file, f"sqlite:///{tmp_path}/store.db") as created:
        yield created


@pytest.fixture
def queued_on_cassandra(
    airflow: LocalAirflow, settings_file: Path, cassandra_cluster: LocalCluster
) -> Iterator[QueuedStore]:
    with swept_by(airflow, settings_file, cassandra_cluster.url("airflow")) as created:
        yield created


@contextmanager
def swept_by(airflow: LocalAirflow, settings_file: Path, url: str, **settings: Any) -> Iterator[QueuedStore]:
    """What a test leaves running is ended, so that it does not sweep the next one's store."""
    with QueuedStore(url, SHARDS, **settings) as created:
        settings_file.write_text(created.settings_file())
        yield created
    settings_file.write_text("")
    runs = airflow.api("GET", f"/dags/{TARGETED_SWEEP}/dagRuns", state=UNFINISHED)["dag_runs"]
    for run in runs:
        airflow.api("PATCH", f"/dags/{TARGETED_SWEEP}/dagRuns/{run['dag_run_id']}", {"state": "failed"})
        airflow.wait_for_run(TARGETED_SWEEP, run["dag_run_id"])
