"""Which alerts are sent, and how often: with Airflow's own callback code, real connections and real processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from airflow.api_fastapi.execution_api.datamodels.taskinstance import DagRun, TaskInstance
from airflow.callbacks.callback_requests import DagCallbackRequest, DagRunContext
from airflow.dag_processing.dagbag import DagBag
from airflow.dag_processing.processor import _execute_dag_callbacks
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization
from airflow.triggers.callback import CallbackTrigger
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunType
from structlog.testing import capture_logs

from sweep_tasks.alerts.delivery import MAY_COME_TWICE
from sweep_tasks.alerts.message import AFTER_DEADLINE, AFTER_FAILURE, Alert, AlertKind, failure
from sweep_tasks.alerts.notifier import SweepNotifier, deadline_alert, failure_alert, is_dry_run, problem_alert
from sweep_tasks.errors import NeedsAttention, SweepflowError
from tests.support.lines import values_in
from tests.support.processes import in_processes
from tests.support.receivers import HOST, Hook, free_port, mail_server, web_server

DAG_ID = "sweep_for_test"
RUN = "scheduled__2026-01-01T10:00:00+00:00"
NOW = datetime(2026, 1, 1, 10, tzinfo=UTC)
DEADLINE_CONTEXT: dict[str, Any] = {
    "dag_run": {"dag_id": DAG_ID, "dag_run_id": RUN, "state": "running"},
    "deadline": {"id": "0190", "deadline_time": NOW.replace(microsecond=40_310)},
}


@pytest.fixture
def dag() -> DAG:
    with DAG(DAG_ID, schedule=None, on_failure_callback=failure_alert(), deadline=deadline_alert(60)) as created:
        EmptyOperator(task_id="conservative_0")
    return created


@pytest.fixture
def settled(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A store in which alerts are recorded, and no channel but the log."""
    monkeypatch.setenv("SWEEPFLOW_STORE", sqlite_url)
    monkeypatch.setenv("SWEEPFLOW_ALERT_ATTEMPTS", "1")
    return monkeypatch


@pytest.fixture
def hook(settled: pytest.MonkeyPatch) -> Iterator[Hook]:
    with web_server() as created:
        settled.setenv("SWEEPFLOW_ALERT_WEBHOOK_URL", created.url)
        yield created


def run_fails(
    dag: DAG,
    run_id: str = RUN,
    cleared: int = 0,
    reason: str = "task_failure",
    conf: dict[str, Any] | None = None,
) -> None:
    """What the dag processor does when the scheduler has marked a run failed."""
    last = TaskInstance(
        id=uuid.uuid4(), dag_version_id=uuid.uuid4(), task_id="conservative_0", dag_id=DAG_ID, run_id=run_id,
        try_number=1,
    )  # fmt: skip
    run = DagRun(
        dag_id=DAG_ID, run_id=run_id, logical_date=NOW, data_interval_start=NOW, data_interval_end=NOW, run_after=NOW,
        start_date=NOW, end_date=NOW, clear_number=cleared, run_type=DagRunType.SCHEDULED,
        state=DagRunState.FAILED, consumed_asset_events=[], partition_key=None, conf=conf,
    )  # fmt: skip
    request = DagCallbackRequest(
        filepath="dag.py", dag_id=DAG_ID, run_id=run_id, bundle_name="dags", bundle_version=None, msg=reason,
        context_from_server=DagRunContext(dag_run=run, last_ti=last), is_failure_callback=True,
    )  # fmt: skip
    bag = DagBag("/dev/null", collect_dags=False)
    bag.dags[DAG_ID] = dag
    _execute_dag_callbacks(bag, request, structlog.get_logger())


def deadline_passes(dag: DAG, conf: dict[str, Any] | None = None) -> list[Any]:
    """What the triggerer does when the scheduler has seen a deadline pass."""
    (deadline,) = dag.deadline  # type: ignore[misc]
    run = {**DEADLINE_CONTEXT["dag_run"], "conf": conf}

    async def triggered() -> list[Any]:
        trigger = CallbackTrigger(deadline.callback.path, {"context": DEADLINE_CONTEXT | {"dag_run": run}})
        return [event.payload["state"] async for event in trigger.run()]

    return asyncio.run(triggered())


def fail_runs(_: int, runs: int) -> None:
    with DAG(DAG_ID, schedule=None, on_failure_callback=failure_alert()) as dag:
        EmptyOperator(task_id="conservative_0")
    for run in range(runs):
        run_fails(dag, f"manual__{run}")


def with_code(lines: list[Any], code: str) -> list[Any]:
    return [line for line in lines if line.get("code") == code]


