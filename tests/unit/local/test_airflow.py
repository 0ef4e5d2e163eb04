"""Checks of an Airflow on this machine before it starts."""

from __future__ import annotations

import fcntl
import socket
from pathlib import Path

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.errors import AirflowNotReady
from sweep_tasks.local.airflow import LocalAirflow
from tests.support.command import sweepflow


def test_a_folder_that_another_airflow_uses_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    airflow = LocalAirflow(tmp_path, Settings())
    with (tmp_path / "claim").open("ab") as another:
        fcntl.flock(another, fcntl.LOCK_EX)
        with pytest.raises(AirflowNotReady) as refused:
            airflow.start()
    assert refused.value.reason == "in_use"
    assert not (tmp_path / "airflow.db").exists()


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])  # noqa: S104
def test_a_port_in_use_is_refused_before_anything_is_created(tmp_path: Path, address: str) -> None:
    folder = tmp_path / "airflow"
    with socket.socket() as other:
        other.bind((address, 0))
        other.listen()
        port = other.getsockname()[1]
        store = f"sqlite:///{tmp_path}/store.db"
        answer = sweepflow("airflow", "up", "--port", str(port), "--folder", str(folder), "--store", store, "--json")
    assert (answer.code, answer.document["error"]) == (4, "unavailable")
    assert isinstance(answer.error, AirflowNotReady)
    assert (answer.error.field, answer.error.reason, answer.error.details["port"]) == ("port", "taken", port)
    assert "--port" in str(answer.error)
    assert list(tmp_path.iterdir()) == []
    LocalAirflow(folder, Settings(), port=port)
