"""What is done to protections, counted for Prometheus: every operation by how it ended, and how many stand.

Each pair of operation and outcome exists from the start, at zero: an alert on the first failure of all needs a figure
that was there before it. *Refused* is an answer (a limit, a known id, a timestamp that was swept already), *failed*
is a call that got none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, get_args

import prometheus_client

from sweep_tasks import metrics as declared
from sweep_tasks.errors import EXIT_BAD_INPUT, EXIT_CONFLICT, EXIT_NOT_FOUND, SweepflowError

Operation = Literal["protect", "release", "move", "settle", "recount", "refresh", "ask_owner", "reconcile"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
OUTCOMES = ("ok", "refused", "failed")
_ANSWERS = (EXIT_BAD_INPUT, EXIT_CONFLICT, EXIT_NOT_FOUND)

operations = prometheus_client.Counter(declared.OPERATIONS.family, declared.OPERATIONS.help, declared.OPERATIONS.labels)
for _operation in OPERATIONS:
    for _outcome in OUTCOMES:
        operations.labels(_operation, _outcome)

records, spans, oldest_age_seconds = (
    prometheus_client.Gauge(each.family, each.help)
    for each in (declared.RECORDS, declared.SPANS, declared.OLDEST_RECORD)
)


def counts() -> dict[str, float]:
    """Of this process so far, by operation and outcome, with a dot between."""
    samples = [sample for family in operations.collect() for sample in family.samples if sample.name.endswith("_total")]
    return {f"{each.labels['operation']}.{each.labels['outcome']}": each.value for each in samples}


def since(before: Mapping[str, float]) -> dict[str, float]:
    return {name: number - before.get(name, 0) for name, number in counts().items()}


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
