"""The page inside the Airflow UI: seen through a real browser, guarded by Airflow's own users and rights."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pendulum
import pytest
from playwright.sync_api import Browser, expect

from sweep_tasks.clock import SystemClock, to_ms
from sweep_tasks.journal import Journal
from sweep_tasks.model import SweepStrategy
from sweep_tasks.observation.samples import take_sample
from sweep_tasks.orchestration.local_airflow import LocalAirflow
from sweep_tasks.orchestration.local_environment import Login
from sweep_tasks.orchestration.names import TARGETED_SWEEP
from sweep_tasks.orchestration.page.application import HEADERS, page_app
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.sweep.pauses import Pauses
from tests.airflow.browser import chromium, somebody
from tests.airflow.conftest import SHARDS
from tests.airflow.queued import TABLES, QueuedStore
from tests.support.clock import ManualClock
from tests.support.protections import protect_often

pytestmark = pytest.mark.timeout(600)

CONSERVATIVE = SweepStrategy.CONSERVATIVE
BACKUP = "backup-nightly"
FORMS = re.compile(r'name="token" value="([^"]+)"')


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not longer than these tests: while it is open, nobody else in this thread can run an event loop."""
    with chromium() as opened:
        yield opened


@pytest.fixture
def lagging(queued: QueuedStore) -> QueuedStore:
    """Written to ten hours ago, and since then swept in every shard but one; a protection that holds something."""
    queued.write(CONSERVATIVE, 0, 2, ManualClock(to_ms(pendulum.now("UTC").subtract(hours=10))))
    catalog = ProtectionCatalog(queued.store)
    assert catalog.protect(Record(BACKUP, queued.timestamps.fresh(), Mode.AT, (Target(TABLES[CONSERVATIVE]),))).accepted
    queued.write(CONSERVATIVE, 0, 1)
    last = queued.timestamps.greatest()
    for strategy in QUEUES:
        for shard in range(SHARDS):
            if (strategy, shard) != (CONSERVATIVE, 0):
                queued.progress.advance(strategy, shard, last)
    take_sample(queued.store, SystemClock())
    return queued


@contextmanager
def client(airflow: LocalAirflow, login: Login | None = None) -> Iterator[httpx.Client]:
    """As a browser that has logged in: with the cookie."""
    with httpx.Client(base_url=airflow.address, timeout=60) as made:
        if login:
            token = made.post("/auth/token", json={"username": login.user, "password": login.password})
            made.cookies.set("_token", token.json()["access_token"])
        yield made


def every_route() -> list[tuple[str, str]]:
    """Of the application as it is, with something in the place of each parameter."""
    paths: dict[str, dict[str, Any]] = page_app().openapi()["paths"]
    found = [(method.upper(), path.replace("{name}", "page.js")) for path, each in paths.items() for method in each]
    assert len(found) > 10
    return found


