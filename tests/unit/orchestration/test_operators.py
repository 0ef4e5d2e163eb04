from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from spark_jobs.orders import SweepJob
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import load_settings
from sweep_tasks.coordination.clock_history import ClockHistory, ClockSample
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import BadValue, NotInitialised, StoreBusy
from sweep_tasks.metrics.samples import latest_sample
from sweep_tasks.metrics.tally import Tally, TaskAttempt
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.form import INTERVAL_END, moment_ms
from sweep_tasks.orchestration.prepare import task_failure
from sweep_tasks.orchestration.spark_job import GUARDED_SUBMIT, LEFT_OUT, left_out
from sweep_tasks.orchestration.sweeping import CheckLag, SweepShardOperator
from sweep_tasks.store import Store
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.order import SweepOrder
from tests.unit.orchestration.test_stats import Figures, figures

__all__ = ["figures"]

THOROUGH = SweepStrategy.THOROUGH


def test_an_order_becomes_the_document_that_the_job_reads() -> None:
    order = SweepOrder(THOROUGH, 3, moment_ms("2026-11-16 10:00:00+00:00"), 70, 5, 1.5, True)
    attempt = TaskAttempt("targeted_sweep", "now", "thorough.shard_3", 2)
    job = SweepJob(
        **vars(order), attempt=attempt, actor="ada", reason="it is late", journal_entry=7, measured=Horizon(60, 1_000)
    )
    assert json.loads(job.document()) == {
        "strategy": "thorough", "shard": 3, "until_ms": 1_794_823_200_000, "stop_at": 70, "max_entries": 5,
        "max_seconds": 1.5, "dry_run": True, "attempt": ["targeted_sweep", "now", "thorough.shard_3", 2, -1],
        "actor": "ada", "reason": "it is late", "journal_entry": 7, "measured": [60, 1_000, False],
    }  # fmt: skip
    assert SweepJob.parse(job.document()) == job


def test_what_an_order_leaves_open_has_its_default() -> None:
    assert SweepJob.parse('{"strategy": "thorough", "shard": 0}') == SweepJob(THOROUGH, 0)


def test_the_job_gets_its_order_in_a_private_file_that_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEPFLOW_TASK_FOLDER", str(tmp_path / "tasks"))
    task = SweepShardOperator(task_id="shard", strategy=THOROUGH, shard=3)
    task.summary_file = "run-task-1.json"
    order, seen = SweepJob(THOROUGH, 3), list[list[str]]()

    def submit(_settings: object, arguments: list[str], _context: object) -> dict[str, Any]:
        file = Path(arguments[1])
        assert SweepJob.parse(file.read_text()) == order
        assert file.stat().st_mode & 0o777 == 0o600
        seen.append(arguments)
        raise AirflowException("the job failed")

    monkeypatch.setattr(task, "submit", submit)
    with pytest.raises(AirflowException):
        task.submit_order(load_settings(), order, {})
    assert seen == [["--order", str(tmp_path / "tasks" / "run-task-1.order.json")]]
    assert list((tmp_path / "tasks").iterdir()) == []


def test_an_invalid_end_of_the_interval_is_refused() -> None:
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


def test_each_attempt_of_a_task_is_counted_once_in_the_store_and_reported_to_airflow(
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
        run = SimpleNamespace(triggering_user_name=None, note=None)
        summary = task.execute({"params": form, "ti": ti, "dag_run": run})  # type: ignore[typeddict-item]
        assert summary["engine"] == "idle"
    (series,) = Tally(sqlite).read().series
    assert (series.sums["runs"], series.last.task, series.last.number) == (2, "thorough.shard_0", 2)
    assert figures.counted["sweepflow.sweep.runs.thorough.0"] == 3


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_shard_that_is_behind_fails_a_run_unless_it_is_a_dry_run(
    sqlite: Store, sqlite_url: str, figures: Figures, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    monkeypatch.setenv("SWEEPFLOW_STORE", sqlite_url)
    week_ms = 7 * 86_400_000
    ClockHistory(sqlite).record(ClockSample(SystemClock().now_ms() - week_ms, 1))
    task = CheckLag(task_id="check_lag")
    task.until = "2036-11-16 10:00:00+00:00"
    context: Any = {"params": {"dry_run": dry_run}}
    if dry_run:
        task.execute(context)
        assert figures.standing == {}, "nothing that an alert may be bound to"
        assert latest_sample(sqlite) is None
        return
    with pytest.raises(AirflowFailException) as failed:
        task.execute(context)
    assert getattr(failed.value.__context__, "code", None) == "behind"
    assert figures.standing
    assert latest_sample(sqlite) is not None


def test_only_transient_failures_are_retried() -> None:
    assert type(task_failure(StoreBusy("store: locked"))) is AirflowException
    error = NotInitialised("sqlite:///x.db")
    final = task_failure(error)
    assert isinstance(final, AirflowFailException)
    assert str(final) == str(error)


@pytest.fixture
def fake_spark(tmp_path: Path) -> Path:
    """Beside a Python, as an installed PySpark has it: prints its arguments and what happens when its parent dies."""
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


def test_the_driver_is_bound_to_its_task(fake_spark: Path) -> None:
    done = guarded(fake_spark, os.defpath)
    assert (done.stdout, done.stderr) == ("9 job.py a b\n", "")


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_driver_gets_no_variables_that_only_the_task_needs(
    fake_spark: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    """Whatever `sh` is on the machine: bash passes on names that are no names of its own variables."""
    fake_spark.write_text(f"#!{sys.executable}\nimport os\nfor each in os.environ.items(): print(*each, sep='=')\n")
    secrets = {
        "AIRFLOW__CORE__FERNET_KEY": "geheim", "AIRFLOW_CONN_X": "geheim", "AWS_SECRET_ACCESS_KEY": "geheim",
        "AIRFLOW_CONN_MY-DB": "geheim", "AIRFLOW_CONN_MY.DB": "geheim",
    }  # fmt: skip
    for name, value in {**secrets, "SWEEPFLOW_SHARDS": "3", "SPARK_LOCAL_IP": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    around = os.environ | {"PYSPARK_PYTHON": str(fake_spark.with_name("python")), LEFT_OUT: " ".join(left_out())}
    output = subprocess.run([shell, GUARDED_SUBMIT], env=around, capture_output=True, text=True, check=True).stdout
    got = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    assert (got["SWEEPFLOW_SHARDS"], got["SPARK_LOCAL_IP"]) == ("3", "127.0.0.1")
    assert {"PATH", "PYSPARK_PYTHON"} <= got.keys()
    assert not ({*secrets, LEFT_OUT} & got.keys())
    assert "geheim" not in output


def test_without_setpriv_the_driver_runs_and_a_warning_is_logged(fake_spark: Path, tmp_path: Path) -> None:
    few = tmp_path / "few"
    few.mkdir()
    (few / "dirname").symlink_to("/usr/bin/dirname")
    done = guarded(fake_spark, str(few))
    assert done.stdout == "0 job.py a b\n"
    assert "setpriv" in done.stderr
