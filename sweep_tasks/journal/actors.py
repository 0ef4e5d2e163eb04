"""The actor of an act: the user it is recorded for, and the process that recorded it."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sweep_tasks.errors import BadValue
from sweep_tasks.texts import one_line, printable

SCHEDULER = "scheduler"
"""The actor of runs that no user triggered."""
NO_REASON = "none was given"
"""The reason of an act whose command does not require one."""
MOST_CHARACTERS = 500
LOGIN_UID = Path("/proc/self/loginuid")
_MOST_OF_A_NAME = 200
_NO_LOGIN = 2**32 - 1
"""What the kernel reports for a process of the system, which no user logged in for."""


class Actor(NamedTuple):
    """The user that acts are recorded for, and the reason."""

    name: str
    reason: str


_ACTOR: ContextVar[Actor | None] = ContextVar("actor", default=None)


@contextmanager
def acting_for(name: str | None = None, reason: str = "") -> Iterator[None]:
    """Record the acts in the block for this user and reason. What is not given is taken from the enclosing block, if
    there is one. Without a name, and outside of such a block, acts are recorded for the user that runs the process."""
    outer = current_actor()
    token = _ACTOR.set(Actor(shown_name(name or outer.name), checked_reason(reason or outer.reason)))
    try:
        yield
    finally:
        _ACTOR.reset(token)


def current_actor() -> Actor:
    """Return the actor that acts are recorded for now."""
    return _ACTOR.get() or Actor(current_user(), NO_REASON)


def shown_name(name: str) -> str:
    """Return the name of an actor as it can be shown anywhere. Users choose their names, and so do other programs."""
    return printable(name, _MOST_OF_A_NAME)


class Process(NamedTuple):
    """The process that recorded an entry, as the operating system knows it. Environment variables are not used, because
    the caller of a process can set them."""

    uid: int
    login_uid: int | None
    """The user who logged in, before any sudo; None where the system does not record it."""
    host: str
    pid: int

    @classmethod
    def current(cls) -> Process:
        return cls(os.getuid(), _login_uid(), socket.gethostname(), os.getpid())


def current_user() -> str:
    """Return the user that runs this process, and the user who logged in if that is a different one."""
    process = Process.current()
    user = _user_name(process.uid)
    if process.login_uid is None or process.login_uid == process.uid:
        return user
    return f"{_user_name(process.login_uid)} (as {user})"


@cache
def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


@cache
def _login_uid() -> int | None:
    """Return the login user id that the kernel keeps. Unlike an environment variable, a user can't set it."""
    try:
        found = int(LOGIN_UID.read_text())
    except (OSError, ValueError):
        return None
    return None if found == _NO_LOGIN else found


def checked_reason(reason: str) -> str:
    """Return the reason as one line, or raise `BadValue`."""
    given = one_line("reason", reason)
    if not given:
        raise BadValue("reason", "is missing; say in a few words why, for the readers of the journal")
    if len(given) > MOST_CHARACTERS:
        raise BadValue("reason", f"has {len(given)} characters; the limit is {MOST_CHARACTERS}")
    return given
