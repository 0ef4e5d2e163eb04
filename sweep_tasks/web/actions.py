"""What all actions share: a form that asks for a reason, a journal entry with the user's name, and a redirect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Any, NamedTuple

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from fastapi import Form, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse

from sweep_tasks.config import Settings, load_settings
from sweep_tasks.connections import borrow_store
from sweep_tasks.errors import SweepflowError
from sweep_tasks.journal.actors import MOST_CHARACTERS, acting_for, checked_reason
from sweep_tasks.journal.journal import Act, Journal, JournalEntry
from sweep_tasks.store.contract import Store
from sweep_tasks.web.rendering import home, rendered
from sweep_tasks.web.rights import FormClaim, Message, act_once, signed

LONGEST_S = 5.0
"""The longest time that the store may take for one answer."""

ReasonField = Annotated[str, Form()]


class Action(NamedTuple):
    """What a user asked for, as the journal records it."""

    what: str
    about: str
    reason: str


ActionFunction = Callable[[Store, Settings], str]
"""Carries out an action, and returns a sentence about the result."""


@contextmanager
def borrow_store_briefly() -> Iterator[tuple[Store, Settings]]:
    """Borrow a connection to the store that the settings name now, with short timeouts."""
    settings = _with_short_timeouts(load_settings())
    with borrow_store(settings) as store:
        yield store, settings


def _with_short_timeouts(settings: Settings) -> Settings:
    """A user waits for the answer, in a thread that Airflow's own pages need as well."""
    waits = ("cassandra_timeout_s", "sqlite_busy_timeout_s")
    shorter = {name: min(getattr(settings, name), LONGEST_S) for name in waits}
    return settings.model_copy(update={**shorter, "cassandra_attempts": min(settings.cassandra_attempts, 2)})


def render_form(request: Request, token: str, question: str, values: Mapping[str, Any]) -> Response:
    """Render the form that an action begins with. `question` names the template."""
    return rendered(request, f"{question}.html", {"token": token, "longest": MOST_CHARACTERS, **values})


def perform(request: Request, user: BaseUser, form: str, action: Action, operation: ActionFunction) -> Response:
    """Carry out an action under the user's name and reason, then redirect to the page.

    The library records it in the journal. A form that was sent before does nothing and is not recorded.
    """
    with (
        borrow_store_briefly() as (store, settings),
        acting_for(user.get_name(), checked_reason(action.reason)),
        act_once(store, form, action.what),
    ):
        message = operation(store, settings)
    return _redirect_home(request, Message(action.what, message))


async def perform_in_airflow(
    request: Request,
    user: BaseUser,
    form: str,
    action: Action,
    check: Callable[[], Awaitable[None]],
    operation: Callable[[], Awaitable[str]],
) -> Response:
    """Carry out an action in Airflow, then redirect to the page.

    The store is used in a thread before and after, and no thread is held between. `check` refuses an action that is not
    possible, before the form is marked as used.
    """
    begun = await run_in_threadpool(_begin, user.get_name(), action)
    claim = FormClaim(form, action.what)
    claimed = False
    try:
        await check()
        await run_in_threadpool(_take, claim)
        claimed = True
        message = await operation()
    except SweepflowError as error:
        await run_in_threadpool(_end, begun, error, claim if claimed else None)
        raise
    await run_in_threadpool(_end, begun, None)
    return _redirect_home(request, Message(action.what, message))


def _begin(by: str, action: Action) -> JournalEntry:
    with borrow_store_briefly() as (store, _):
        return Journal(store).begin(by, *action)


def _take(claim: FormClaim) -> None:
    with borrow_store_briefly() as (store, _):
        claim.take(store)


def _end(begun: JournalEntry, error: SweepflowError | None, claim: FormClaim | None = None) -> None:
    with borrow_store_briefly() as (store, _):
        act = Act()
        if error:
            act.fail(error)
        Journal(store).end(begun, act)
        if error and claim:
            claim.give_back(store, error)


def _redirect_home(request: Request, message: Message) -> Response:
    return RedirectResponse(f"{home(request)}?message={signed(message)}", HTTPStatus.SEE_OTHER)
