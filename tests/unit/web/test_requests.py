"""Invalid addresses and forms, and failures of Airflow, are shown as a sentence."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from starlette.responses import PlainTextResponse

from sweep_tasks.journal.journal import Journal
from sweep_tasks.orchestration.form import LONGEST_SHARDS
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.store import Store
from sweep_tasks.tables.pauses import Pauses
from sweep_tasks.texts import LONGEST_ID
from sweep_tasks.web import as_user
from sweep_tasks.web.application import RETRY_AFTER_S
from tests.support.html import Element
from tests.unit.web.conftest import TABLE
from tests.unit.web.http_client import (
    ADA,
    KEEPER,
    SWEEPER,
    VIEWER,
    form_of,
    problem_of,
    web_client,
    with_web_client,
)

pytestmark = pytest.mark.usefixtures("users")

HUGE = "9" * 5_000
ESCAPE = "\x1b[2J"
STEPS_UP = ["..", ".", "../../etc/passwd", "a/b", "/", "%2e%2e", "..\\x", "\x00"]


def got(path: str, user: str = ADA, **query: str) -> httpx.Response:
    return asyncio.run(with_web_client(user, lambda one: one.get(f"/sweepflow/{path}", params=query)))


def posted(path: str, form: str, query: dict[str, str], fields: dict[str, str], user: str = ADA) -> httpx.Response:
    async def send(one: httpx.AsyncClient) -> httpx.Response:
        given = await form_of(one, form, **query) | {"reason": "because"} | fields
        return await one.post(f"/sweepflow/{path}", data=given)

    return asyncio.run(with_web_client(user, send))


class Airflow:
    """Answers as configured; all `runs` are failed."""

    def __init__(self, *runs: str) -> None:
        self.asked: list[str] = []
        self.app = FastAPI()
        self.app.get("/api/v2/dags/{dag}")(lambda: {"is_paused": False})
        self.app.get("/api/v2/dags/{dag}/dagRuns")(lambda: {"dag_runs": [self.run(name) for name in runs]})
        self.app.get("/api/v2/dags/{dag}/dagRuns/{run}/taskInstances")(self.tasks)
        self.app.get("/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/~/xcomEntries")(self.entries)

    @staticmethod
    def run(name: str) -> dict[str, Any]:
        given = {"dag_id": "targeted_sweep", "dag_run_id": name, "state": "failed", "run_after": "2026-01-01T00:00:00Z"}
        return given | {"end_date": None, "conf": None, "triggering_user_name": None}

    def tasks(self, run: str) -> dict[str, Any]:
        self.asked.append(run)
        return {"task_instances": [{"task_id": ".."}, {"task_id": "check"}], "total_entries": 2}

    def entries(self, run: str) -> dict[str, Any]:
        self.asked.append(run)
        return {"xcom_entries": [], "total_entries": 0}


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    created = Airflow()
    monkeypatch.setattr(as_user, "airflow_app", lambda: created.app)
    return created


@pytest.mark.parametrize("shards", [HUGE, "1-" + HUGE, "0," * LONGEST_SHARDS + "0", "1;2", ESCAPE, ".."])
def test_impossible_shards_are_refused(store: Store, airflow: Airflow, shards: str) -> None:
    asked = got("sweeps/new", shards=shards)
    assert problem_of(asked)[:3] == (400, "bad_value", "shards")
    sent = posted("sweeps", "sweeps/new", {}, {"strategies": "thorough", "shards": shards})
    assert problem_of(sent)[:3] == (400, "bad_value", "shards")
    (note,) = Journal(store).last()
    assert note.outcome == "failed: bad_value"
    assert len(note.about) < 200
    assert note.about.isprintable()


@pytest.mark.parametrize("name", [*STEPS_UP, HUGE])
def test_a_name_that_leaves_the_folder_is_not_found(store: Store, airflow: Airflow, name: str) -> None:
    run = posted("sweeps", "sweeps/new", {}, {"strategies": "thorough", "run": name})
    assert problem_of(run)[:3] == (400, "bad_value", "run")
    assert got("protections/release", id=name).status_code in (400, 404)
    released = posted("protections/release", "pauses/new", {}, {"id": name, "version": "1"})
    assert released.status_code in (400, 404)
    for path in ("pauses", "pauses/resume"):
        paused = posted(path, "pauses/new", {}, {"what": name})
        assert problem_of(paused)[:3] == (400, "bad_value", "table"), path
    assert problem_of(got("pauses/resume", what=name))[:3] == (400, "bad_value", "table")
    assert got(f"assets/{quote(name, safe='').replace('.', '%2E')}").status_code == 404
    assert got("", message=name).status_code == 200


def test_an_id_is_no_longer_than_one_can_be(store: Store) -> None:
    ids = ("x" * (LONGEST_ID + 1), "", f"a{ESCAPE}", "\u202egpj")
    assert [problem_of(got("protections/release", id=each))[:3] for each in ids] == [(400, "bad_value", "id")] * 4
    assert problem_of(got("protections/release", id="x" * LONGEST_ID))[:2] == (404, "not_found")
    huge = posted("protections/release", "pauses/new", {}, {"id": "backup", "version": HUGE})
    assert problem_of(huge)[:3] == (422, "bad_value", "version")


@pytest.mark.parametrize("reason", [f"a{ESCAPE}b", "\u202eevil", "x" * 501, " \t\n"])
def test_a_reason_that_can_not_be_shown_is_refused(store: Store, reason: str) -> None:
    answer = posted("pauses", "pauses/new", {}, {"what": str(TABLE), "reason": reason})
    assert problem_of(answer)[:3] == (400, "bad_value", "reason")
    assert Journal(store).last() == []
    assert Pauses(store).current().tables == {}


def test_a_reason_is_kept_on_one_line(store: Store) -> None:
    assert posted("pauses", "pauses/new", {}, {"what": str(TABLE), "reason": " a\tcloser\r\nlook "}).status_code == 303
    assert Pauses(store).current().tables[TABLE].reason == "a closer look"
    assert [note.reason for note in Journal(store).last()] == ["a closer look"]


def test_runs_are_requested_and_linked_by_any_name(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    created = Airflow("..", "a/b", f"x{ESCAPE}", "manual__1", "a b?c#d")
    monkeypatch.setattr(as_user, "airflow_app", lambda: created.app)
    for path in ("runs", "runs/failed", "compaction"):
        created.asked.clear()
        answer = got(path)
        assert answer.status_code == 200, path
        assert "\x1b" not in answer.text
        hrefs = [link["href"] for link in Element.of(answer.text).all("href")]
        assert [href for href in hrefs if ".." in href.split("/") or "a/b" in href] == [], path
        assert "a/b" not in created.asked
    assert set(created.asked) == {"..", f"x{ESCAPE}", "manual__1", "a b?c#d"}
    hrefs = [link["href"] for link in Element.of(got("runs/failed").text).all("href")]
    assert "/dags/targeted_sweep/runs/a%20b%3Fc%23d/tasks/check" in hrefs
    assert "/dags/targeted_sweep/runs/a%2Fb" in hrefs


@pytest.mark.parametrize("path", ["runs", "runs/failed", "compaction", "sweeps/new"])
def test_an_unresponsive_airflow_is_reported_in_time(store: Store, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    api = FastAPI()

    @api.get("/api/v2/{anything:path}")
    def busy(anything: str) -> None:
        """In a thread, as Airflow answers: it can't be interrupted."""
        time.sleep(2)

    monkeypatch.setattr(as_user, "airflow_app", lambda: api)
    monkeypatch.setattr(as_user, "LONGEST_S", 0.1)

    async def ask() -> tuple[httpx.Response, float]:
        async with web_client(ADA) as ada:
            began = time.perf_counter()
            return await ada.get(f"/sweepflow/{path}"), time.perf_counter() - began

    answer, took_s = asyncio.run(ask())
    assert problem_of(answer) == (504, "unavailable", None, "timeout")
    assert answer.headers["retry-after"] == str(RETRY_AFTER_S)
    assert took_s < 1.5


