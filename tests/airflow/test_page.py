"""The page inside the Airflow UI: seen through a real browser, guarded by Airflow's own users and rights."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import httpx
import pendulum
import pytest
from itsdangerous import URLSafeTimedSerializer
from playwright.sync_api import Browser, expect

from sweep_tasks.clock import SystemClock, to_ms
from sweep_tasks.journal.journal import Journal
from sweep_tasks.keys import derived_key
from sweep_tasks.local.airflow import LocalAirflow
from sweep_tasks.metrics.samples import SWEEP_COUNTS, keep_point, take_sample, tally_sweep
from sweep_tasks.metrics.tally import TaskAttempt
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.names import TARGETED_SWEEP
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.summary import Summary
from sweep_tasks.tables.pauses import Pauses
from sweep_tasks.web import application
from sweep_tasks.web.application import HEADERS, page_app
from tests.airflow.browser import chromium, logged_in
from tests.airflow.conftest import SHARDS
from tests.airflow.http_client import client, token_of
from tests.airflow.queued import TABLES, QueuedStore
from tests.support.clock import ManualClock
from tests.support.html import Element
from tests.support.protections import protect_often
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(600)

CONSERVATIVE = SweepStrategy.CONSERVATIVE
BACKUP = "backup-nightly"
FORMS = re.compile(r'name="token" value="([^"]+)"')


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not longer than these tests: while it is open, no other code in this thread can run an event loop."""
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


def every_route() -> list[tuple[str, str]]:
    """Return method and path of every route of the application, with a value for each parameter."""
    paths: dict[str, dict[str, Any]] = page_app().openapi()["paths"]
    found = [(method.upper(), path.replace("{name}", "page.js")) for path, each in paths.items() for method in each]
    assert len(found) > 10
    return found


