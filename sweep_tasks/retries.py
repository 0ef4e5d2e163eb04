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
PROTECTIONS = RetryRule(0.004, 1.0, attempts=60, random_share=1.0)
RUN_TOTALS = RetryRule(0.004, 1.0, attempts=60, random_share=1.0)
TRANSACTION = RetryRule(0.005, 1.0, random_share=1.0)
"""Attempts: setting `transaction_attempts`."""
UNFINISHED_WRITER = RetryRule(0.001, 0.1)
"""Until setting `writer_wait_s` has passed."""
ANNOUNCED_TABLE = RetryRule(0.001, 0.1)
CASSANDRA_REQUEST = RetryRule(0.1, 3.0, random_share=0.5)
"""Attempts: setting `cassandra_attempts`."""
SCANNED_PAGE = RetryRule(0.5, 30.0, attempts=8)
OWNER = RetryRule(0.5, 1.0, attempts=3)
ALERT = RetryRule(0.5, 4.0, random_share=1.0)
"""Attempts: setting `alert_attempts`."""

REGISTER_UPDATE = RetryRule(0, 0, attempts=1_000)
"""At once: each failed attempt means that another writer has succeeded."""
UNANSWERED_UPDATE = RetryRule(0, 0, attempts=5)
"""Of an update on Cassandra whose answer was lost. Each attempt waits for its own timeout."""
UNKNOWN_TABLE = RetryRule(0.25, 0.25, attempts=20)
"""A node of Cassandra learns of a new table a moment later than the others."""
PROTECTED_NOW = RetryRule(0, 0, attempts=5)
"""Of a protection at a fresh timestamp: a sweep may publish in between, or a table may be emptied."""
EMPTIED_TABLE = RetryRule(0, 0, attempts=5)
"""Of a truncation or drop that others roll back."""
SETTINGS_IN_FORCE = RetryRule(0, 0, attempts=5)
"""Of the record of the settings, which several processes may write at once."""
SCANNED_RANGE = RetryRule(0, 0, attempts=2)
"""The most attempts of a request of a scan on Spark: a page that times out is read again with half its size."""
MACHINE_SLOT = RetryRule(0.5, 0.5)
"""Until another task of this machine ends."""
AIRFLOW_LOGIN = RetryRule(0, 0, attempts=2)
"""Of a request that Airflow answers with 401: once more after a new login."""
LOCAL_AIRFLOW = RetryRule(1.0, 1.0, attempts=5)
