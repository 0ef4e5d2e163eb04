from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from sweep_tasks.errors import BadValue, NotInitialised, StoreBusy
from sweep_tasks.model import SweepStrategy
from sweep_tasks.observation.tally import Tally
from sweep_tasks.orchestration.operators import INTERVAL_END, SweepShardOperator, arguments, moment_ms
from sweep_tasks.orchestration.prepare import explained
from sweep_tasks.orchestration.spark_job import GUARDED_SUBMIT
from sweep_tasks.store import Store
from sweep_tasks.sweep.order import SweepOrder
from sweep_tasks.timestamps.service import TimestampService
from tests.unit.orchestration.test_stats import Figures, figures

__all__ = ["figures"]

THOROUGH = SweepStrategy.THOROUGH


def test_an_order_becomes_the_arguments_of_the_job() -> None:
    order = SweepOrder(THOROUGH, 3, moment_ms("2026-11-16 10:00:00+00:00"), 70, 5, 1.5, True)
    assert arguments(order) == [
        "--strategy", "thorough", "--shard", "3", "--until", "2026-11-16T10:00:00+00:00", "--stop-at", "70",
        "--max-entries", "5", "--max-seconds", "1.5", "--dry-run",
    ]  # fmt: skip


def test_what_an_order_leaves_open_is_no_argument() -> None:
    assert arguments(SweepOrder(THOROUGH, 0)) == ["--strategy", "thorough", "--shard", "0"]


def test_an_end_that_is_no_moment_is_refused() -> None:
    with pytest.raises(BadValue) as refused:
        moment_ms("2026-11-16/2026-11-17")
    assert refused.value.field == "until"
    assert "2026-11-16/2026-11-17" in str(refused.value)


def test_no_argument_of_a_task_carries_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPFLOW_STORE", "sqlite:////very/secret.db")
    task = SweepShardOperator(task_id="shard", strategy=THOROUGH, shard=3)
    given = {name: getattr(task, name) for name in task.template_fields}
    assert "secret" not in str(given)
    assert (task.pool, given["until"]) == ("sweep_thorough_3", INTERVAL_END)


def test_what_a_task_did_is_counted_once_for_each_try_in_the_store_and_told_to_airflow(
    sqlite: Store, sqlite_url: str, figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEPFLOW_STORE", sqlite_url)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", "spark://local")
    TimestampService(sqlite).move_past(100)
    task = SweepShardOperator(task_id="shard_0", strategy=THOROUGH, shard=0)
    task.until = "2036-11-16 10:00:00+00:00"
    form = {"dry_run": False, "stop_at": None, "max_entries": 0, "max_seconds": 0}
    for number in (1, 1, 2):
        ti = SimpleNamespace(dag_id="targeted_sweep", run_id="now", task_id="thorough.shard_0", try_number=number)
        summary = task.execute({"params": form, "ti": ti})  # type: ignore[typeddict-item]
        assert summary["engine"] == "idle"
    (series,) = Tally(sqlite).read().series
    assert (series.sums["runs"], series.last["task"], series.last["number"]) == (2, "thorough.shard_0", 2)
    assert figures.counted["sweepflow.sweep.runs.thorough.0"] == 3


def test_only_what_may_pass_is_tried_again() -> None:
    assert type(explained(StoreBusy("store: locked"))) is AirflowException
    error = NotInitialised("sqlite:///x.db")
    final = explained(error)
    assert isinstance(final, AirflowFailException)
    assert str(final) == str(error)


@pytest.fixture
def fake_spark(tmp_path: Path) -> Path:
    """Beside a Python, as an installed PySpark has it: says what it was given and what happens when its parent dies."""
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(
        f"#!{sys.executable}\n"
        "import ctypes, sys\n"
        "order = ctypes.c_int()\n"
        "ctypes.CDLL(None).prctl(2, ctypes.byref(order))\n"
        "print(order.value, *sys.argv[1:])\n"
    )
    submit.chmod(0o755)
    return submit


def guarded(submit: Path, path: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": path, "PYSPARK_PYTHON": str(submit.with_name("python"))}
    return subprocess.run([GUARDED_SUBMIT, "job.py", "a b"], env=environment, capture_output=True, text=True)


def test_the_driver_is_told_to_die_with_its_task(fake_spark: Path) -> None:
    done = guarded(fake_spark, os.defpath)
    assert (done.stdout, done.stderr) == ("9 job.py a b\n", "")


def test_without_setpriv_the_driver_runs_all_the_same_and_the_log_says_so(fake_spark: Path, tmp_path: Path) -> None:
    few = tmp_path / "few"
    few.mkdir()
    (few / "dirname").symlink_to("/usr/bin/dirname")
    done = guarded(fake_spark, str(few))
    assert done.stdout == "0 job.py a b\n"
    assert "setpriv" in done.stderr
