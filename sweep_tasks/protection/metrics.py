"""Counts the operations on protections by their outcome.

Each pair of operation and outcome exists from the start, with the value zero: an alert on the first failure needs an
earlier value to compare with. *Refused* is a definite answer (a limit, a known id, a timestamp that was already swept).
*Failed* is a call without an answer.

A long-running process exposes the counters to Prometheus. A short-lived task collects the counts of a block with
`collect_counts` and stores them. It only counts operations of its own context, not those of other threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import product
from typing import Literal, get_args

import prometheus_client

from sweep_tasks.errors import EXIT_BAD_INPUT, EXIT_CONFLICT, EXIT_NOT_FOUND, SweepflowError
from sweep_tasks.metrics import declarations as declared

Operation = Literal["protect", "release", "move", "settle", "recount", "refresh", "ask_owner", "reconcile"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
CallOutcome = Literal["ok", "refused", "failed"]
OUTCOMES: tuple[CallOutcome, ...] = get_args(CallOutcome)
_ANSWERS = (EXIT_BAD_INPUT, EXIT_CONFLICT, EXIT_NOT_FOUND)


operations = prometheus_client.Counter(declared.OPERATIONS.family, declared.OPERATIONS.help, declared.OPERATIONS.labels)
for _operation, _outcome in product(OPERATIONS, OUTCOMES):
    operations.labels(_operation, _outcome)

OperationCounts = dict[tuple[Operation, CallOutcome], int]
"""The number of calls by operation and outcome. Those that did not occur are zero."""

_listeners: ContextVar[tuple[OperationCounts, ...]] = ContextVar("listeners", default=())


@contextmanager
def collect_counts() -> Iterator[OperationCounts]:
    """Collect the counts of the operations in the block. The returned counts are updated while it runs."""
    counts: OperationCounts = dict.fromkeys(product(OPERATIONS, OUTCOMES), 0)
    token = _listeners.set((*_listeners.get(), counts))
    try:
        yield counts
    finally:
        _listeners.reset(token)


class CountedCall:
    """One operation that is being counted. Its outcome is ok, unless it raises or is marked as refused."""

    outcome: CallOutcome = "ok"

    def mark_refused(self) -> None:
        self.outcome = "refused"


@contextmanager
def count_call(operation: Operation) -> Iterator[CountedCall]:
    """Count the block by its outcome. Also usable as a decorator."""
    call = CountedCall()
    try:
        yield call
    except BaseException as error:
        answered = isinstance(error, SweepflowError) and error.exit_code in _ANSWERS
        call.outcome = "refused" if answered else "failed"
        raise
    finally:
        operations.labels(operation, call.outcome).inc()
        for counts in _listeners.get():
            counts[operation, call.outcome] += 1
