"""Simulated processes that run one store call at a time.

Each is a function in a coroutine of its own; before every call to the store, and whenever it sleeps, it hands control
back. So a test decides what happens between any two calls, and the order it chose is the order that ran.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from greenlet import getcurrent, greenlet

from sweep_tasks.store import Store
from sweep_tasks.store.faults import Call, FaultyStore, ProcessCrashed, crash, lose_answer
from tests.support.clock import ManualClock

T = TypeVar("T")


class Process(Generic[T]):
    """`work(store)`, where the store is this process's own way to the shared one."""

    def __init__(self, shared: Store, work: Callable[[Store], T]) -> None:
        self._store = FaultyStore(shared, before=self._pause_before, after=self._fault_after)
        self._work = work
        self._coroutine = greenlet(self._run)
        self._scheduler: greenlet | None = None
        self._fault: Callable[[Call], None] | None = None
        self.next_call: str | None = None
        self.result: T | None = None
        self.error: BaseException | None = None

    @property
    def ended(self) -> bool:
        return bool(self._coroutine.dead)

    @property
    def running(self) -> bool:
        """Whether it is the one that calls this."""
        return self._coroutine is getcurrent()

    def step(self) -> bool:
        """Make the call it stands before and run up to the next one; False once it has ended."""
        if not self.ended:
            self._scheduler = getcurrent()
            self._coroutine.switch()
        return not self.ended

    def step_to(self, call: str) -> None:
        """Run until it stands before a call of this name."""
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
        """It never makes the call it stands before."""
        self._store.before = crash
        self.run_to_end()

    def crash_after_call(self) -> None:
        """It makes the call it stands before, and is gone before the answer."""
        self._fault = crash
        self.run_to_end()

    def lose_next_answer(self) -> None:
        self._fault = lose_answer

    def pause(self) -> None:
        """Hand control back; the process calls this, through its clock or its store."""
        assert self._scheduler is not None
        self._scheduler.switch()

    def _pause_before(self, call: Call) -> None:
        self.next_call = call.name
        self.pause()
        if self._store.before is crash:
            crash(call)

    def _fault_after(self, call: Call) -> None:
        fault, self._fault = self._fault, None
        if fault:
            fault(call)

    def _run(self) -> None:
        try:
            self.result = self._work(self._store)
        except (Exception, ProcessCrashed) as error:
            self.error = error
        self.next_call = None


class SharedClock(ManualClock):
    """One clock for all simulated processes: whoever sleeps on it hands control back."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[Process[object]] = []

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        for process in self.processes:
            if process.running:
                process.pause()
