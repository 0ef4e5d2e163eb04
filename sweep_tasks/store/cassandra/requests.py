"""Requests to Cassandra: limited in number, retried where that is safe, and counted."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import prometheus_client
from cassandra import (
    AuthenticationFailed,
    DriverException,
    InvalidRequest,
    OperationTimedOut,
    RequestExecutionException,
    Unauthorized,
    Unavailable,
)
from cassandra.cluster import NoHostAvailable, ResponseFuture, ResultSet, Session
from cassandra.connection import ConnectionBusy, ConnectionException
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage
from cassandra.query import PreparedStatement, Statement

from sweep_tasks import retries
from sweep_tasks.errors import OutcomeUnknown, StoreError, StoreUnavailable
from sweep_tasks.processes import call_in_each_process

# ---------------------------------------------------------------------------------------------------------------------
# Metrics of requests: for Prometheus, and for the cost of a single run.
# ---------------------------------------------------------------------------------------------------------------------

_REQUESTS = prometheus_client.Counter("sweepflow_cassandra_requests", "Requests to Cassandra by outcome", ["outcome"])
_REPEATED = prometheus_client.Counter("sweepflow_cassandra_repeated", "Requests that were retried")
_IN_FLIGHT = prometheus_client.Gauge("sweepflow_cassandra_in_flight", "Requests in flight")
_SECONDS = prometheus_client.Histogram(
    "sweepflow_cassandra_request_seconds",
    "Duration of requests to Cassandra",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
)


class Meters:
    """Counts the requests of one session, and updates the metrics of the process."""

    def __init__(self) -> None:
        call_in_each_process(self, Meters._reset)

    def _reset(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def watch(self, session: Session) -> None:
        """Count all requests of a session."""
        session.add_request_init_listener(self._measure)

    def counts(self) -> Counter[str]:
        """Return counts by outcome: `ok`, an error's name, `repeated`, or `speculative` (sent to a second node)."""
        with self._lock:
            return self._counts.copy()

    def count_retry(self) -> None:
        _REPEATED.inc()
        self._count("repeated")

    def _measure(self, future: ResponseFuture) -> None:
        began = time.perf_counter()
        _IN_FLIGHT.inc()

        def ended(outcome: str) -> None:
            _IN_FLIGHT.dec()
            _SECONDS.observe(time.perf_counter() - began)
            _REQUESTS.labels(outcome).inc()
            self._count(outcome)
            if len(future.attempted_hosts) > 1:
                self._count("speculative")

        def failed(error: Any) -> None:
            ended(type(error).__name__)

        future.add_callbacks(lambda _: ended("ok"), failed)

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1


# ---------------------------------------------------------------------------------------------------------------------
# Sending requests: a limited number at a time, with retries where that is safe, and pauses if the cluster is busy.
#
# This is where errors of the driver are interpreted. A request is *refused* if no node can have executed it, and
# *unanswered* if a node may have: after a timeout of a write it is not known whether it happened. Every request that is
# sent through `answers` may be retried: reads change nothing, and writes carry their own timestamp.
# ---------------------------------------------------------------------------------------------------------------------

T = TypeVar("T")

NO_LIMIT = 2**31
_NEVER_SENT = (NoConnectionsAvailable, ConnectionBusy, ConnectionException, OSError)
_REFUSED = (Unavailable, OverloadedErrorMessage, IsBootstrappingErrorMessage)
_DRIVER_ERRORS = (RequestExecutionException, DriverException, NoHostAvailable, OperationTimedOut, ConnectionException)
"""All errors of a request. Any other exception is a defect and is not caught."""


class NoSuchTable(Exception):
    """The physical table does not exist, or no longer exists."""


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """A request that failed after all its attempts."""

    error: Exception
    refused: bool

    def explained(self) -> StoreError:
        kind = StoreUnavailable if self.refused else OutcomeUnknown
        reason, problem = _cause(self.error)
        return kind(f"store: {problem}", reason=reason)


RequestAnswer: TypeAlias = ResultSet | FailedRequest


