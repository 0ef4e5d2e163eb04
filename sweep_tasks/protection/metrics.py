"""What is done to protections, counted: every operation by how it ended.

Each pair of operation and outcome exists from the start, at zero: an alert on the first failure of all needs a figure
that was there before it. *Refused* is an answer (a limit, a known id, a timestamp that was swept already), *failed*
is a call that got none.

A process that lives has its own figures for Prometheus. Whoever keeps them elsewhere listens, and hears what happens in
its own thread: two who release something at the same moment are not counted for each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import product
from typing import Literal, get_args

import prometheus_client

from sweep_tasks import metrics as declared
from sweep_tasks.errors import EXIT_BAD_INPUT, EXIT_CONFLICT, EXIT_NOT_FOUND, SweepflowError

Operation = Literal["protect", "release", "move", "settle", "recount", "refresh", "ask_owner", "reconcile"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
OUTCOMES = ("ok", "refused", "failed")
_ANSWERS = (EXIT_BAD_INPUT, EXIT_CONFLICT, EXIT_NOT_FOUND)


operations = prometheus_client.Counter(declared.OPERATIONS.family, declared.OPERATIONS.help, declared.OPERATIONS.labels)
for _operation, _outcome in product(OPERATIONS, OUTCOMES):
    operations.labels(_operation, _outcome)

Counts = dict[str, int]
"""By operation and outcome, with a dot between; what did not happen is there as nought."""

_listeners: ContextVar[tuple[Counts, ...]] = ContextVar("listeners", default=())


@contextmanager
def listening() -> Iterator[Counts]:
    """What is done in the block, as it happens."""
    heard = {f"{operation}.{outcome}": 0 for operation, outcome in product(OPERATIONS, OUTCOMES)}
    token = _listeners.set((*_listeners.get(), heard))
    try:
        yield heard
    finally:
        _listeners.reset(token)


class Call:
    """One operation under way. It ended well, unless it raises or says that it was refused."""

    outcome: Literal["ok", "refused", "failed"] = "ok"

    def refused(self) -> None:
        self.outcome = "refused"


@contextmanager
def counted(operation: Operation) -> Iterator[Call]:
    """Counts the block by how it ends; a decorator as well."""
    call = Call()
    try:
        yield call
    except BaseException as error:
        answered = isinstance(error, SweepflowError) and error.exit_code in _ANSWERS
        call.outcome = "refused" if answered else "failed"
        raise
    finally:
        operations.labels(operation, call.outcome).inc()
        for heard in _listeners.get():
            heard[f"{operation}.{call.outcome}"] += 1