def swept_for_a_week(store: Store) -> None:
    """A sample for every hour, and what the last sweeps of some shards did."""
    now_ms = SystemClock().now_ms()
    counts: dict[str, Any] = dict.fromkeys(SWEEP_COUNTS, 7)
    for number in range(0, 256, 8):
        for strategy in QUEUES:
            by = TaskAttempt(TARGETED_SWEEP, f"r{number}", f"{strategy}.shard_{number}")
            at = ManualClock(now_ms - number * 3_600_000 // 2)
            summary = Summary(strategy, number, 10, progress=9, progress_before=1, seconds={"all": 1.0}, **counts)
            tally_sweep(store, at, summary, by)
    sample = take_sample(store, SystemClock())
    for hour in range(7 * 24):
        keep_point(store, sample.model_copy(update={"at_ms": now_ms - hour * 3_600_000}))


def test_an_operator_sees_what_is_late_and_does_something_about_it(
    airflow: LocalAirflow, lagging: QueuedStore, browser: Browser
) -> None:
    with logged_in(browser, airflow, airflow.secrets.admin) as operator:
        operator.open_sweeping()
        page = operator.sweeping
        expect(page.locator("[data-verdict]")).to_have_attribute("data-verdict", "behind")
        expect(page.locator("[data-verdict]")).not_to_be_empty()
        strip = page.locator("[data-strategy=conservative]")
        expect(strip.locator("[data-shard='0']")).to_have_class("heat level-5")
        expect(strip.locator("[data-shard='1']")).to_have_class("heat level-0")
        operator.keep("a shard is late")

        button = page.locator("#press-problem-dry-run-conservative")
        expect(button).to_have_attribute("href", re.compile(r"dry_run=1&strategy=conservative&shards=0$"))
        expect(button).to_have_text(re.compile(r"\b0\b"))
        assert operator.walk_to("press-problem-dry-run-conservative"), "no tab key leads to it"
        operator.page.keyboard.press("Enter")
        expect(operator.question().locator("#shards")).to_have_value("0")
        operator.page.keyboard.press("Escape")
        expect(page.locator("dialog[open]")).to_have_count(0)
        page.locator("#press-dry-run-conservative-0").click()
        asked = operator.question()
        expect(asked.locator("[name=dry_run]")).to_have_value("true")
        run = asked.locator("[name=run]").input_value()
        assert run.startswith("manual__")
        operator.keep("a dry run is asked for")
        operator.answers("how much is old?")
        operator.reads_of("dry run", "conservative", "0", run)
        under_way = page.locator(f"#under-way [data-run='{run}']")
        expect(under_way).to_have_attribute("data-by", "admin")
        expect(under_way).to_contain_text(run)
        expect(under_way).to_contain_text("admin")
        assert operator.walk_to("strip-conservative")
        operator.page.keyboard.press("ArrowRight")
        expect(page.locator("#strip-conservative")).to_have_attribute("aria-activedescendant", "heat-conservative-1")
        expect(page.locator("#readout-conservative")).to_have_text(re.compile(r"\bconservative\b.*\b1\b"))

        page.locator(f"[data-record={BACKUP}] #press-release-{BACKUP}").click()
        asked = operator.question()
        expect(asked.locator("[name=id]")).to_have_value(BACKUP)
        expect(asked.locator("h2")).to_contain_text(BACKUP)
        operator.answers("the backup is done")
        operator.reads_of("release", BACKUP)
        expect(page.locator(f"[data-record={BACKUP}]")).to_have_count(0)

        page.locator("#press-pause").click()
        asked = operator.question()
        asked.locator("#what").select_option("app.conservative")
        operator.answers("a closer look")
        operator.reads_of("pause", "app.conservative")
        paused = page.locator("#overview .notice")
        expect(paused).to_have_attribute("data-paused", "app.conservative")
        expect(paused).to_have_attribute("data-by", "admin")
        for shown in ("app.conservative", "admin", "a closer look"):
            expect(paused).to_contain_text(shown)
        operator.keep("a table is paused")
        page.locator("[id='press-resume-app.conservative']").click()
        asked = operator.question()
        expect(asked.locator("[name=what]")).to_have_value("app.conservative")
        operator.answers("seen enough")
        operator.reads_of("resume", "app.conservative")
        expect(paused).to_have_count(0)
        expect(page.locator("#journal tbody tr")).to_have_count(len(Journal(lagging.store).last()))
        assert operator.complaints == []

        page.locator(f"a[data-airflow][href*='/dags/{TARGETED_SWEEP}']").first.click()
        operator.page.wait_for_url(re.compile(f"/dags/{TARGETED_SWEEP}"))

    assert ProtectionCatalog(lagging.store).records() == []
    assert Pauses(lagging.store).current() == (None, {})
    notes = [(note.by, note.what, note.about, note.reason, note.outcome) for note in Journal(lagging.store).last()]
    assert [note for note in notes if note[0] == "admin"] == [
        ("admin", "resume", "app.conservative", "seen enough", "done"),
        ("admin", "pause", "app.conservative", "a closer look", "done"),
        ("admin", "release", BACKUP, "the backup is done", "done"),
        ("admin", "dry run", "conservative, shards 0", "how much is old?", "done"),
    ]
    started = airflow.api("GET", f"/dags/{TARGETED_SWEEP}/dagRuns/{run}")
    assert (started["triggering_user_name"], started["note"]) == ("admin", "how much is old?")
    assert started["conf"] == {"strategies": ["conservative"], "shards": "0", "dry_run": True}


def test_the_page_follows_the_theme_of_airflow_and_fits_a_narrow_window(
    airflow: LocalAirflow, lagging: QueuedStore, browser: Browser
) -> None:
    backgrounds: dict[Literal["light", "dark"], str] = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}
    for colours, background in backgrounds.items():
        with logged_in(browser, airflow, airflow.secrets.admin, colours) as operator:
            operator.open_sweeping()
            expect(operator.sweeping.locator("body")).to_have_css("background-color", background)
            operator.keep(f"{colours}")
            operator.keep_whole(f"{colours}, whole")
    with logged_in(browser, airflow, airflow.secrets.admin, width=420) as operator:
        operator.keep_whole("narrow, whole")
        fits = "document.documentElement.scrollWidth <= innerWidth"
        assert eventually(lambda: operator.page.evaluate(fits), patience_s=30)


