"""A form acts once, however often and to whichever process it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse

from sweep_tasks.errors import AlreadyExists, NotFound, StoreUnavailable
from sweep_tasks.journal.journal import Journal
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.store import Store
from sweep_tasks.tables.pauses import Pauses
from sweep_tasks.web import as_user
from sweep_tasks.web.rights import act_once, new_form
from tests.support.errors import having
from tests.unit.web.conftest import TABLE
from tests.unit.web.http_client import ADA, form_of, mounted, problem_of, web_client

pytestmark = pytest.mark.usefixtures("users")

SENT_ALREADY = (409, "exists", None, "sent_already")


class Sent(NamedTuple):
    """A form, the state before it is sent, the action that undoes it, and the expected state at the end."""

    form: str
    action: str
    query: dict[str, str]
    fields: dict[str, str]
    prepare: Callable[[Store], object]
    undo: Callable[[Store], object]


def nothing(_: Store) -> None:
    return


def pause(store: Store) -> None:
    Pauses(store).pause(TABLE, "alice", "something")


def resume(store: Store) -> None:
    Pauses(store).resume(TABLE)


def protect(store: Store) -> None:
    assert ProtectionCatalog(store).protect(Record("backup", 5, Mode.AT, (Target(TABLE),))).accepted


PAUSE = Sent("pauses/new", "pauses", {}, {"what": str(TABLE)}, nothing, resume)
RESUME = Sent("pauses/resume", "pauses/resume", {"what": str(TABLE)}, {}, pause, pause)
RELEASE = Sent("protections/release", "protections/release", {"id": "backup"}, {}, protect, protect)
RETRY = Sent("quarantine/retry", "quarantine/retry", {}, {}, nothing, nothing)


def existing(store: Store) -> tuple[bool, list[str]]:
    return TABLE in Pauses(store).current().tables, [each.id for each in ProtectionCatalog(store).records()]


@pytest.mark.parametrize("each", [PAUSE, RESUME, RELEASE, RETRY], ids=lambda each: each.action)
def test_a_form_sent_again_after_its_action_was_undone_changes_nothing(store: Store, each: Sent) -> None:
    async def send() -> None:
        async with web_client(ADA) as ada:
            given = await form_of(ada, each.form, **each.query) | each.fields | {"reason": "because"}
            assert (await ada.post(f"/sweepflow/{each.action}", data=given)).status_code == 303
            each.undo(store)
            undone = existing(store)
            async with web_client(ADA, mounted()) as elsewhere:  # another process of the server
                assert problem_of(await elsewhere.post(f"/sweepflow/{each.action}", data=given)) == SENT_ALREADY
            assert existing(store) == undone
            fresh = await form_of(ada, each.form, **each.query) | each.fields | {"reason": "again"}
            assert (await ada.post(f"/sweepflow/{each.action}", data=fresh)).status_code == 303

    each.prepare(store)
    asyncio.run(send())
    by_her = [(note.reason, note.outcome) for note in Journal(store).last() if note.by == ADA]
    assert by_her == [("again", "done"), ("because", "done")]


def test_sent_twice_at_once_one_of_them_acts(store: Store) -> None:
    async def send() -> list[int]:
        async with web_client(ADA) as ada:
            given = await form_of(ada, "quarantine/retry") | {"reason": "because"}
            answers = await asyncio.gather(*(ada.post("/sweepflow/quarantine/retry", data=given) for _ in range(3)))
            return sorted(answer.status_code for answer in answers)

    assert asyncio.run(send()) == [303, 409, 409]


def test_what_was_refused_may_be_corrected_and_sent_again(store: Store) -> None:
    async def send() -> list[int]:
        async with web_client(ADA) as ada:
            given = await form_of(ada, "pauses/new")
            tried = [
                {"what": str(TABLE), "reason": " "},
                {"what": "app.none", "reason": "because"},
                {"what": str(TABLE), "reason": "because"},
                {"what": str(TABLE), "reason": "because"},
            ]
            return [(await ada.post("/sweepflow/pauses", data=given | each)).status_code for each in tried]

    assert asyncio.run(send()) == [400, 404, 303, 409]


def test_a_form_stays_used_if_its_action_may_have_happened(store: Store) -> None:
    form = new_form()
    with pytest.raises(NotFound), act_once(store, form, "pause"):
        raise NotFound
    with pytest.raises(StoreUnavailable), act_once(store, form, "pause"):
        raise StoreUnavailable
    with pytest.raises(AlreadyExists, check=having(reason="sent_already")), act_once(store, form, "pause"):
        pytest.fail("it acted again")
    with act_once(store, new_form(), "pause"):
        pass


class Runs:
    """The part of Airflow that starting a sweep uses: a run is named, and started."""

    def __init__(self) -> None:
        self.started: list[dict[str, Any]] = []
        self.silent = False
        self.app = FastAPI()
        self.app.get("/api/v2/dags/{dag}")(self.dag)
        self.app.post("/api/v2/dags/{dag}/dagRuns")(self.start)

    async def dag(self) -> dict[str, bool]:
        return {"is_paused": False}

    async def start(self, request: Request) -> JSONResponse:
        """It starts any number of runs of one name: what acts once must not lean on that."""
        self.started.append(await request.json())
        if self.silent:
            await asyncio.sleep(60)
        return JSONResponse({"dag_run_id": self.started[-1]["dag_run_id"]})


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    created = Runs()
    monkeypatch.setattr(as_user, "airflow_app", lambda: created.app)
    return created


def test_a_sweep_is_started_once_with_its_reason_on_one_line(store: Store, runs: Runs) -> None:
    async def send() -> list[int]:
        async with web_client(ADA) as ada:
            given = await form_of(ada, "sweeps/new", shards="0", strategy="conservative")
            given |= {"strategies": "conservative", "shards": "0", "reason": "it\r\nis  late"}
            tried = [given | {"shards": "99"}, given, given, given | {"run": given["run"][:-1] + "0"}]
            return [(await ada.post("/sweepflow/sweeps", data=each)).status_code for each in tried]

    assert asyncio.run(send()) == [400, 303, 409, 409]
    (started,) = runs.started
    assert (started["note"], started["conf"]["shards"]) == ("it is late", "0")
    assert [note.outcome for note in Journal(store).last()] == [
        "failed: exists", "failed: exists", "done", "failed: bad_value",
    ]  # fmt: skip


def test_a_sweep_that_airflow_may_have_started_is_not_started_again(
    store: Store, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send() -> None:
        async with web_client(ADA) as ada:
            given = await form_of(ada, "sweeps/new") | {"strategies": "thorough", "reason": "late"}
            monkeypatch.setattr(as_user, "LONGEST_S", 0.1)
            runs.silent = True
            silent = await ada.post("/sweepflow/sweeps", data=given)
            assert problem_of(silent) == (504, "unavailable", None, "timeout")
            assert "retry-after" not in silent.headers
            assert problem_of(await ada.post("/sweepflow/sweeps", data=given)) == SENT_ALREADY

    asyncio.run(send())
    assert len(runs.started) == 1