class Requests:
    """Sends the requests of one session."""

    def __init__(self, session: Session, attempts: int, in_flight: int, meters: Meters) -> None:
        self._session = session
        self._attempts = attempts
        self._in_flight = in_flight
        self._meters = meters

    def answers(self, statements: Iterable[Statement], attempts: int | None = None) -> Iterator[RequestAnswer]:
        """Yield the answer of each statement, in order.

        A statement is taken from the iterable only when an earlier one is answered, and none while a retry is pending:
        a busy cluster gets fewer requests, not a longer queue.
        """
        for statement, future in self._send_all(statements):
            yield self._answer(statement, future, attempts or self._attempts)

    def _send_all(self, statements: Iterable[Statement]) -> Iterator[tuple[Statement, ResponseFuture]]:
        """Send statements, and yield the oldest one whenever the maximum number is in flight."""
        waiting: deque[tuple[Statement, ResponseFuture]] = deque()
        for statement in statements:
            if len(waiting) >= self._in_flight:
                yield waiting.popleft()
            waiting.append((statement, self._session.execute_async(statement)))
        yield from waiting

    def changes(self, statements: Iterable[Statement]) -> Iterator[ResultSet]:
        """Yield the answers of changes; stop at the first failure, because a busy cluster should not get more requests.

        The failure is `OutcomeUnknown`, unless only one request was sent and it was certainly not executed.
        """
        sent = 0

        def counted() -> Iterator[Statement]:
            nonlocal sent
            for statement in statements:
                sent += 1
                yield statement

        for answer in self.answers(counted()):
            if isinstance(answer, FailedRequest):
                raise FailedRequest(answer.error, answer.refused and sent == 1).explained() from answer.error
            yield answer

    def write(self, statements: Iterable[Statement]) -> None:
        """Execute all changes."""
        for _ in self.changes(statements):
            pass

    def rows(self, statement: Statement, limit: int = NO_LIMIT) -> Iterator[Any]:
        """Yield at most `limit` rows; pages are fetched when they are needed."""
        page = statement.fetch_size
        statement.fetch_size = _page_size(page, limit)
        return self._pages(statement, self._session.execute_async(statement), page, limit)

    def all_rows(self, statements: Iterable[Statement]) -> Iterator[Any]:
        """Yield the rows of many statements, of which several are in flight at a time."""
        for statement, future in self._send_all(statements):
            yield from self._pages(statement, future, statement.fetch_size, NO_LIMIT)

    def _pages(self, statement: Statement, future: ResponseFuture, page: int, limit: int) -> Iterator[Any]:
        """Yield all rows; the next page is requested before the rows of the current one are used."""
        paging_state: bytes | None = None
        while True:
            found = _result_of_read(self._answer(statement, future, self._attempts, paging_state))
            limit -= len(found.current_rows)
            more, paging_state = found.has_more_pages and limit > 0, found.paging_state
            if more:
                statement.fetch_size = _page_size(page, limit)
                future = self._session.execute_async(statement, paging_state=paging_state)
            yield from found.current_rows
            if not more:
                return

    def decide(self, statement: Statement) -> ResultSet:
        """Execute a compare-and-set. It is never retried once a node may have received it.

        A retry would find the change of the first attempt and treat it as that of another process.
        """

        def ask() -> ResultSet:
            return self._session.execute_async(statement).result()

        return _result_or_raise(self._with_retries(ask, ask, self._attempts, also_unanswered=False))

    def prepare(self, query: str) -> PreparedStatement:
        return _result_of_read(self._call(lambda: self._session.prepare(query)))

    def define(self, statement: str, timeout_s: float) -> None:
        """Execute a change of the schema. It has `IF NOT EXISTS` or `IF EXISTS`, so it may be retried."""
        _result_or_raise(self._call(lambda: self._session.execute(statement, timeout=timeout_s)))

    def _call(self, call: Callable[[], T]) -> T | FailedRequest:
        return self._with_retries(call, call, self._attempts)

    def _answer(
        self, statement: Statement, future: ResponseFuture, attempts: int, paging_state: bytes | None = None
    ) -> RequestAnswer:
        return self._with_retries(
            future.result,
            lambda: self._session.execute_async(statement, paging_state=paging_state).result(),
            attempts,
        )

    def _with_retries(
        self, first: Callable[[], T], again: Callable[[], T], attempts: int, also_unanswered: bool = True
    ) -> T | FailedRequest:
        """Make a call, with retries. If an attempt was unanswered, the failure counts as unanswered."""
        answer = _outcome(first)
        for attempt in range(1, attempts):
            if not isinstance(answer, FailedRequest) or not (answer.refused or also_unanswered):
                break
            self._pause(attempt)
            repeated = _outcome(again)
            answer = (
                FailedRequest(repeated.error, repeated.refused and answer.refused)
                if isinstance(repeated, FailedRequest)
                else repeated
            )
        return answer

    def _pause(self, attempt: int) -> None:
        self._meters.count_retry()
        time.sleep(retries.CASSANDRA_REQUEST.pause_s(attempt))


