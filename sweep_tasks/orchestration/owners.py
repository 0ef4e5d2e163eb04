"""Owners of protections in Airflow and Spark: whether the run or the application has ended."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from sweep_tasks.config import Settings
from sweep_tasks.errors import AirflowHasNone, BadValue, OwnerSilent
from sweep_tasks.orchestration.airflow_api import AirflowApi
from sweep_tasks.protection.owners import Answer, Owner
from sweep_tasks.protection.records import Record

# ---------------------------------------------------------------------------------------------------------------------
# An Airflow run that protects a timestamp: its state is read from Airflow's REST API.
#
# The record's meta has `dag_id` and `run_id`. A run that was deleted, or whose DAG was, is gone: Airflow does not know
# whether something that it started still runs elsewhere.
# ---------------------------------------------------------------------------------------------------------------------

_ANSWERS = {
    "queued": Answer.RUNNING,
    "running": Answer.RUNNING,
    "success": Answer.FINISHED,
    "failed": Answer.FINISHED,
}


class AirflowRunOwner(Owner):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._api: AirflowApi | None = None

    def answer(self, record: Record) -> Answer:
        dag_id, run_id = (self.detail(record, key) for key in ("dag_id", "run_id"))
        try:
            run = self._run(f"/dags/{quote(dag_id, safe='')}/dagRuns/{quote(run_id, safe='')}")
        except AirflowHasNone:
            return Answer.GONE
        if run["state"] not in _ANSWERS:
            raise BadValue("run", f"{run_id} of {dag_id} has an unknown state: {run['state']}")
        return _ANSWERS[run["state"]]

    def close(self) -> None:
        if self._api:
            self._api.close()

    def _run(self, path: str) -> dict[str, str]:
        """Read a run. The connection is looked up on first use: it is not needed without such records."""
        from sweep_tasks.orchestration.prepare import airflow_connection

        if self._api is None:
            self._api = AirflowApi.of(airflow_connection(), self.settings.owner_timeout_s)
        found: dict[str, str] = self._api.call("GET", path)
        return found


# ---------------------------------------------------------------------------------------------------------------------
# A Spark application that protects a timestamp: its state is read from the master's page and the history server.
#
# The record's meta has `app_id`. The master of a standalone cluster lists running applications and some that have
# ended; the history server (or a driver's own page, which has the same API) reads event logs. A log without an end may
# be of a driver that still runs or of one that died: it counts as running, unless the master does not list it.
# ---------------------------------------------------------------------------------------------------------------------

MASTER, HISTORY = "spark_master_ui_url", "spark_history_url"
_ASKED = (MASTER, HISTORY)


class SparkAppOwner(Owner):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._client = httpx.Client(timeout=settings.owner_timeout_s)

    def answer(self, record: Record) -> Answer:
        app_id = self.detail(record, "app_id")
        answers = {setting: self._ask(setting, app_id) for setting in _ASKED if getattr(self.settings, setting)}
        if not answers:
            raise OwnerSilent(f"spark: no address is configured; set {MASTER} or {HISTORY}", reason="not_configured")
        return concluded(answers.get(MASTER), answers.get(HISTORY))

    def close(self) -> None:
        self._client.close()

    def _ask(self, setting: str, app_id: str) -> Answer | OwnerSilent:
        path = "/json/" if setting == MASTER else f"/api/v1/applications/{quote(app_id, safe='')}"
        try:
            found = self._get(setting, path)
            return on_master(found, app_id) if setting == MASTER else in_history(found)
        except (KeyError, TypeError, IndexError):
            problem = f"spark: what answers at {setting} is not Spark; correct the address"
            return OwnerSilent(problem, field=setting, reason="not_spark")
        except OwnerSilent as silent:
            return silent

    def _get(self, setting: str, path: str) -> Any:
        """Return the answer, or None if there is no such application. The address may contain a password, so errors
        name its setting instead."""
        address = getattr(self.settings, setting).get_secret_value().rstrip("/")
        try:
            answer = self._client.get(f"{address}{path}")
            if answer.status_code == HTTPStatus.NOT_FOUND and setting == HISTORY:
                return None
            return answer.raise_for_status().json()
        except httpx.HTTPStatusError:
            problem = f"spark: {setting} was answered with {answer.status_code}; correct the address"
            raise OwnerSilent(problem, field=setting, reason="bad_status") from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            problem = (
                f"spark: {setting} gave no answer ({type(error).__name__}); correct the address, or start the server"
            )
            raise OwnerSilent(problem, field=setting, reason="no_answer") from None


def on_master(page: Any, app_id: str) -> Answer:
    """Return the state according to the master's page."""
    if any(app["id"] == app_id for app in page["activeapps"]):
        return Answer.RUNNING
    return Answer.FINISHED if any(app["id"] == app_id for app in page["completedapps"]) else Answer.GONE


def in_history(application: Any) -> Answer:
    """Return the state according to the history server, which lists the last attempt first."""
    if application is None:
        return Answer.GONE
    return Answer.FINISHED if application["attempts"][0]["completed"] else Answer.RUNNING


def concluded(master: Answer | OwnerSilent | None, history: Answer | OwnerSilent | None) -> Answer:
    """Combine both answers. An answer that it has ended is always right, the master knows what runs, and it is gone
    only if every configured server has answered so."""
    if Answer.FINISHED in (master, history):
        return Answer.FINISHED
    if Answer.RUNNING is master or (Answer.RUNNING is history and master is not Answer.GONE):
        return Answer.RUNNING
    for each in (master, history):
        if isinstance(each, OwnerSilent):
            raise each
    return Answer.GONE