def test_every_request_without_a_login_is_refused(airflow: LocalAirflow, lagging: QueuedStore) -> None:
    with client(airflow) as stranger:
        for method, path in every_route():
            answer = stranger.request(method, f"/sweepflow{path}")
            assert (answer.status_code, answer.json()) == (401, {"detail": "Not authenticated"}), path
        for path in ("/docs", "/redoc", "/openapi.json", "/assets/", "/nothing"):
            assert stranger.get(f"/sweepflow{path}").status_code in (401, 404), path
    source = Path(str(application.__file__)).read_text()
    with client(airflow, airflow.secrets.admin) as operator:
        for path in ("..%2fapplication.py", "%2e%2e/application.py", "..%5capplication.py", "page.js%00"):
            answer = operator.get(f"/sweepflow/assets/{path}")
            assert answer.status_code == 404, path
            assert source.splitlines()[0] not in answer.text


def test_a_refusal_of_airflows_guard_is_shown_as_a_sentence(airflow: LocalAirflow, lagging: QueuedStore) -> None:
    person = {"Accept": "text/html,application/xhtml+xml"}
    with client(airflow) as stranger:
        answer = stranger.get("/sweepflow/", headers=person)
        assert problem_of(answer) == (401, "not_logged_in", None)
        assert BACKUP not in answer.text
    with client(airflow, airflow.secrets.viewer) as viewer:
        answer = viewer.get("/sweepflow/sweeps/new", headers=person)
        assert problem_of(answer) == (403, "not_allowed", None)
    with client(airflow, airflow.secrets.admin) as operator:
        answer = operator.get("/sweepflow/protections/release", headers=person)
        assert problem_of(answer) == (422, "bad_value", "id")


def problem_of(answer: httpx.Response) -> tuple[int, str, str | None]:
    """Status, code and field of what a person is shown, in a sentence or more."""
    problem = Element.of(answer.text).one("data-problem")
    assert problem.text
    return answer.status_code, problem["data-problem"], problem.attributes.get("data-field")


def test_a_user_with_read_access_cannot_act(airflow: LocalAirflow, lagging: QueuedStore) -> None:
    before = Journal(lagging.store).last()
    assert before
    with client(airflow, airflow.secrets.viewer) as viewer:
        shown = viewer.get("/sweepflow/")
        assert (shown.status_code, BACKUP in shown.text) == (200, True)
        assert Element.of(shown.text).all("hx-target", "#dialog") == []
        forms = [path for method, path in every_route() if method == "GET" and path.split("/")[-1] in _ASKING]
        assert len(forms) == 5
        for path in forms:
            assert viewer.get(f"/sweepflow{path}").status_code == 403, path
        with client(airflow, airflow.secrets.admin) as operator:
            tokens = {path: form_token(operator, path) for path in forms}
        token = own_token(airflow, airflow.secrets.viewer.user)
        for method, path in every_route():
            if method == "POST":
                for given in (token, *tokens.values()):
                    answer = viewer.post(f"/sweepflow{path}", data={"reason": "please", "token": given} | FIELDS)
                    assert answer.status_code == 403, path
    assert [record.id for record in ProtectionCatalog(lagging.store).records()] == [BACKUP]
    assert Journal(lagging.store).last() == before


_ASKING = ("new", "release", "resume", "retry")
FIELDS = {"id": BACKUP, "version": "1", "what": "everything", "strategies": "conservative"}


def form_token(operator: httpx.Client, path: str) -> str:
    found = FORMS.search(operator.get(f"/sweepflow{path}", params={"id": BACKUP, "what": "everything"}).text)
    assert found, path
    return found[1]


def own_token(airflow: LocalAirflow, user: str) -> str:
    """One that would be taken from this user, signed as the API server signs: it is not for lack of one that they are
    refused."""
    secret = derived_key(airflow.environment["AIRFLOW__API__SECRET_KEY"], "sweepflow page form")
    return str(URLSafeTimedSerializer(secret, salt="sweepflow page form").dumps([user, "number"]))


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
        assert operator.post("/sweepflow/protections/release", data=given).status_code == 409