@pytest.mark.parametrize("path", ["runs", "runs/failed", "compaction", "sweeps/new"])
def test_an_unexpected_answer_of_airflow_is_reported(store: Store, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    api = FastAPI()
    api.get("/api/v2/{anything:path}")(lambda: PlainTextResponse("<html>a proxy</html>"))
    monkeypatch.setattr(as_user, "airflow_app", lambda: api)
    assert problem_of(got(path)) == (503, "unavailable", None, "not_json")


def test_no_answer_sends_a_browser_to_the_host_that_a_request_names(store: Store) -> None:
    async def ask() -> list[httpx.Response]:
        async with web_client(ADA) as ada:
            ada.headers["Host"] = "evil.example"
            given = await form_of(ada, "quarantine/retry") | {"reason": "because"}
            acted = await ada.post("/sweepflow/quarantine/retry", data=given)
            paths = ("runs/", "sweeps/new/", "pauses/new/", "metrics/", "overview/", "assets", "protections/release/")
            return [acted, *[await ada.get(f"/sweepflow/{path}") for path in paths]]

    acted, *others = asyncio.run(ask())
    assert acted.status_code == 303
    assert acted.headers["location"].startswith("/sweepflow/?message=")
    assert [(answer.status_code, answer.headers.get("location")) for answer in others] == [(404, None)] * len(others)


def test_releasing_a_record_takes_the_right_to_edit_the_dag_that_reconciles_records(store: Store) -> None:
    assert ProtectionCatalog(store).protect(Record("backup", 5, Mode.AT, (Target(TABLE),))).accepted
    version = str(ProtectionCatalog(store).get("backup").version)
    fields = {"id": "backup", "version": version}
    buttons = {user: Element.of(got("", user).text).all("id", "press-release-backup") for user in (SWEEPER, KEEPER)}
    assert [len(found) for found in buttons.values()] == [0, 1]
    for user in (SWEEPER, VIEWER):
        assert problem_of(got("protections/release", user, id="backup"))[:2] == (403, "not_allowed")
    refused = posted("protections/release", "pauses/new", {}, fields, SWEEPER)
    assert problem_of(refused)[:2] == (403, "not_allowed")
    assert [record.id for record in ProtectionCatalog(store).records()] == ["backup"]
    for path in ("pauses/new", "quarantine/retry", "pauses/resume?what=everything"):
        assert problem_of(got(path, KEEPER))[:2] == (403, "not_allowed"), path
    assert posted("protections/release", "protections/release", {"id": "backup"}, {}, KEEPER).status_code == 303
    assert ProtectionCatalog(store).records() == []
