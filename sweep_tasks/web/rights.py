"""Permissions of users, protection against forged requests, and forms that act once."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.configuration import conf
from airflow.models.dag import DagModel
from fastapi import Depends, Form, Request
from itsdangerous import BadSignature, URLSafeTimedSerializer

from sweep_tasks.errors import AirflowUnreachable, AlreadyExists, RequestRefused, StoreError, SweepflowError
from sweep_tasks.keys import derived_key
from sweep_tasks.model import Cell
from sweep_tasks.orchestration.names import PROTECTED_TIMESTAMPS, TARGETED_SWEEP, public_address
from sweep_tasks.store.contract import Change, Store
from sweep_tasks.store.schema import ALERTS

# --- forms that act once ----------------------------------------------------------------------------------------------
# A browser sends a form again on a double click, on reload and on going back; a proxy may when a response is lost. By
# then another user may have undone the action, and repeating it would undo that. So each form has a number, and a
# request claims the number in the store first. Only one request wins, in whichever process of the API server it runs.
#
# If the store or Airflow did not answer, the action may have been carried out: the form stays used, and the user has to
# open a new one. After any other error nothing was changed: the form can be corrected and sent again.

FORM_LASTS_S = 8 * 3_600
"""Older forms are refused."""
_KEPT_MS = (FORM_LASTS_S + 3_600) * 1000


def new_form() -> str:
    return secrets.token_hex(8)


class FormClaim:
    """The right to carry out a form once. It is stored in the table of the alerts, whose entries expire as well."""

    def __init__(self, form: str, what: str) -> None:
        self._cell = Cell(b"form:" + form.encode(), what.encode())
        self._mark = secrets.token_bytes(16)

    def take(self, store: Store) -> None:
        """Raise `AlreadyExists` if another request has it."""
        if store.put_if_absent(ALERTS, {self._cell: self._mark}, _KEPT_MS)[self._cell] != self._mark:
            raise AlreadyExists(
                "form: it was submitted already; load the page again to see the result", reason="sent_already"
            )

    def give_back(self, store: Store, error: SweepflowError) -> None:
        """Release the claim after an error, unless the action may have been carried out all the same."""
        if not isinstance(error, StoreError | AirflowUnreachable):
            store.compare_and_set(ALERTS, self._cell.row, {self._cell.column: Change(self._mark, None)})


@contextmanager
def act_once(store: Store, form: str, what: str) -> Iterator[None]:
    """Run the block if this is the first request with this form."""
    claim = FormClaim(form, what)
    claim.take(store)
    try:
        yield
    except SweepflowError as error:
        claim.give_back(store, error)
        raise


# --- permissions and forged requests ----------------------------------------------------------------------------------
# Airflow knows its users and their rights, and is asked for each request. Viewing takes the right to see the DAG of the
# sweep, acting the right to edit it; releasing a record takes the right to edit the DAG that reconciles records. A
# browser sends Airflow's login cookie with requests that another site makes it send. So an action also needs a token
# that only our page can have shown to that user, and, if the browser says where the request comes from, our own origin.

may_view = requires_access_dag("GET", param_dag_id=TARGETED_SWEEP)
may_act = requires_access_dag("PUT", param_dag_id=TARGETED_SWEEP)
may_release = requires_access_dag("PUT", param_dag_id=PROTECTED_TIMESTAMPS)


class Permissions(NamedTuple):
    """Which buttons a user is shown."""

    acts: bool
    releases: bool


def permissions(user: GetUserDep) -> Permissions:
    return Permissions(_may_edit(user, TARGETED_SWEEP), _may_edit(user, PROTECTED_TIMESTAMPS))


def _may_edit(user: BaseUser, dag: str) -> bool:
    details = DagDetails(id=dag, team_name=DagModel.get_team_name(dag))
    return get_auth_manager().is_authorized_dag(method="PUT", details=details, user=user)


Allowed = Annotated[Permissions, Depends(permissions)]


def token_for(user: GetUserDep) -> str:
    """Return the token of a new form: the user it is shown to and its number, signed."""
    return str(_signer("form").dumps([user.get_id(), new_form()]))


FormToken = Annotated[str, Depends(token_for)]


def verified_form(request: Request, user: GetUserDep, token: Annotated[str, Form()] = "") -> str:
    """Return the number of the form. Raise `RequestRefused` if another site may have made the browser send it."""
    site = request.headers.get("sec-fetch-site")
    if site not in (None, "same-origin"):
        raise RequestRefused("request: refused, it comes from another site", reason="other_site")
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc not in (request.headers.get("host"), _public_host()):
        raise RequestRefused("request: refused, it comes from another origin", reason="other_origin")
    try:
        shown_to, form = _signer("form").loads(token, max_age=FORM_LASTS_S)
    except (BadSignature, ValueError):
        message = "request: refused, its form is not valid or too old; load the page again"
        raise RequestRefused(message, reason="bad_token") from None
    if shown_to != user.get_id():
        message = "request: refused, its form was shown to another user; load the page again"
        raise RequestRefused(message, reason="other_user")
    return str(form)


FormNumber = Annotated[str, Depends(verified_form)]
ACTION = [Depends(may_act), Depends(verified_form)]
"""Guards of all actions except releases."""
RELEASE = [Depends(may_release), Depends(verified_form)]


class Message(NamedTuple):
    """What the page shows after an action: its name as in the journal, and a sentence about the result."""

    what: str
    text: str


def signed(message: Message) -> str:
    """Return the message for the URL of the page. It is signed, so that a link can't show a forged message."""
    return str(_signer("message").dumps(message))


def verified_message(given: str) -> Message | None:
    try:
        return Message(*_signer("message").loads(given, max_age=60))
    except BadSignature:
        return None


def _public_host() -> str | None:
    """Return the host name that browsers use, if a proxy forwards requests under another name."""
    return urlsplit(public_address()).netloc or None


def _signer(what: str) -> URLSafeTimedSerializer:
    """Return a signer with a derived key: Airflow uses the key of the setting itself for sessions and log requests."""
    purpose = f"sweepflow page {what}"
    return URLSafeTimedSerializer(derived_key(conf.get_mandatory_value("api", "secret_key"), purpose), salt=purpose)
