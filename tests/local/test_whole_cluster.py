"""`sweepflow dev cluster`: all parts at once, one hourly sweep across them, and nothing left at the end."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from sweep_tasks.cli.dev import ALL_IS_STOPPED, SPARK_IS_UP
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.model import SweepStrategy, TableMetadata, TableRef
from sweep_tasks.store import initialise_store
from sweep_tasks.tables.catalog import Catalog

ROOT = Path(__file__).parents[2]
PATIENCE_S = 240
MARK = "LC_TEST_OF_THE_WHOLE_CLUSTER"
"""Every process that the command starts inherits it, like all locale variables, so it can be found by it."""


@contextmanager
def command(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    program = [str(Path(sys.executable).parent / "sweepflow"), "dev", "cluster", "--folder", str(folder), *arguments]
    with (folder.parent / "output").open("w") as output:
        started = subprocess.Popen(
            program, cwd=ROOT, env=os.environ | {MARK: str(folder)}, stdout=subprocess.PIPE, stderr=output, text=True
        )
    with started:
        try:
            yield started
        finally:
            if started.poll() is None:
                started.send_signal(signal.SIGTERM)


def output(folder: Path) -> str:
    return (folder.parent / "output").read_text()


def processes(folder: Path) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if _variable(process) == str(folder)]


def _variable(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK)
    except psutil.Error:
        return None


def test_ctrl_c_stops_what_was_started_so_far(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    with command(folder, "--store", f"sqlite:///{tmp_path}/store.db") as started:
        until = time.monotonic() + PATIENCE_S
        while SPARK_IS_UP not in output(folder):
            assert started.poll() is None, output(folder)
            assert time.monotonic() < until, output(folder)
            time.sleep(0.1)
        assert len(processes(folder)) > 3, "the command, a master and two workers"
        started.send_signal(signal.SIGINT)
        assert started.wait(PATIENCE_S) != 0
    assert ALL_IS_STOPPED in output(folder)
    assert processes(folder) == []


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with (folder / "claim").open("ab") as claim:
        fcntl.flock(claim, fcntl.LOCK_EX)
        with command(folder, "--json") as started:
            answer = json.loads(started.communicate(timeout=PATIENCE_S)[0])
    assert started.returncode == 4
    assert (answer["error"], answer["field"], answer["reason"]) == ("unavailable", "folder", "in_use")
    assert str(folder) in answer["message"]
    assert [file.name for file in folder.iterdir()] == ["claim"]


def test_files_of_another_user_are_not_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (folder / "airflow").mkdir(parents=True)
    (folder / "airflow" / "mine.py").touch()
    with command(folder, "--json") as started:
        answer = json.loads(started.communicate(timeout=PATIENCE_S)[0])
    assert started.returncode == 2
    assert (answer["error"], answer["field"], answer["reason"]) == ("bad_value", "folder", "not_ours")
    assert sorted(str(file.relative_to(folder)) for file in folder.rglob("*")) == ["airflow", "airflow/mine.py"]


def test_a_store_with_tables_in_it_is_not_touched(tmp_path: Path) -> None:
    url, settings, table = f"sqlite:///{tmp_path}/store.db", Settings(), TableRef.parse("shop.orders")
    initialise_store(url, settings)
    with open_store(url, settings) as store:
        Catalog(store).create(table, TableMetadata(SweepStrategy.THOROUGH))
    with command(tmp_path / "cluster", "--json", "--store", url) as started:
        answer = json.loads(started.communicate(timeout=PATIENCE_S)[0])
    assert started.returncode == 2
    assert (answer["error"], answer["field"], answer["reason"]) == ("bad_value", "store", "not_empty")
    with open_store(url, settings) as store:
        assert list(Catalog(store).list()) == [table]


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_one_hourly_sweep_runs_through_all_parts(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    with command(folder, "--json") as started:
        answer = json.loads(started.communicate(timeout=3_500)[0])
    assert started.returncode == 0, output(folder)
    assert {(shard["strategy"], shard["shard"]) for shard in answer["shards"]} == {
        (strategy, shard) for strategy in ("conservative", "thorough") for shard in range(2)
    }
    assert all(shard["removed"] > 0 for shard in answer["shards"])
    assert answer["after"]["versions"] < answer["before"]["versions"]
    assert answer["store"].startswith("cassandra://127.0.0.1,127.0.0.2,127.0.0.3:")
    assert processes(folder) == []