class TestMessages:
    def test_a_failed_run_is_reported_with_its_task_advice_and_link(self, dag: DAG, hook: Hook) -> None:
        run_fails(dag)
        (post,) = hook.posts
        assert (post.document["dag"], post.document["run"], post.document["failed_tasks"]) == (
            DAG_ID, RUN, ["conservative_0"],
        )  # fmt: skip
        assert (post.document["kind"], post.document["error"], post.document["deadline"]) == ("failed", None, None)
        assert post.document["what_to_do"] == AFTER_FAILURE
        assert post.document["link"].endswith(f"/dags/{DAG_ID}/runs/scheduled__2026-01-01T10%3A00%3A00%2B00%3A00")

    def test_a_missed_deadline_is_reported_by_the_triggerer(self, dag: DAG, hook: Hook) -> None:
        assert deadline_passes(dag)[-1] == "success"
        (post,) = hook.posts
        assert (post.document["dag"], post.document["run"]) == (DAG_ID, RUN)
        assert (post.document["kind"], post.document["deadline"]) == ("late", "2026-01-01 10:00:00+00:00")
        assert post.document["deadline"] in post.document["happened"]
        assert post.document["what_to_do"] == AFTER_DEADLINE

    def test_a_run_without_a_failed_task_is_reported(self, dag: DAG, hook: Hook) -> None:
        failure_alert()({"dag": dag, "run_id": RUN, "reason": "timed_out"})
        assert hook.posts[0].document["kind"] == "timed_out"
        assert hook.posts[0].document["failed_tasks"] == []

    def test_our_own_errors_are_quoted_and_others_are_not(self, dag: DAG, hook: Hook) -> None:
        """A foreign message may contain a line of a log, and with it anything."""
        failure_alert().notify(
            {"dag": dag, "run_id": "1", "exception": SweepflowError("lag: far behind", code="behind")}
        )
        failure_alert().notify({"dag": dag, "run_id": "2", "exception": RuntimeError("row 0a value secret")})
        ours, other = (post.document for post in hook.posts)
        assert (ours["kind"], ours["error"]) == ("failed", "behind")
        assert ours["happened"].endswith(": lag: far behind")
        assert other == failure({"dag": dag, "run_id": "2"}).document()
        assert (other["kind"], other["error"]) == ("failed", None)

    def test_of_many_failed_tasks_the_first_are_named_and_the_others_counted(self) -> None:
        tasks = tuple(f"t{n:02}" for n in range(30))
        alert = Alert("dag", "run", AlertKind.FAILED, "failed", "do", "link", tasks)
        assert values_in(alert.text) == [*tasks[:20], "10"]

    @pytest.mark.usefixtures("settled")
    def test_the_log_has_it_when_nothing_else_is_configured(self, dag: DAG) -> None:
        with capture_logs() as lines:
            run_fails(dag)
            run_fails(dag)
        (alert,) = with_code(lines, "alert")
        assert (alert["log_level"], alert["kind"], alert["dag"], alert["run"]) == ("error", "failed", DAG_ID, RUN)
        assert alert["failed_tasks"] == ["conservative_0"]
        (second,) = with_code(lines, "already_sent")
        assert second["alert"] == f"{DAG_ID}/{RUN}/0"


class TestDeduplication:
    def test_a_callback_that_runs_twice_alerts_once(self, dag: DAG, hook: Hook) -> None:
        run_fails(dag)
        run_fails(dag)
        assert len(hook.posts) == 1

    def test_a_run_that_is_late_and_then_fails_is_reported_once(self, dag: DAG, hook: Hook) -> None:
        deadline_passes(dag)
        run_fails(dag)
        assert [post.document["kind"] for post in hook.posts] == ["late"]

    def test_a_run_that_fails_and_is_then_late_is_reported_once(self, dag: DAG, hook: Hook) -> None:
        run_fails(dag)
        deadline_passes(dag)
        assert [post.document["kind"] for post in hook.posts] == ["failed"]

    def test_another_run_is_another_alert(self, dag: DAG, hook: Hook) -> None:
        run_fails(dag, "manual__1")
        run_fails(dag, "manual__2")
        assert [post.document["run"] for post in hook.posts] == ["manual__1", "manual__2"]

    def test_a_cleared_run_that_fails_again_is_reported_again(self, dag: DAG, hook: Hook) -> None:
        for cleared in (0, 1, 1):
            run_fails(dag, cleared=cleared)
        assert [post.document["id"] for post in hook.posts] == [f"{DAG_ID}/{RUN}/0", f"{DAG_ID}/{RUN}/1"]

    def test_concurrent_processes_report_each_run_once(self, hook: Hook) -> None:
        in_processes(2, fail_runs, 10)
        assert sorted(post.document["run"] for post in hook.posts) == [f"manual__{run}" for run in range(10)]