def _page_size(page: int, limit: int) -> int:
    """Return the page size. One row more than a page, to see whether there are more, is not worth a second request."""
    return limit if limit <= page + 1 else page


def _outcome(call: Callable[[], T]) -> T | FailedRequest:
    try:
        return call()
    except InvalidRequest as error:
        if _names_no_table(error):
            raise NoSuchTable from error
        if _is_of_guardrail(error):
            raise StoreUnavailable(
                "store: a guardrail of the Cassandra nodes does not permit this; run it as a superuser, or change the "
                "guardrail",
                reason="guardrail",
            ) from error
        # The message may contain values, so it is not included.
        raise StoreUnavailable(
            "store: Cassandra rejected a request as invalid; check that the cluster runs Cassandra 5"
        ) from error
    except Unauthorized as error:
        raise StoreUnavailable(
            "store: the Cassandra user has no permission for this; grant it, or change cassandra_user",
            field="cassandra_user",
            reason="not_granted",
        ) from error
    except _DRIVER_ERRORS as error:
        return FailedRequest(error, _is_refused(error))


def _result_or_raise(answer: T | FailedRequest) -> T:
    if isinstance(answer, FailedRequest):
        raise answer.explained() from answer.error
    return answer


def _result_of_read(answer: T | FailedRequest) -> T:
    """Return the result of a call that changes nothing: its failure is always a refusal, answered or not."""
    return _result_or_raise(FailedRequest(answer.error, refused=True) if isinstance(answer, FailedRequest) else answer)


def _names_no_table(error: InvalidRequest) -> bool:
    text = str(error).lower()
    return "unconfigured table" in text or "does not exist" in text


def _is_of_guardrail(error: InvalidRequest) -> bool:
    return "guardrail" in str(error).lower()


def _is_refused(error: Exception) -> bool:
    if isinstance(error, NoHostAvailable):
        return all(isinstance(each, _NEVER_SENT) for each in error.errors.values())
    return isinstance(error, _REFUSED)


def _cause(error: Exception) -> tuple[str, str]:
    """Return the reason of a failure as a code and as a sentence."""
    if isinstance(error, Unavailable):
        return "too_few_replicas", (
            f"{error.required_replicas} replicas are required and {error.alive_replicas} are alive; start the other "
            "nodes, then retry"
        )
    required, received = getattr(error, "required_responses", None), getattr(error, "received_responses", None)
    if required is not None:
        return "timed_out", (
            f"{received or 0} of {required} replicas answered in time; it may or may not have been executed; retry"
        )
    if isinstance(error, NoHostAvailable):
        if any(isinstance(each, AuthenticationFailed) for each in error.errors.values()):
            return "login_refused", "Cassandra refuses the login; check cassandra_user and cassandra_password"
        return "unreachable", "no node of the cluster is reachable; check that it is running and reachable from here"
    return "no_answer", f"a node did not answer ({type(error).__name__}); retry when the cluster is healthy"
