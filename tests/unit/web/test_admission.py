"""A user has a few requests at a time, and one who asks for more takes nothing from the others."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest
from fastapi import FastAPI, Request

from sweep_tasks.errors import RequestRefused
from sweep_tasks.store import Store
from sweep_tasks.web import as_user
from sweep_tasks.web.application import AT_ONCE, AT_ONCE_IN_ALL, RETRY_AFTER_S, Admission
from tests.support.errors import having
from tests.unit.web.http_client import ADA, BOB, login, mounted, problem_of, web_client

THREADS = 40
"""That the server has, for Airflow's own pages as well."""


def test_one_more_than_a_user_may_have_is_refused_until_another_has_ended() -> None:
    admission = Admission(each=2, in_all=10)
    with admission.admit(ADA):
        with admission.admit(ADA):
            with pytest.raises(RequestRefused, check=having(code="too_many_requests")) as refused, admission.admit(ADA):
                pytest.fail("it was admitted")
            assert (refused.value.reason, refused.value.details["most"], refused.value.retryable) == ("user", 2, True)
            with admission.admit(BOB):
                pass
        with admission.admit(ADA):
            pass


def test_all_users_together_leave_threads_to_airflow() -> None:
    assert AT_ONCE * 2 < AT_ONCE_IN_ALL < THREADS
    admission = Admission(each=2, in_all=3)
    with ExitStack() as busy:
        for user in (ADA, ADA, BOB):
            busy.enter_context(admission.admit(user))
        with pytest.raises(RequestRefused, check=having(code="too_many_requests")) as refused, admission.admit(BOB):
            pytest.fail("it was admitted")
        assert (refused.value.reason, refused.value.details["most"]) == ("all_users", 3)
    with admission.admit(BOB):
        pass


def test_a_failed_request_frees_its_slot() -> None:
    admission = Admission(each=1, in_all=1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), admission.admit(ADA):
            raise ZeroDivisionError


@pytest.mark.usefixtures("users")
def test_while_one_users_requests_hang_others_are_answered(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    hung = login(ADA)["Authorization"]

    async def meet() -> None:
        over, api, server = asyncio.Event(), FastAPI(), mounted()

        @api.get("/api/v2/dags/{dag}")
        async def dag(request: Request) -> dict[str, bool]:
            if request.headers["authorization"] == hung:
                await over.wait()
            return {"is_paused": False}

        @api.get("/api/v2/dags/{dag}/dagRuns")
        async def runs() -> dict[str, list[str]]:
            return {"dag_runs": []}

        monkeypatch.setattr(as_user, "airflow_app", lambda: api)
        async with web_client(ADA, server) as ada, web_client(BOB, server) as bob:
            ada.headers["Authorization"] = hung
            asked = {asyncio.create_task(ada.get("/sweepflow/runs")) for _ in range(AT_ONCE + 2)}
            for _ in range(2):
                done, asked = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
                for refused in done:
                    assert problem_of(refused.result()) == (429, "too_many_requests", None, "user")
                    assert refused.result().headers["retry-after"] == str(RETRY_AFTER_S)
                if len(asked) == AT_ONCE:
                    break
            assert len(asked) == AT_ONCE
            for path in ("metrics", "runs", "pauses/new", ""):
                assert (await bob.get(f"/sweepflow/{path}")).status_code == 200, path
            over.set()
            assert [each.status_code for each in await asyncio.gather(*asked)] == [200] * AT_ONCE
            assert (await ada.get("/sweepflow/metrics")).status_code == 200

    asyncio.run(asyncio.wait_for(meet(), 60))
