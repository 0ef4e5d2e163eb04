"""What can be said about an Airflow on this machine without starting one."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.errors import AirflowNotReady
from sweep_tasks.orchestration.local_airflow import LocalAirflow


def test_a_folder_that_another_airflow_uses_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    airflow = LocalAirflow(tmp_path, Settings())
    with (tmp_path / "claim").open("ab") as another:
        fcntl.flock(another, fcntl.LOCK_EX)
        with pytest.raises(AirflowNotReady) as refused:
            airflow.start()
    assert refused.value.reason == "in_use"
    assert not (tmp_path / "airflow.db").exists()
