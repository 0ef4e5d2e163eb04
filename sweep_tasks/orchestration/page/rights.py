"""Who may look, who may act, and whether they meant it.

Airflow knows its users and their rights; it is asked for each request. Looking takes the right to see the sweep's DAG,
acting the right to edit it. The cookie that Airflow logs its users in with is sent along by any site that makes a
browser post here. So an action needs more: a token that only a page of ours could have shown to that user, and where
the browser tells from where the request comes, that it comes from here.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.configuration import conf
from fastapi import Depends, Form, Request
from itsdangerous import BadSignature, URLSafeTimedSerializer

from sweep_tasks.errors import RequestRefused
from sweep_tasks.orchestration.names import TARGETED_SWEEP
from sweep_tasks.orchestration.page.addresses import public_address

TOKEN_LASTS_S = 8 * 3_600

may_look = requires_access_dag("GET", param_dag_id=TARGETED_SWEEP)
may_act = requires_access_dag("PUT", param_dag_id=TARGETED_SWEEP)


def acts(user: GetUserDep) -> bool:
    """Whether this user is shown anything to press."""
    details = DagDetails(id=TARGETED_SWEEP)
    return get_auth_manager().is_authorized_dag(method="PUT", details=details, user=user)


Acts = Annotated[bool, Depends(acts)]


def token_for(user: GetUserDep) -> str:
    """Goes into every form."""
    return str(_signer("form").dumps(user.get_id()))


Token = Annotated[str, Depends(token_for)]


def meant(request: Request, user: GetUserDep, token: Annotated[str, Form()] = "") -> None:
    """Refuses a request that another site could have made a browser send."""
    site = request.headers.get("sec-fetch-site")
    if site not in (None, "same-origin"):
        raise RequestRefused("it comes from another site", reason="other_site")
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc not in (request.headers.get("host"), _public_host()):
        raise RequestRefused("it comes from another origin", reason="other_origin")
    try:
        shown_to = _signer("form").loads(token, max_age=TOKEN_LASTS_S)
    except BadSignature:
        raise RequestRefused("its form is not ours or too old; load the page again", reason="bad_token") from None
    if shown_to != user.get_id():
        raise RequestRefused("its form was shown to somebody else; load the page again", reason="other_user")


ACTION = [Depends(may_act), Depends(meant)]
"""In front of everything that changes something."""


class Message(NamedTuple):
    """What the next page shows of an action: which one, as in the journal, and what came of it in a sentence."""

    what: str
    text: str


def signed(message: Message) -> str:
    """For the address of the next page: signed, so that a link can't show a message of its own."""
    return str(_signer("message").dumps(message))


def told(given: str) -> Message | None:
    try:
        return Message(*_signer("message").loads(given, max_age=60))
    except BadSignature:
        return None


def _public_host() -> str | None:
    """As browsers know it, where a proxy in between calls us by another name."""
    return urlsplit(public_address()).netloc or None


def _signer(what: str) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(conf.get_mandatory_value("api", "secret_key"), salt=f"sweepflow page {what}")