def test_every_answer_has_the_security_headers(airflow: LocalAirflow, lagging: QueuedStore) -> None:
    with client(airflow, airflow.secrets.admin) as operator:
        for path in ("/", "/overview", "/assets/page.js", "/sweeps/new", "/protections/release?id=none", "/nothing"):
            answer = operator.get(f"/sweepflow{path}")
            output = {name: answer.headers.get(name) for name in HEADERS}
            assert output == HEADERS, path


def test_an_unreadable_store_is_shown_as_a_sentence(
    airflow: LocalAirflow, queued: QueuedStore, settings_file: Path, tmp_path: Path
) -> None:
    settings_file.write_text(f'store = "sqlite:///{tmp_path}/gone.db"\n')
    with client(airflow, airflow.secrets.admin) as operator:
        metrics = operator.get("/sweepflow/metrics")
        assert (metrics.status_code, "sweepflow_up 0.0" in metrics.text.splitlines()) == (200, True)
        for path in ("/", "/overview"):
            answer = operator.get(f"/sweepflow{path}")
            assert answer.status_code == 503
            overview = Element.of(answer.text).one("id", "overview")
            assert overview["data-state"] == "stopped"
            assert "gone.db" in overview.text
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
        swept_for_a_week(queued.store)
        full = best(operator)
        assert 'id="chart-throughput"' in operator.get("/sweepflow/").text
    assert full < 10 * empty, f"{full:.3f} s against {empty:.3f} s"


def test_a_page_opened_while_the_store_is_unreachable_is_complete_afterwards(
    airflow: LocalAirflow, lagging: QueuedStore, settings_file: Path, tmp_path: Path, browser: Browser
) -> None:
    there = settings_file.read_text()
    settings_file.write_text(f'store = "sqlite:///{tmp_path}/gone.db"\n')
    with logged_in(browser, airflow, airflow.secrets.admin) as operator:
        page = operator.page
        page.goto(f"{airflow.address}/sweepflow/")
        expect(page.locator("#overview[data-state=stopped] h1")).to_be_visible()
        expect(page.locator("#overview")).to_contain_text("gone.db")
        operator.keep("the store is away")
        settings_file.write_text(there)
        expect(page.locator("[data-verdict]")).to_have_attribute("data-verdict", "behind")
        page.locator("#press-dry-run-conservative-0").click()
        expect(page.locator("dialog[open] [name=dry_run]")).to_have_value("true")
        page.keyboard.press("Escape")

        settings_file.write_text(f'store = "sqlite:///{tmp_path}/gone.db"\n')
        expect(page.locator("#overview[data-state=stopped] h1")).to_be_visible()
        expect(page.locator("#stale")).to_be_hidden()


def test_outdated_content_is_marked_with_its_age(airflow: LocalAirflow, lagging: QueuedStore, browser: Browser) -> None:
    with logged_in(browser, airflow, airflow.secrets.admin) as operator:
        page = operator.page
        page.goto(f"{airflow.address}/sweepflow/")
        expect(page.locator("[data-verdict]")).to_have_attribute("data-verdict", "behind")
        stale, since = page.locator("#stale"), re.compile(r"\b\d\d:\d\d:\d\d UTC\b")
        page.route("**/sweepflow/overview", lambda route: route.abort())
        expect(stale.locator("[data-about=overview]")).to_have_attribute("data-reason", "no_answer")
        expect(stale.locator("[data-about=overview]")).to_have_text(since)
        expect(stale).to_be_visible()
        page.unroute("**/sweepflow/overview")
        expect(stale).to_be_hidden()
        page.context.clear_cookies()  # as if the login had run out
        for part in ("overview", "under-way"):
            expect(stale.locator(f"[data-about={part}]")).to_have_attribute("data-reason", "not_allowed")
            expect(stale.locator(f"[data-about={part}]")).to_have_text(since)
        expect(stale).to_be_visible()
        operator.keep("not up to date")