def test_an_operator_sees_what_is_late_and_does_something_about_it(
    airflow: LocalAirflow, lagging: QueuedStore, browser: Browser
) -> None:
    with somebody(browser, airflow, airflow.secrets.admin) as operator:
        operator.open_sweeping()
        page = operator.sweeping
        expect(page.locator("[data-verdict]")).to_have_text("behind")
        strip = page.locator("[data-strategy=conservative]")
        expect(strip.locator("[data-shard='0']")).to_have_class("heat level-5")
        expect(strip.locator("[data-shard='1']")).to_have_class("heat level-0")
        operator.keep("a shard is late")

        page.locator("#press-dry-run-1").press("Enter")
        expect(page.get_by_label("Shards, such as")).to_have_value("0")
        page.get_by_label("Reason").press("Escape")
        expect(page.locator("dialog[open]")).to_have_count(0)
        page.locator("#press-dry-run-1").click()
        page.get_by_label("Reason").fill("what would go?")
        operator.keep("a dry run is asked for")
        page.get_by_role("button", name="Start the dry run").click()
        expect(page.locator("#message")).to_contain_text("dry run of conservative, shards 0 is started: manual__")
        run = page.locator("#message").inner_text().split()[-1]
        expect(page.locator("#under-way")).to_contain_text(f"{run}, started by admin")

        page.locator(f"[data-record={BACKUP}]").get_by_role("link", name="Release").click()
        expect(page.locator("dialog")).to_contain_text(f"Release {BACKUP}?")
        page.get_by_label("Reason").fill("the backup is done")
        page.get_by_role("button", name="Release").click()
        expect(page.locator("#message")).to_contain_text(f"{BACKUP} is released")
        expect(page.locator(f"[data-record={BACKUP}]")).to_have_count(0)

        page.get_by_role("link", name="Pause").click()
        page.get_by_label("What", exact=True).select_option("app.conservative")
        page.get_by_label("Reason").fill("a closer look")
        page.get_by_role("button", name="Pause").click()
        expect(page.locator(".notice")).to_contain_text("app.conservative is paused by admin")
        operator.keep("a table is paused")
        page.get_by_role("link", name="Resume").click()
        page.get_by_label("Reason").fill("seen enough")
        page.get_by_role("button", name="Resume").click()
        expect(page.locator(".notice")).to_have_count(0)
        expect(page.locator("#journal tbody tr")).to_have_count(4)
        assert operator.complaints == []

        page.get_by_role("link", name=f"The DAG {TARGETED_SWEEP}").or_(page.get_by_role("link", name=run)).first.click()
        operator.page.wait_for_url(re.compile(f"/dags/{TARGETED_SWEEP}"))

    assert ProtectionCatalog(lagging.store).records() == []
    assert Pauses(lagging.store).standing() == (None, {})
    notes = [(note.by, note.what, note.about, note.reason, note.outcome) for note in Journal(lagging.store).last()]
    assert notes == [
        ("admin", "resume", "app.conservative", "seen enough", "done"),
        ("admin", "pause", "app.conservative", "a closer look", "done"),
        ("admin", "release", BACKUP, "the backup is done", "done"),
        ("admin", "dry run", "conservative, shards 0", "what would go?", "done"),
    ]
    started = airflow.api("GET", f"/dags/{TARGETED_SWEEP}/dagRuns/{run}")
    assert (started["triggering_user_name"], started["note"]) == ("admin", "what would go?")
    assert started["conf"] == {"strategies": ["conservative"], "shards": "0", "dry_run": True}


def test_it_is_as_light_or_dark_as_airflow_and_fits_a_narrow_window(
    airflow: LocalAirflow, lagging: QueuedStore, browser: Browser
) -> None:
    backgrounds = []
    for colours in ("light", "dark"):
        with somebody(browser, airflow, airflow.secrets.admin, colours) as operator:
            operator.open_sweeping()
            body = operator.sweeping.locator("body")
            backgrounds.append(body.evaluate("body => getComputedStyle(body).backgroundColor"))
            operator.keep(f"{colours}")
            operator.keep_whole(f"{colours}, whole")
    assert backgrounds == ["rgb(255, 255, 255)", "rgb(20, 23, 28)"]
    with somebody(browser, airflow, airflow.secrets.admin, width=420) as operator:
        operator.keep_whole("narrow, whole")
        overflow = operator.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert overflow <= 0


def test_nobody_gets_anything_without_a_login(airflow: LocalAirflow, lagging: QueuedStore) -> None:
    with client(airflow) as stranger:
        for method, path in every_route():
            answer = stranger.request(method, f"/sweepflow{path}")
            assert (answer.status_code, answer.json()) == (401, {"detail": "Not authenticated"}), path
        for path in ("/docs", "/redoc", "/openapi.json", "/assets/", "/assets/../application.py", "/nothing"):
            assert stranger.get(f"/sweepflow{path}").status_code in (401, 404), path