class TestDryRuns:
    def test_a_failed_or_late_dry_run_sends_no_alert(self, dag: DAG, hook: Hook) -> None:
        with capture_logs() as lines:
            run_fails(dag, conf={"dry_run": True})
            assert deadline_passes(dag, conf={"dry_run": True})[-1] == "success"
        assert hook.posts == []
        assert with_code(lines, "alert") == []
        assert len(with_code(lines, "dry_run")) == 2

    def test_the_same_run_without_dry_run_is_reported(self, dag: DAG, hook: Hook) -> None:
        """Nothing was remembered as sent."""
        run_fails(dag, conf={"dry_run": True})
        run_fails(dag, conf={"dry_run": False})
        assert [post.document["run"] for post in hook.posts] == [RUN]

    def test_a_problem_found_by_a_dry_run_is_reported_by_the_next_real_run(self, dag: DAG, hook: Hook) -> None:
        error = NeedsAttention(["a record without an owner"], ["record a"])
        for dry_run in (True, False, False):
            context = {"dag": dag, "run_id": f"dry_{dry_run}", "exception": error, "params": {"dry_run": dry_run}}
            problem_alert().notify(context)
        assert [post.document["run"] for post in hook.posts] == ["dry_False"]

    def test_what_a_task_sees_of_the_form_counts_before_what_was_asked_for(self) -> None:
        """Airflow can be configured to ignore the configuration of a run (dag_run_conf_overrides_params)."""
        asked = SimpleNamespace(conf={"dry_run": True})
        assert is_dry_run({"dag_run": asked})
        assert not is_dry_run({"dag_run": asked, "params": {"dry_run": False}})
        assert not is_dry_run({"dag_run": SimpleNamespace(conf=None), "params": {}})


class TestFailures:
    def test_a_failing_channel_does_not_suppress_the_other(self, dag: DAG, settled: pytest.MonkeyPatch) -> None:
        with mail_server("none") as box, web_server([500] * 9) as hook:
            settled.setenv("SWEEPFLOW_ALERT_WEBHOOK_URL", hook.url)
            for name, value in {"HOST": HOST, "PORT": str(box.port), "TLS": "none", "FROM": "a@b", "TO": "c@d"}.items():
                settled.setenv(f"SWEEPFLOW_ALERT_SMTP_{name}", value)
            run_fails(dag)
            run_fails(dag)
        assert len(box.mails) == 1
        assert len(hook.posts) == 1, "the mail was sent, so the run counts as reported"

    def test_an_unreachable_mail_server_does_not_suppress_the_webhook(
        self, dag: DAG, hook: Hook, settled: pytest.MonkeyPatch
    ) -> None:
        for name, value in {"HOST": HOST, "PORT": str(free_port()), "FROM": "a@b", "TO": "c@d"}.items():
            settled.setenv(f"SWEEPFLOW_ALERT_SMTP_{name}", value)
        run_fails(dag)
        assert len(hook.posts) == 1

    def test_an_alert_that_no_channel_accepted_is_sent_by_the_next_callback(self, dag: DAG, hook: Hook) -> None:
        hook.answers = [500]
        run_fails(dag)
        deadline_passes(dag)
        run_fails(dag)
        assert [post.document["kind"] for post in hook.posts] == ["failed", "late"]

    @pytest.mark.parametrize("store", ["sqlite:////nowhere/store.db", "sqlite:///", "cassandra://away/keyspace"])
    def test_without_a_store_an_alert_is_sent_and_marked_as_possibly_duplicate(
        self, dag: DAG, hook: Hook, settled: pytest.MonkeyPatch, store: str
    ) -> None:
        settled.setenv("SWEEPFLOW_STORE", store)
        with capture_logs() as lines:
            run_fails(dag)
        assert hook.posts[0].document["text"].endswith(MAY_COME_TWICE)
        assert with_code(lines, "memory_unavailable")

    def test_wrong_settings_leave_the_log(self, dag: DAG, hook: Hook, settled: pytest.MonkeyPatch) -> None:
        settled.setenv("SWEEPFLOW_RETENTION_S", "soon")
        with capture_logs() as lines:
            run_fails(dag)
        assert hook.posts == []
        assert with_code(lines, "alert")
        assert (lines[-1]["code"], lines[-1]["field"]) == ("only_logged", "setting retention_s")

    def test_a_context_it_does_not_know_breaks_nothing(self) -> None:
        with capture_logs() as lines:
            SweepNotifier().notify({})
        assert (lines[-1]["code"], lines[-1]["error"]) == ("no_alert", "KeyError")


