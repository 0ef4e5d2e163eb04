"""Every retry rule: how often a failed call is repeated, and how long to wait before it.

Whether an error may be retried at all is its attribute `retryable` (`errors.py`). How often Airflow repeats a task is a
setting (`orchestration/names.py`). SQLite's write lock is waited for with the pauses of SQLite's own busy handler
(`store/sqlite/connection.py`), which follow no formula. Everything else is here.

Pauses grow exponentially up to a maximum. Where many callers compete for the same thing, a pause is random, so that
they do not all come back at the same moment.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweep_tasks.errors import SweepflowError

if TYPE_CHECKING:
    import tenacity


_MOST_DOUBLINGS = 30
"""Enough for every rule; without it the power of a long wait would be too large for a float."""


@dataclass(frozen=True, slots=True)
class RetryRule:
    """`attempts` is the most calls, 0 where a setting or a deadline limits them. The pause before retry n, counted
    from 0, is `first_s * 2**n`, at most `longest_s`. `random_share` of it is random."""

    first_s: float
    longest_s: float
    attempts: int = 0
    random_share: float = 0.0

    def pause_s(self, retry: int) -> float:
        longest = min(self.longest_s, self.first_s * 2 ** min(retry, _MOST_DOUBLINGS))
        return random.uniform(longest * (1 - self.random_share), longest)  # noqa: S311

    def retrying(
        self, sleep: Callable[[float], None], attempts: int | None = None, give_up_after_s: float | None = None
    ) -> tenacity.Retrying:
        """Return a caller that repeats a function after an error that is marked as retryable."""
        import tenacity

        stop: tenacity.stop.stop_base = tenacity.stop_after_attempt(attempts or self.attempts)
        if give_up_after_s is not None:
            stop = stop | tenacity.stop_after_delay(give_up_after_s)
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception(is_retryable),
            stop=stop,
            wait=lambda state: self.pause_s(state.attempt_number - 1),
            sleep=sleep,
            reraise=True,
        )


def is_retryable(error: BaseException) -> bool:
    return isinstance(error, SweepflowError) and error.retryable


JOURNAL = RetryRule(0.002, 1.0, attempts=100, random_share=1.0)
"""Appending an entry to the journal, which other processes append to as well."""
PROTECTIONS = RetryRule(0.004, 1.0, attempts=60, random_share=1.0)
"""Changing the row of all protection records."""
RUN_TOTALS = RetryRule(0.004, 1.0, attempts=60, random_share=1.0)
"""Adding the figures of a run to the totals."""
TRANSACTION = RetryRule(0.005, 1.0, random_share=1.0)
"""Running a transaction again after a conflict. Attempts: setting `transaction_attempts`."""
UNFINISHED_WRITER = RetryRule(0.001, 0.1)
"""Checking whether a writer has committed, until setting `writer_wait_s` has passed."""
ANNOUNCED_TABLE = RetryRule(0.001, 0.1)
"""Checking whether an announced truncation or drop is decided, until setting `emptying_wait_s` has passed."""
CASSANDRA_REQUEST = RetryRule(0.1, 3.0, random_share=0.5)
"""A request to Cassandra. Attempts: setting `cassandra_attempts`."""
SCANNED_PAGE = RetryRule(0.5, 30.0, attempts=8)
"""Reading a page of a table scan, each time with half its size."""
OWNER = RetryRule(0.5, 1.0, attempts=3)
"""Asking the owner of a protection."""
ALERT = RetryRule(0.5, 4.0, random_share=1.0)
"""Sending an alert. Attempts: setting `alert_attempts`."""

REGISTER_UPDATE = RetryRule(0, 0, attempts=1_000)
"""Changing a register by compare-and-set, without a pause: each failed attempt means that another writer succeeded."""
UNANSWERED_UPDATE = RetryRule(0, 0, attempts=5)
"""An update on Cassandra whose answer was lost. Each attempt waits for its own timeout."""
UNKNOWN_TABLE = RetryRule(0.25, 0.25, attempts=20)
"""Using a new table on a node of Cassandra that does not know it yet."""
PROTECTED_NOW = RetryRule(0, 0, attempts=5)
"""Protecting a fresh timestamp: a sweep may publish in between, or a table may be emptied."""
EMPTIED_TABLE = RetryRule(0, 0, attempts=5)
"""A truncation or drop that other processes roll back."""
SETTINGS_IN_FORCE = RetryRule(0, 0, attempts=5)
"""Recording the settings in force, which several processes may do at once."""
SCANNED_RANGE = RetryRule(0, 0, attempts=2)
"""A request of a scan on Spark: few attempts, since a page that times out is read again with half its size."""
MACHINE_SLOT = RetryRule(0.5, 0.5)
"""Checking for a free slot of this machine, until another task ends."""
AIRFLOW_LOGIN = RetryRule(0, 0, attempts=2)
"""A request that Airflow answers with 401: once more after a new login."""
LOCAL_AIRFLOW = RetryRule(1.0, 1.0, attempts=5)
"""A request to the local Airflow."""
