"""Every route is guarded, and an action takes a form that our page showed to the same user."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from sweep_tasks.errors import RequestRefused
from sweep_tasks.web.application import POLICY, admit_request, page_app
from sweep_tasks.web.rights import (
    Message,
    may_act,
    may_release,
    may_view,
    signed,
    token_for,
    verified_form,
    verified_message,
)

ADA, BOB = (SimpleAuthManagerUser(username=name, role="admin") for name in ("ada", "bob"))
HOST = "airflow.example:8080"


def routes() -> list[APIRoute]:
    return [route for route in page_app().routes if isinstance(route, APIRoute)]


def guards(dependant: Dependant) -> list[Any]:
    return [each.call for each in dependant.dependencies]


def test_every_route_is_guarded() -> None:
    app = page_app()
    assert [route for route in app.routes if not isinstance(route, APIRoute)] == []
    assert all(guards(route.dependant)[:2] == [admit_request, may_view] for route in routes())


def test_whatever_changes_something_takes_the_right_to_edit_and_a_form_of_ours() -> None:
    changing = [route for route in routes() if route.methods != {"GET"}]
    assert {route.path for route in changing} == {
        "/sweeps", "/protections/release", "/pauses", "/pauses/resume", "/quarantine/retry",
    }  # fmt: skip
    for route in changing:
        assert route.methods == {"POST"}
        right, other = (may_release, may_act) if route.path == "/protections/release" else (may_act, may_release)
        assert {right, verified_form} <= set(guards(route.dependant)), route.path
        assert other not in guards(route.dependant), route.path


def test_the_policy_forbids_inline_scripts() -> None:
    assert "unsafe" not in POLICY
    assert POLICY.startswith("default-src 'none'")


def posted(user: SimpleAuthManagerUser, token: str, **headers: str) -> str:
    given = {"host": HOST} | {name.replace("_", "-"): value for name, value in headers.items()}
    raw = [(name.encode(), value.encode()) for name, value in given.items()]
    return verified_form(Request({"type": "http", "method": "POST", "headers": raw, "path": "/"}), user, token)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "same-origin", "origin": f"http://{HOST}"},
        {"origin": f"https://{HOST}"},
    ],
)
def test_a_form_of_this_page_sent_from_this_origin_is_accepted(headers: dict[str, str]) -> None:
    posted(ADA, token_for(ADA), **headers)


def test_each_form_has_a_number_of_its_own() -> None:
    token = token_for(ADA)
    assert posted(ADA, token) == posted(ADA, token) != posted(ADA, token_for(ADA))


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"sec_fetch_site": "cross-site"}, "other_site"),
        ({"sec_fetch_site": "same-site"}, "other_site"),
        ({"sec_fetch_site": "none"}, "other_site"),
        ({"origin": "https://evil.example"}, "other_origin"),
        ({"origin": "null"}, "other_origin"),
        ({"origin": f"http://{HOST}.evil.example", "sec_fetch_site": "same-origin"}, "other_origin"),
    ],
)
def test_a_cross_site_form_is_refused(headers: dict[str, str], reason: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        posted(ADA, token_for(ADA), **headers)
    assert refused.value.reason == reason


def test_behind_a_proxy_its_public_host_name_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://public.example/airflow")
    posted(ADA, token_for(ADA), origin="https://public.example", host="10.0.0.7:8080")
    with pytest.raises(RequestRefused) as refused:
        posted(ADA, token_for(ADA), origin="https://evil.example", host="10.0.0.7:8080")
    assert refused.value.reason == "other_origin"


DONE = Message("sweep", "ada")


@pytest.mark.parametrize(
    ("token", "reason"),
    [("", "bad_token"), ("made.up", "bad_token"), (token_for(BOB), "other_user"), (signed(DONE), "bad_token")],
)
def test_without_a_form_shown_to_this_user_it_is_refused(token: str, reason: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        posted(ADA, token)
    assert refused.value.reason == reason


def test_a_message_is_shown_only_if_we_wrote_it() -> None:
    assert verified_message(signed(DONE)) == DONE
    assert verified_message("done") is None
    assert verified_message(token_for(ADA)) is None