class TestSecrets:
    def test_none_is_printed_at_any_level_whatever_fails(self, sqlite_url: str, tmp_path: Path) -> None:
        """Every line of a process with all its loggers wide open."""
        code = (
            "import logging, sys; logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)\n"
            "from sweep_tasks.config import load_settings\n"
            "from sweep_tasks.alerts.message import Alert, AlertKind\n"
            "from sweep_tasks.alerts.delivery import send_once\n"
            "settings = load_settings()\n"
            "print(settings, repr(settings), settings.model_dump(), settings.model_dump_json())\n"
            "assert not send_once(Alert('d', 'r', AlertKind.FAILED, 'failed', 'do', 'link'))\n"
        )
        port = str(free_port())
        environment = {
            "SWEEPFLOW_STORE": sqlite_url, "SWEEPFLOW_ALERT_ATTEMPTS": "2", "AIRFLOW_HOME": str(tmp_path),
            "SWEEPFLOW_ALERT_SMTP_HOST": HOST, "SWEEPFLOW_ALERT_SMTP_PORT": port, "SWEEPFLOW_ALERT_SMTP_FROM": "a@b",
            "SWEEPFLOW_ALERT_SMTP_TO": "c@d", "SWEEPFLOW_ALERT_SMTP_USER": "u",
            "SWEEPFLOW_ALERT_SMTP_PASSWORD": "s3cr3t-password", "SWEEPFLOW_ALERT_WEBHOOK_TOKEN": "s3cr3t-token",
            "SWEEPFLOW_ALERT_WEBHOOK_URL": f"https://{HOST}:{port}/s3cr3t-path",
        }  # fmt: skip
        ran = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=240
        )
        assert ran.returncode == 0, ran.stderr
        failed = [line for line in ran.stdout.splitlines() if "code=not_delivered" in line]
        assert len(failed) == 2
        assert all(any(f"channel={channel}" in line for line in failed) for channel in ("mail", "webhook"))
        assert "s3cr3t" not in ran.stdout + ran.stderr

    @pytest.mark.parametrize(
        ("variables", "reason", "named"),
        [
            ({"WEBHOOK_URL": "s3cr3t.example"}, "not_an_address", ["alert_webhook_url"]),
            ({"WEBHOOK_URL": "http://h", "WEBHOOK_TOKEN": "s3cr3t"}, "token_unencrypted", ["alert_webhook_token"]),
            (
                {"SMTP_HOST": "h", "SMTP_FROM": "a@b"},
                "no_addresses",
                ["alert_smtp_host", "alert_smtp_from", "alert_smtp_to"],
            ),
            ({"SMTP_PASSWORD": "s3cr3t"}, "incomplete_login", ["alert_smtp_user", "alert_smtp_password"]),
            (
                {"SMTP_USER": "u", "SMTP_PASSWORD": "s3cr3t", "SMTP_TLS": "none"},
                "password_unencrypted",
                ["alert_smtp_password"],
            ),
        ],
    )
    def test_settings_that_are_refused_are_not_shown_in_the_traceback(
        self, variables: dict[str, str], reason: str, named: list[str]
    ) -> None:
        code = (
            "from sweep_tasks.config import load_settings\n"
            "from sweep_tasks.errors import BadValue\n"
            "try:\n"
            "    load_settings()\n"
            "except BadValue as error:\n"
            "    print(error.field, error.reason)\n"
            "    raise\n"
        )
        environment = {f"SWEEPFLOW_ALERT_{name}": value for name, value in variables.items()}
        ran = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=240
        )
        assert ran.returncode == 1
        assert ran.stdout.split() == ["setting", reason]
        assert all(setting in ran.stderr for setting in named)
        assert "s3cr3t" not in ran.stderr


class TestInADagFile:
    def test_the_dag_can_be_serialized_and_its_deadline_names_the_notifier(self, dag: DAG) -> None:
        serialized = DagSerialization.to_dict(dag)["dag"]
        assert serialized["has_on_failure_callback"]
        (deadline,) = serialized["deadline"]
        assert "sweep_tasks.alerts.notifier.SweepNotifier" in str(deadline)

    def test_importing_it_costs_no_store_and_no_settings(self) -> None:
        code = (
            "import sys, sweep_tasks.alerts.notifier\n"
            "print([name for name in sys.modules if name.startswith(('sweep_tasks', 'pydantic_settings', 'smtplib'))])"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
        assert eval(ran.stdout.splitlines()[-1]) == [  # noqa: S307
            "sweep_tasks", "sweep_tasks.alerts", "sweep_tasks.alerts.notifier",
        ]  # fmt: skip
