"""What all actions share: a form that asks for a reason, a note of who asked for what, and the way back to the page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Any

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from fastapi import Form, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse

from sweep_tasks.config import Settings, load_settings
from sweep_tasks.errors import SweepflowError
from sweep_tasks.journal import MOST_CHARACTERS, Begun, Journal
from sweep_tasks.opening import borrowed_store
from sweep_tasks.orchestration.page.rendering import home, rendered
from sweep_tasks.orchestration.page.rights import Message, signed
from sweep_tasks.store.contract import Store

LONGEST_S = 5.0
"""That a store may take for one answer."""

Reason = Annotated[str, Form()]
Deed = Callable[[Store, Settings], str]
"""Does it, and says what was done."""


@contextmanager
def the_store() -> Iterator[tuple[Store, Settings]]:
    """The one that the settings name at this moment."""
    settings = _impatient(load_settings())
    with borrowed_store(settings) as store:
        yield store, settings


def _impatient(settings: Settings) -> Settings:
    """Somebody waits in front of a browser, and in a thread that Airflow's own pages need as well."""
    waits = ("cassandra_timeout_s", "sqlite_busy_timeout_s")
    shorter = {name: min(getattr(settings, name), LONGEST_S) for name in waits}
    return settings.model_copy(update={**shorter, "cassandra_attempts": min(settings.cassandra_attempts, 2)})


def asked(request: Request, token: str, question: str, values: Mapping[str, Any]) -> Response:
    """The form that an action begins with; `question` names the template."""
    return rendered(request, f"{question}.html", {"token": token, "longest": MOST_CHARACTERS, **values})


async def done_by_airflow(
    request: Request, user: BaseUser, what: str, about: str, reason: str, deed: Callable[[], Awaitable[str]]
) -> Response:
    """As `done`, for what Airflow does: the store is at work in a thread before and after, and none is held between."""
    begun = await run_in_threadpool(_begin, user.get_name(), what, about, reason)
    try:
        message = await deed()
    except SweepflowError as error:
        await run_in_threadpool(_end, begun, error)
        raise
    await run_in_threadpool(_end, begun, None)
    return back(request, Message(what, message))


def _begin(by: str, what: str, about: str, reason: str) -> Begun:
    with the_store() as (store, _):
        return Journal(store).begin(by, what, about, reason)


def _end(begun: Begun, error: SweepflowError | None) -> None:
    with the_store() as (store, _):
        Journal(store).end(begun, error)


def done(request: Request, user: BaseUser, what: str, about: str, reason: str, deed: Deed) -> Response:
    """A deed with a note of who asked for it and why, and then the page again. What fails is noted as failed."""
    with the_store() as (store, settings), Journal(store).noted(user.get_name(), what, about, reason):
        message = deed(store, settings)
    return back(request, Message(what, message))


def back(request: Request, message: Message) -> Response:
    return RedirectResponse(f"{home(request)}?message={signed(message)}", HTTPStatus.SEE_OTHER)
