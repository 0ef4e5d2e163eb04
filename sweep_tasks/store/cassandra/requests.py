"""Making requests: a bounded number at a time, again where that is safe, with a pause where the cluster is busy.

What an error of the driver means is decided here. A request is *refused* if no node can have carried it out, and
*unanswered* if one may have: a time-out of a write says nothing about whether it happened. Every request that is sent
through `answers` may be repeated: reads change nothing, and writes carry the timestamp they are written at.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

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

from sweep_tasks.errors import OutcomeUnknown, StoreError, StoreUnavailable
from sweep_tasks.store.cassandra.meters import Meters

T = TypeVar("T")

NO_LIMIT = 2**31
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 3.0
_NEVER_SENT = (NoConnectionsAvailable, ConnectionBusy, ConnectionException, OSError)
_REFUSED = (Unavailable, OverloadedErrorMessage, IsBootstrappingErrorMessage)
_DRIVER_ERRORS = (RequestExecutionException, DriverException, NoHostAvailable, OperationTimedOut, ConnectionException)
"""All that a request may end in. What is not among them is a defect, and stays as it is."""


class NoSuchTable(Exception):
    """The physical table is not there (any more)."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A request that was given up."""

    error: Exception
    refused: bool

    def explained(self) -> StoreError:
        kind = StoreUnavailable if self.refused else OutcomeUnknown
        reason, problem = _cause(self.error)
        return kind(f"store: {problem}", reason=reason)


Answer: TypeAlias = ResultSet | Failed


class Requests:
    def __init__(self, session: Session, attempts: int, in_flight: int, meters: Meters) -> None:
        self._session = session
        self._attempts = attempts
        self._in_flight = in_flight
        self._meters = meters

    def answers(self, statements: Iterable[Statement], attempts: int | None = None) -> Iterator[Answer]:
        """One for each, in their order. Statements are asked for only as fast as earlier ones are answered, and not at
        all while one of them waits to be repeated: a busy cluster gets fewer requests, not a longer queue."""
        for statement, future in self._sent(statements):
            yield self._answer(statement, future, attempts or self._attempts)

    def _sent(self, statements: Iterable[Statement]) -> Iterator[tuple[Statement, ResponseFuture]]:
        """Each once its answer is due: the oldest of those under way, when there are as many as allowed."""
        waiting: deque[tuple[Statement, ResponseFuture]] = deque()
        for statement in statements:
            if len(waiting) >= self._in_flight:
                yield waiting.popleft()
            waiting.append((statement, self._session.execute_async(statement)))
        yield from waiting

    def changes(self, statements: Iterable[Statement]) -> Iterator[ResultSet]:
        """The answers, until one is given up: then `OutcomeUnknown`, unless it was alone and certainly not carried out.
        No more are sent: a cluster that can't take one will hardly take a thousand."""
        sent = 0

        def counted() -> Iterator[Statement]:
            nonlocal sent
            for statement in statements:
                sent += 1
                yield statement

        for answer in self.answers(counted()):
            if isinstance(answer, Failed):
                raise Failed(answer.error, answer.refused and sent == 1).explained() from answer.error
            yield answer

    def write(self, statements: Iterable[Statement]) -> None:
        for _ in self.changes(statements):
            pass

    def rows(self, statement: Statement, limit: int = NO_LIMIT) -> Iterator[Any]:
        """No more than `limit`, fetched as they are asked for."""
        page = statement.fetch_size
        statement.fetch_size = _fetched(page, limit)
        return self._pages(statement, self._session.execute_async(statement), page, limit)

    def all_rows(self, statements: Iterable[Statement]) -> Iterator[Any]:
        """Of many statements, several at a time."""
        for statement, future in self._sent(statements):
            yield from self._pages(statement, future, statement.fetch_size, NO_LIMIT)

    def _pages(self, statement: Statement, future: ResponseFuture, page: int, limit: int) -> Iterator[Any]:
        """The next page is on its way while the last one is used."""
        paging_state: bytes | None = None
        while True:
            found = _read(self._answer(statement, future, self._attempts, paging_state))
            limit -= len(found.current_rows)
            more, paging_state = found.has_more_pages and limit > 0, found.paging_state
            if more:
                statement.fetch_size = _fetched(page, limit)
                future = self._session.execute_async(statement, paging_state=paging_state)
            yield from found.current_rows
            if not more:
                return

    def decide(self, statement: Statement) -> ResultSet:
        """A compare-and-set, which is never repeated once a node may have seen it: a second try would meet what the
        first one did, and take it for somebody else's."""

        def ask() -> ResultSet:
            return self._session.execute_async(statement).result()

        return _done(self._repeated(ask, ask, self._attempts, also_unanswered=False))

    def prepared(self, query: str) -> PreparedStatement:
        return _read(self._made(lambda: self._session.prepare(query)))

    def define(self, statement: str, timeout_s: float) -> None:
        """A change of the schema that says `IF NOT EXISTS` or `IF EXISTS`, so it may be repeated."""
        _done(self._made(lambda: self._session.execute(statement, timeout=timeout_s)))

    def _made(self, call: Callable[[], T]) -> T | Failed:
        return self._repeated(call, call, self._attempts)

    def _answer(
        self, statement: Statement, future: ResponseFuture, attempts: int, paging_state: bytes | None = None
    ) -> Answer:
        return self._repeated(
            future.result,
            lambda: self._session.execute_async(statement, paging_state=paging_state).result(),
            attempts,
        )

    def _repeated(
        self, first: Callable[[], T], again: Callable[[], T], attempts: int, also_unanswered: bool = True
    ) -> T | Failed:
        """What was once unanswered stays so, however plainly the repetition is refused."""
        answer = _outcome(first)
        for attempt in range(1, attempts):
            if not isinstance(answer, Failed) or not (answer.refused or also_unanswered):
                break
            self._pause(attempt)
            repeated = _outcome(again)
            answer = (
                Failed(repeated.error, repeated.refused and answer.refused)
                if isinstance(repeated, Failed)
                else repeated
            )
        return answer

    def _pause(self, attempt: int) -> None:
        self._meters.repeated()
        longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**attempt)
        time.sleep(random.uniform(longest / 2, longest))  # noqa: S311