def test_more_clients_than_server_threads_are_all_answered(airflow: LocalAirflow, lagging: QueuedStore) -> None:
    with client(airflow, airflow.secrets.admin) as operator:
        cookies = dict(operator.cookies)

    async def all_users() -> list[int]:
        limits = httpx.Limits(max_connections=100)
        async with httpx.AsyncClient(base_url=airflow.address, cookies=cookies, timeout=120, limits=limits) as many:
            return await asyncio.gather(*(patient(many) for _ in range(80)))

    async def patient(many: httpx.AsyncClient) -> int:
        """They are all one user and repeat refused requests when they are allowed to, also on a busy machine."""
        while (answer := await many.get("/sweepflow/runs")).status_code in (429, 504):
            await asyncio.sleep(float(answer.headers["retry-after"]))
        return answer.status_code

    with ThreadPoolExecutor(1) as elsewhere:  # a browser has this thread's loop
        assert elsewhere.submit(lambda: asyncio.run(all_users())).result() == [200] * 80


def test_a_sweep_asked_for_twice_by_one_form_runs_once_and_retries_and_metrics_answer(
    airflow: LocalAirflow, lagging: QueuedStore
) -> None:
    with client(airflow, airflow.secrets.admin) as operator:
        form = operator.get("/sweepflow/sweeps/new", params={"strategy": "conservative", "shards": "0"}).text
        token, run = FORMS.search(form), re.search(r'name="run" value="([^"]+)"', form)
        assert token
        assert run
        given = {"strategies": "conservative", "shards": "0", "reason": "late", "token": token[1], "run": run[1]}
        assert operator.post("/sweepflow/sweeps", data=given).status_code == 303
        again = operator.post("/sweepflow/sweeps", data=given)
        assert again.status_code == 409
        assert operator.post("/sweepflow/sweeps", data=given | {"run": "manual__x"}).status_code == 400
        retried = operator.post("/sweepflow/quarantine/retry", data={"reason": "again", "token": token[1]})
        assert retried.status_code == 303
        message = Element.of(operator.get(retried.headers["location"]).text).one("id", "message")
        assert (message["data-what"], re.findall(r"\d+", message.text)) == ("retry", ["0", "0"])
        assert airflow.wait_for_run(TARGETED_SWEEP, run[1]) == "success", airflow.describe_run(TARGETED_SWEEP, run[1])
        page = operator.get("/sweepflow/").text
        assert f"/dags/{TARGETED_SWEEP}/runs/{run[1].replace(':', '%3A')}/tasks/conservative.shard_0" in page
        bearer = {"Authorization": f"Bearer {token_of(operator, airflow.secrets.viewer)}"}
        operator.cookies.clear()
        reported = operator.get("/sweepflow/metrics", headers=bearer)
        assert reported.status_code == 200
        assert 'sweepflow_sweep_runs_total{shard="0",strategy="conservative"} 1.0' in reported.text
        assert operator.get("/sweepflow/compaction", headers=bearer).status_code == 200
    notes = Journal(lagging.store).last()
    assert Counter((note.what, note.outcome) for note in notes if note.by == "admin") == {
        ("retry", "done"): 1, ("sweep", "failed: bad_value"): 1, ("sweep", "failed: exists"): 1, ("sweep", "done"): 2,
        ("settings", "done"): 1,
    }, "a sweep is asked for on the page, and then a run, whose settings keep less than the defaults"  # fmt: skip


def test_a_run_that_failed_is_red_with_its_tasks(
    airflow: LocalAirflow, queued: QueuedStore, settings_file: Path, tmp_path: Path
) -> None:
    settings_file.write_text(f'store = "sqlite:///{tmp_path}/gone.db"\n')
    run = airflow.trigger(TARGETED_SWEEP, {"strategies": ["conservative"], "shards": "0"})
    assert airflow.wait_for_run(TARGETED_SWEEP, run) == "failed"
    with client(airflow, airflow.secrets.viewer) as viewer:
        for path in ("/runs", "/runs/failed"):
            reported = viewer.get(f"/sweepflow{path}").text
            assert run in Element.of(reported).one("data-run", run).text, path
            assert (
                f"/dags/{TARGETED_SWEEP}/runs/{run.replace(':', '%3A').replace('+', '%2B')}/tasks/prepare" in reported
            )
