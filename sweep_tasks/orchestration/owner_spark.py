"""Is the Spark application that took a protection over? Asked of the master's page and of the history server.

The record's meta names `app_id`. The master of a standalone cluster knows what runs and remembers some of what has
ended; the history server (or a driver's own page, which answers the same) knows it from event logs. A log without an
end may be of a driver that is still alive or of one that died: it counts as running, unless a master was asked that
does not list it.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from sweep_tasks.config import Settings
from sweep_tasks.errors import OwnerSilent
from sweep_tasks.protection.owners import Answer, Owner
from sweep_tasks.protection.records import Record

MASTER, HISTORY = "spark_master_ui_url", "spark_history_url"
_ASKED = (MASTER, HISTORY)


class SparkAppOwner(Owner):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._client = httpx.Client(timeout=settings.owner_timeout_s)

    def answer(self, record: Record) -> Answer:
        app_id = self.detail(record, "app_id")
        answers = {setting: self._heard(setting, app_id) for setting in _ASKED if getattr(self.settings, setting)}
        if not answers:
            raise OwnerSilent(f"spark: nobody can be asked; set {MASTER} or {HISTORY}", reason="not_configured")
        return concluded(answers.get(MASTER), answers.get(HISTORY))

    def close(self) -> None:
        self._client.close()

    def _heard(self, setting: str, app_id: str) -> Answer | OwnerSilent:
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
        """None if there is no such thing. The address may hold a password: it is named by its setting."""
        address = str(getattr(self.settings, setting)).rstrip("/")
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
    """From the JSON of the master's page."""
    if any(app["id"] == app_id for app in page["activeapps"]):
        return Answer.RUNNING
    return Answer.FINISHED if any(app["id"] == app_id for app in page["completedapps"]) else Answer.GONE


def in_history(application: Any) -> Answer:
    """From what the history server says of one application; its last attempt comes first."""
    if application is None:
        return Answer.GONE
    return Answer.FINISHED if application["attempts"][0]["completed"] else Answer.RUNNING


def concluded(master: Answer | OwnerSilent | None, history: Answer | OwnerSilent | None) -> Answer:
    """From both, or the one that was asked: whoever saw it end is right, the master knows what is alive, and that it is
    gone is true only if nobody who might know it kept silent."""
    if Answer.FINISHED in (master, history):
        return Answer.FINISHED
    if Answer.RUNNING is master or (Answer.RUNNING is history and master is not Answer.GONE):
        return Answer.RUNNING
    for each in (master, history):
        if isinstance(each, OwnerSilent):
            raise each
    return Answer.GONE