def test_who_may_only_look_can_not_act(airflow: LocalAirflow, lagging: QueuedStore) -> None:
    with client(airflow, airflow.secrets.viewer) as viewer:
        shown = viewer.get("/sweepflow/")
        assert (shown.status_code, BACKUP in shown.text, "Release" in shown.text) == (200, True, False)
        forms = [path for method, path in every_route() if method == "GET" and path.split("/")[-1] in _ASKING]
        assert len(forms) == 5
        for path in forms:
            assert viewer.get(f"/sweepflow{path}").status_code == 403, path
        for method, path in every_route():
            if method == "POST":
                assert viewer.post(f"/sweepflow{path}", data={"reason": "please"}).status_code == 403, path
    assert [record.id for record in ProtectionCatalog(lagging.store).records()] == [BACKUP]
    assert Journal(lagging.store).last() == []


_ASKING = ("new", "release", "resume", "retry")


def test_another_site_can_not_act_through_an_operators_browser(airflow: LocalAirflow, lagging: QueuedStore) -> None:
    with client(airflow, airflow.secrets.admin) as operator:
        form = operator.get("/sweepflow/protections/release", params={"id": BACKUP})
        token = FORMS.search(form.text)
        assert token
        record = ProtectionCatalog(lagging.store).get(BACKUP)
        given = {"id": BACKUP, "version": str(record.version), "reason": "because", "token": token[1]}
        for changed, headers in (
            ({"token": ""}, {}),
            ({"token": token[1][:-1]}, {}),
            ({}, {"Origin": "https://evil.example"}),
            ({}, {"Sec-Fetch-Site": "cross-site"}),
        ):
            answer = operator.post("/sweepflow/protections/release", data=given | changed, headers=headers)
            assert answer.status_code == 403, (changed, headers)
        assert operator.post("/sweepflow/protections/release", data=given | {"reason": " "}).status_code == 400
        assert ProtectionCatalog(lagging.store).get(BACKUP) == record
        assert operator.post("/sweepflow/protections/release", data=given).status_code == 303
        assert operator.post("/sweepflow/protections/release", data=given).status_code == 404


def test_every_answer_says_what_a_browser_may_do_with_it(airflow: LocalAirflow, lagging: QueuedStore) -> None:
    with client(airflow, airflow.secrets.admin) as operator:
        for path in ("/", "/overview", "/assets/page.js", "/sweeps/new", "/protections/release?id=none", "/nothing"):
            answer = operator.get(f"/sweepflow{path}")
            said = {name: answer.headers.get(name) for name in HEADERS}
            assert said == HEADERS, path


def test_a_store_that_can_not_be_read_is_told_in_a_sentence(
    airflow: LocalAirflow, queued: QueuedStore, settings_file: Path, tmp_path: Path
) -> None:
    settings_file.write_text(f'store = "sqlite:///{tmp_path}/gone.db"\n')
    with client(airflow, airflow.secrets.admin) as operator:
        for path in ("/", "/overview"):
            answer = operator.get(f"/sweepflow{path}")
            assert answer.status_code == 503
            assert "The store can&#39;t be read" in answer.text
            assert "gone.db" in answer.text
            assert "Traceback" not in answer.text


def test_a_large_store_costs_at_most_ten_times_an_empty_one(airflow: LocalAirflow, queued: QueuedStore) -> None:
    def best(operator: httpx.Client) -> float:
        took = []
        for _ in range(5):
            began = time.perf_counter()
            assert operator.get("/sweepflow/").status_code == 200
            took.append(time.perf_counter() - began)
        return min(took)

    with client(airflow, airflow.secrets.admin) as operator:
        empty = best(operator)
        queued.progress.raise_shards(256)
        protect_often(queued.store, TABLES[CONSERVATIVE], 512)
        full = best(operator)
    assert full < 10 * empty, f"{full:.3f} s against {empty:.3f} s"
