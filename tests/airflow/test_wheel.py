"""An installed wheel, with no checkout on its path, has everything for Airflow: DAGs, page, local Airflow and demo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from sweep_tasks.config import Settings
from sweep_tasks.orchestration.airflow_api import AirflowApi
from sweep_tasks.orchestration.names import PREFIX, SCHEDULED
from sweep_tasks.orchestration.pools import pool_names, scan_pools
from tests.support.wheel import build_wheel, install_beside, run

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wheel = build_wheel(tmp_path_factory.mktemp("wheel"))
    return install_beside(wheel, tmp_path_factory.mktemp("installed"))


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("SWEEPFLOW_", "PYTHON"))} | more


def answer_of(bin_folder: Path, *arguments: str, cwd: Path) -> dict[str, Any]:
    """What the installed command answers."""
    command = [str(bin_folder / "sweepflow"), "--json", *arguments]
    ended = subprocess.run(
        command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=600, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def test_its_dag_files_are_in_it_and_can_be_linked(bin_folder: Path, tmp_path: Path) -> None:
    folder = Path(answer_of(bin_folder, "airflow", "dags", cwd=tmp_path)["folder"])
    assert folder.is_relative_to(bin_folder.parent)
    assert {f"{dag_id}.py" for dag_id in SCHEDULED} <= {file.name for file in folder.iterdir()}
    dags = tmp_path / "dags"
    dags.mkdir()
    for _ in range(2):  # safe to repeat
        link = Path(answer_of(bin_folder, "airflow", "dags", "--link", str(dags), cwd=tmp_path)["link"])
        assert link.resolve() == folder


def test_a_local_airflow_is_complete_when_reported_ready_and_a_signal_ends_all_of_it(
    bin_folder: Path, tmp_path: Path
) -> None:
    words = ["airflow", "up", "--json", "--paused", "--port", "0", "--folder", str(tmp_path / "airflow")]
    settings = environment(SWEEPFLOW_STORE=f"sqlite:///{tmp_path}/store.db", SWEEPFLOW_SHARDS="1")
    with (tmp_path / "steps").open("w") as steps:
        up = psutil.Popen(
            [bin_folder / "sweepflow", *words],
            cwd=tmp_path,
            env=settings,
            stdout=subprocess.PIPE,
            stderr=steps,
            text=True,
        )
    with up.stdout:
        answer = up.stdout.readline()
        assert answer, (tmp_path / "steps").read_text()
        reported = json.loads(answer)
        with AirflowApi(reported["address"], reported["user"], reported["password"]) as api:
            states = [api.call("GET", f"/dags/{each}") for each in SCHEDULED]
            assert [(each["is_paused"], each["has_import_errors"]) for each in states] == [(True, False)] * len(states)
            assert api.pool_slots() == dict.fromkeys([*pool_names(1), *scan_pools(Settings().legacy_slots)], 1)
            plugins = api.call("GET", "/plugins/importErrors")
            assert plugins["import_errors"] == []
        assert httpx.get(f"{reported['address']}{PREFIX}/").status_code == 401, (
            "the page is there, and not for all users"
        )
        family = up.children(recursive=True)
        assert len(family) >= 4
        up.terminate()
        _, left = psutil.wait_procs([up, *family], timeout=240)
    assert left == []
    assert up.returncode == 0, (tmp_path / "steps").read_text()


def test_the_demo_is_swept_by_a_run_of_its_dag(bin_folder: Path, tmp_path: Path) -> None:
    report = answer_of(bin_folder, "demo", "--airflow", "--shards", "1", cwd=tmp_path)
    assert (report["airflow"], [shard["engine"] for shard in report["shards"]]) == (True, ["spark", "spark"])
    assert all(shard["entries"] > 0 for shard in report["shards"])


def test_this_environment_has_our_code_from_a_checkout(bin_folder: Path, tmp_path: Path) -> None:
    """So the tests above would fail if the installed one had it from there too."""
    where = "import sweep_tasks, spark_jobs; print(sweep_tasks.__file__, spark_jobs.__file__)"
    pythons = (str(bin_folder / "python"), sys.executable)
    found = [run(python, "-c", where, cwd=tmp_path) for python in pythons]
    installed, checkout = ([Path(file) for file in each.split()] for each in found)
    assert all(file.is_relative_to(bin_folder.parent) for file in installed)
    assert not any(file.is_relative_to(bin_folder.parent) for file in checkout)
