"""A store whose calls can go wrong on command, for tests and simulations.

Every call of the contract is a point where something may happen, just before it takes effect or just after. What
happens is any function; the ones here are the ways real stores let a process down: refuse, do the work and lose the
answer, do half of it, answer late, lack a copy, or be the last thing the process ever did.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, NoReturn

from sweep_tasks.clock import Clock
from sweep_tasks.errors import OutcomeUnknown, StoreUnavailable
from sweep_tasks.store.contract import Store, Stretch

Hook = Callable[["Call"], "Answer | None"]


class ProcessCrashed(BaseException):
    """The process is gone. Not an Exception, so that no handler of the code under test takes it for one; and every
    later call through the same `FaultyStore` raises it again, so that no clean-up reaches the store."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the contract: its name, its place in the sequence of calls, and its arguments."""

    name: str
    number: int
    arguments: tuple[Any, ...]
    perform: Callable[..., Any]


class Answer(NamedTuple):
    """What the caller is told by a hook that stands in for the call: the call itself is not made."""

    result: Any


def _call_point(name: str) -> Any:
    def call(self: FaultyStore, *arguments: Any, **named: Any) -> Any:
        return self.call(name, arguments, named)

    return call


class FaultyStore(Store):
    """Passes every call on to another store, running `before` and `after` around it."""

    before: Hook | None
    after: Hook | None

    def __init__(self, inner: Store, before: Hook | None = None, after: Hook | None = None) -> None:
        self.inner = inner
        self.before = before
        self.after = after
        self.calls = 0
        self.crashed = False

    create_table = _call_point("create_table")
    alter_table = _call_point("alter_table")
    drop_table = _call_point("drop_table")
    tables = _call_point("tables")
    truncate = _call_point("truncate")
    get = _call_point("get")
    newest = _call_point("newest")
    timestamps = _call_point("timestamps")
    scan = _call_point("scan")
    scan_versions = _call_point("scan_versions")
    stretches = _call_point("stretches")
    end_of = _call_point("end_of")
    put = _call_point("put")
    put_late = _call_point("put_late")
    add_sentinels = _call_point("add_sentinels")
    delete_versions = _call_point("delete_versions")
    delete_ranges = _call_point("delete_ranges")
    delete_everywhere = _call_point("delete_everywhere")
    delete_rows = _call_point("delete_rows")
    read = _call_point("read")
    peek = _call_point("peek")
    read_rows = _call_point("read_rows")
    scan_registers = _call_point("scan_registers")
    put_if_absent = _call_point("put_if_absent")
    compare_and_set = _call_point("compare_and_set")
    update = _call_point("update")
    remove = _call_point("remove")
    size = _call_point("size")

    def call(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Make one call of the contract: every method comes by here."""
        if self.crashed:
            raise ProcessCrashed(f"{name} called by a process that is gone")
        self.calls += 1
        perform = getattr(self.inner, name)
        point = Call(name, self.calls, arguments, perform)
        try:
            answer = self.before(point) if self.before else None
            result = perform(*arguments, **named) if answer is None else answer.result
            if self.after:
                self.after(point)
        except ProcessCrashed:
            self.crashed = True
            raise
        return result

    def row_order(self, row: bytes) -> object:
        return self.inner.row_order(row)

    def share_before(self, stretch: Stretch, row: bytes) -> float:
        return self.inner.share_before(stretch, row)

    def tokens(self, rows: Iterable[bytes]) -> list[int] | None:
        return self.inner.tokens(rows)

    def close(self) -> None:
        """The store behind is shared: whoever opened it closes it."""


# --- what can go wrong ------------------------------------------------------------------------------------------


def fail(call: Call) -> NoReturn:
    """Before: the call is refused and does nothing."""
    raise StoreUnavailable(f"store: {call.name} was refused")


def lose_answer(call: Call) -> NoReturn:
    """After: the work is done, and the caller does not hear of it."""
    raise OutcomeUnknown(f"store: {call.name} was not answered in time")


def crash(call: Call) -> NoReturn:
    """Before or after: the process ends here."""
    raise ProcessCrashed(f"crashed at call {call.number}, {call.name}")


def tear(keep: int) -> Hook:
    """Before: only the first `keep` items of a bulk call take effect, and the answer is lost."""

    def torn(call: Call) -> None:
        *fixed, bulk = call.arguments
        call.perform(*fixed, _first(bulk, keep))
        raise OutcomeUnknown(f"store: {call.name} was not answered in time")

    return torn


def miss_a_copy(reaches_the_others: bool) -> Hook:
    """Before: one copy can't be reached, so that nothing is confirmed by all. The others remove what they are told to,
    or, where the store knows beforehand, nothing happens at all. Calls that need not reach every copy go on."""

    def missed(call: Call) -> Answer | None:
        if call.name != "delete_everywhere":
            return None
        if reaches_the_others:
            call.perform(*call.arguments)
        _, ranges = call.arguments
        return Answer(list(ranges))

    return missed


def delay(clock: Clock, seconds: float) -> Hook:
    """Before or after: the call takes its time."""
    return lambda call: clock.sleep(seconds)


def on(name: str, nth: int, then: Hook) -> Hook:
    """`then` at the nth call of this name, counted from 1; otherwise nothing."""
    seen = 0

    def hook(call: Call) -> Answer | None:
        nonlocal seen
        seen += call.name == name
        return then(call) if call.name == name and seen == nth else None

    return hook


def _first(bulk: Any, keep: int) -> Any:
    """The first items of a bulk argument; of writes to several tables, of each table."""
    if isinstance(bulk, Mapping):
        if all(isinstance(value, Mapping) for value in bulk.values()):
            return {table: _first(values, keep) for table, values in bulk.items()}
        return dict(islice(bulk.items(), keep))
    assert isinstance(bulk, Collection)
    return list(islice(bulk, keep))
