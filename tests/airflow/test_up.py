"""`sweepflow airflow up`: an Airflow to look at, and nothing left of it afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from sweep_tasks.orchestration.airflow_api import AirflowApi
from sweep_tasks.orchestration.names import SCHEDULED
from sweep_tasks.orchestration.pools import pool_names

pytestmark = pytest.mark.timeout(900)

SWEEPFLOW = Path(sys.executable).parent / "sweepflow"


def test_it_is_complete_when_it_says_so_and_a_signal_ends_all_of_it(tmp_path: Path) -> None:
    words = ["airflow", "up", "--json", "--paused", "--port", "0", "--folder", str(tmp_path / "airflow")]
    environment = os.environ | {"SWEEPFLOW_STORE": f"sqlite:///{tmp_path}/store.db", "SWEEPFLOW_SHARDS": "1"}
    with (tmp_path / "steps").open("w") as steps:
        up = psutil.Popen([SWEEPFLOW, *words], env=environment, stdout=subprocess.PIPE, stderr=steps, text=True)
    with up.stdout:
        answer = up.stdout.readline()
        assert answer, (tmp_path / "steps").read_text()
        told = json.loads(answer)
        with AirflowApi(told["address"], told["user"], told["password"]) as api:
            assert [api.call("GET", f"/dags/{each}")["is_paused"] for each in SCHEDULED] == [True] * len(SCHEDULED)
            assert api.pool_slots() == dict.fromkeys(pool_names(1), 1)
        family = up.children(recursive=True)
        assert len(family) >= 4
        up.terminate()
        _, left = psutil.wait_procs([up, *family], timeout=240)
    assert left == []
    assert up.returncode == 0, (tmp_path / "steps").read_text()