def _fetched(page: int, limit: int) -> int:
    """Who wants to know whether there is more asks for one more than he wants: that is not worth a second request."""
    return limit if limit <= page + 1 else page


def _outcome(call: Callable[[], T]) -> T | Failed:
    try:
        return call()
    except InvalidRequest as error:
        if _names_no_table(error):
            raise NoSuchTable from error
        # Its message may hold values, so it is not passed on.
        raise StoreUnavailable("store: Cassandra takes a request of ours for invalid") from error
    except Unauthorized as error:
        raise StoreUnavailable(
            "store: the Cassandra user may not do this; grant it, or change cassandra_user"
        ) from error
    except _DRIVER_ERRORS as error:
        return Failed(error, _is_refused(error))


def _done(answer: T | Failed) -> T:
    if isinstance(answer, Failed):
        raise answer.explained() from answer.error
    return answer


def _read(answer: T | Failed) -> T:
    """A read that was given up has changed nothing, answered or not; nor has a statement that could not be prepared."""
    return _done(Failed(answer.error, refused=True) if isinstance(answer, Failed) else answer)


def _names_no_table(error: InvalidRequest) -> bool:
    text = str(error).lower()
    return "unconfigured table" in text or "does not exist" in text


def _is_refused(error: Exception) -> bool:
    if isinstance(error, NoHostAvailable):
        return all(isinstance(each, _NEVER_SENT) for each in error.errors.values())
    return isinstance(error, _REFUSED)


def _cause(error: Exception) -> tuple[str, str]:
    """The reason as a code and as a sentence."""
    if isinstance(error, Unavailable):
        return "too_few_replicas", (
            f"{error.required_replicas} copies must take part and {error.alive_replicas} can; bring the other nodes "
            "back, then try again"
        )
    required, received = getattr(error, "required_responses", None), getattr(error, "received_responses", None)
    if required is not None:
        return "timed_out", (
            f"{received or 0} of {required} copies answered in time; whether it was done is not known, try again"
        )
    if isinstance(error, NoHostAvailable):
        if any(isinstance(each, AuthenticationFailed) for each in error.errors.values()):
            return "login_refused", "Cassandra refuses the login; check cassandra_user and cassandra_password"
        return "unreachable", "no node of the cluster could be asked; is it up, and reachable from here?"
    return "no_answer", f"a node did not answer ({type(error).__name__}); try again when the cluster is well"
