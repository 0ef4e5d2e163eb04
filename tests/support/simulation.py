"""Simulated processes that run one store call at a time.

Each one is a function in a coroutine. Before every call to the store, and whenever it sleeps, it returns control. So a
test decides what happens between any two calls, and the chosen order is exactly the order that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any, Generic, TypeVar

from greenlet import getcurrent, greenlet

from sweep_tasks.clock import Uptime
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore, ProcessCrashed, StoreCall, crash, lose_answer
from sweep_tasks.store.schema import JOURNAL, JOURNAL_HEAD
from tests.support.clock import ManualClock

T = TypeVar("T")


def of_journal(arguments: tuple[Any, ...]) -> bool:
    """Return True for a call to the journal. Nothing that keeps data safe is read from there, so its calls are not
    steps: a search over their order as well would reach less of the rest."""
    tables = arguments[1] if arguments and isinstance(arguments[0], int) else arguments[:1]
    return any(table in (JOURNAL, JOURNAL_HEAD) for table in tables)


class Process(Generic[T]):
    """`work(store)` runs with the process's own connection to the shared store."""

    def __init__(self, shared: Store, work: Callable[[Store], T]) -> None:
        self._store = FaultyStore(shared, before=self._pause_before, after=self._fault_after)
        self._work = work
        self._coroutine = greenlet(self._run)
        self._scheduler: greenlet | None = None
        self._fault: Callable[[StoreCall], None] | None = None
        self.next_call: str | None = None
        self.result: T | None = None
        self.error: BaseException | None = None

    @property
    def ended(self) -> bool:
        return bool(self._coroutine.dead)

    @property
    def running(self) -> bool:
        """Return True if the caller runs in this process."""
        return self._coroutine is getcurrent()

    def step(self) -> bool:
        """Make the pending call and run up to the next one. Returns False when the process has ended."""
        if not self.ended:
            self._scheduler = getcurrent()
            self._coroutine.switch()
        return not self.ended

    def step_to(self, call: str) -> None:
        """Run until the pending call has this name."""
        while self.step():
            if self.next_call == call:
                return
        raise AssertionError(f"ended without calling {call}; error: {self.error!r}")

    def finish(self) -> T | None:
        while self.step():
            pass
        if self.error:
            raise self.error
        return self.result

    def run_to_end(self) -> None:
        while self.step():
            pass

    def crash_here(self) -> None:
        """Stop the process before its pending call."""
        self._store.before = crash
        self.run_to_end()

    def crash_after_call(self) -> None:
        """Make the pending call, and stop the process before it gets the answer."""
        self._fault = crash
        self.run_to_end()

    def lose_next_answer(self) -> None:
        self._fault = lose_answer

    def pause(self) -> None:
        """Return control. The process calls this through its clock or its store."""
        assert self._scheduler is not None
        self._scheduler.switch()

    def _pause_before(self, call: StoreCall) -> None:
        if of_journal(call.arguments):
            return
        self.next_call = call.name
        self.pause()
        if self._store.before is crash:
            crash(call)

    def _fault_after(self, call: StoreCall) -> None:
        if of_journal(call.arguments):
            return
        fault, self._fault = self._fault, None
        if fault:
            fault(call)

    def _run(self) -> None:
        try:
            self.result = self._work(self._store)
        except (Exception, ProcessCrashed) as error:
            self.error = error
        self.next_call = None


BULK = frozenset(
    [
        "get", "newest", "timestamps", "put", "put_late", "add_sentinels", "delete_versions", "delete_ranges",
        "delete_everywhere", "delete_rows", "read", "peek", "read_rows", "put_if_absent",
    ]
)  # fmt: skip
"""All take the cells, ranges or rows as their second argument."""


class InPieces(FaultyStore):
    """Makes a bulk call as one call for each cell, since no bulk call is atomic across cells.

    Around the store of a process: it may be held up between two cells, crash there, or lose an answer there and leave
    the rest undone.
    """

    def __init__(self, inner: Store, backwards: bool = False) -> None:
        super().__init__(inner)
        self._backwards = backwards

    def call(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if name not in BULK:
            return super().call(name, arguments, named)
        first, bulk, *rest = arguments
        pieces = list(_pieces(bulk))
        if self._backwards:
            pieces.reverse()
        answers = [super(InPieces, self).call(name, (first, piece, *rest), named) for piece in pieces or [bulk]]
        if isinstance(answers[0], dict):
            return {cell: found for answer in answers for cell, found in answer.items()}
        return [each for answer in answers for each in answer] if isinstance(answers[0], list) else None


def _pieces(bulk: Any) -> Iterator[Any]:
    if isinstance(bulk, Mapping):
        for key, value in bulk.items():
            yield from ({key: piece} for piece in (_pieces(value) if isinstance(value, Mapping) else [value]))
    else:
        # A set is ordered differently in each process.
        yield from ([each] for each in (sorted(bulk) if isinstance(bulk, Set) else bulk))


class SkewedClock:
    """The clock of a machine whose wall clock is ahead of the shared one, or behind it."""

    def __init__(self, clock: ManualClock, ahead_s: float, boot: str) -> None:
        self._clock = clock
        self._ahead_ms = round(ahead_s * 1000)
        self._boot = boot

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._ahead_ms

    def uptime(self) -> Uptime:
        return Uptime(self._boot, self._boot, self._clock.uptime().ms)

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)


class SharedClock(ManualClock):
    """One clock for all simulated processes. A process that sleeps on it returns control."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[Process[object]] = []

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        for process in self.processes:
            if process.running:
                process.pause()
