"""Fault injection: a store whose calls can fail on command, for tests and simulations.

A hook can run just before or just after every call of the contract. A hook is any function. The ones here imitate the
faults of real stores: the call is refused, the response is lost, only a part takes effect, the call is slow, a replica
is down, or the process crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, NoReturn

from sweep_tasks.clock import Clock
from sweep_tasks.errors import OutcomeUnknown, StoreUnavailable
from sweep_tasks.model import TableRef
from sweep_tasks.store.contract import Capabilities, ScanRange, Store

Hook = Callable[["StoreCall"], "HookAnswer | None"]


class ProcessCrashed(BaseException):
    """The simulated process has crashed.

    It is not an Exception, so that no handler of the code under test catches it. Every later call through the same
    `FaultyStore` raises it again, so that no clean-up reaches the store.
    """


@dataclass(frozen=True, slots=True)
class StoreCall:
    """One call of the contract: its name, its place in the sequence of calls, and its arguments."""

    name: str
    number: int
    arguments: tuple[Any, ...]
    perform: Callable[..., Any]


class HookAnswer(NamedTuple):
    """The result that a hook returns to the caller instead of making the call."""

    result: Any


def _call_point(name: str) -> Any:
    def call(self: FaultyStore, *arguments: Any, **named: Any) -> Any:
        return self.call(name, arguments, named)

    return call


class FaultyStore(Store):
    """Passes every call on to another store, and runs the hooks `before` and `after` around it."""

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
    remove_table = _call_point("remove_table")
    catalog_rows = _call_point("catalog_rows")
    tables = _call_point("tables")
    get = _call_point("get")
    newest = _call_point("newest")
    timestamps = _call_point("timestamps")
    scan = _call_point("scan")
    scan_versions = _call_point("scan_versions")
    scan_ranges = _call_point("scan_ranges")
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
        """Make one call of the contract, with its hooks."""
        if self.crashed:
            raise ProcessCrashed(f"{name} was called by a process that has crashed")
        self.calls += 1
        perform = getattr(self.inner, name)
        point = StoreCall(name, self.calls, arguments, perform)
        try:
            answer = self.before(point) if self.before else None
            result = perform(*arguments, **named) if answer is None else answer.result
            if self.after:
                self.after(point)
        except ProcessCrashed:
            self.crashed = True
            raise
        return result

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def incarnation_in_use(self, table: TableRef) -> int | None:
        return self.inner.incarnation_in_use(table)

    def row_order(self, row: bytes) -> object:
        return self.inner.row_order(row)

    def share_before(self, scan_range: ScanRange, row: bytes) -> float:
        return self.inner.share_before(scan_range, row)

    def tokens(self, rows: Iterable[bytes]) -> list[int] | None:
        return self.inner.tokens(rows)

    def close(self) -> None:
        """Do nothing: the inner store is shared, and its owner closes it."""


# --- faults ------------------------------------------------------------------------------------------


def fail(call: StoreCall) -> NoReturn:
    """Before the call: refuse it, so that it has no effect."""
    raise StoreUnavailable(f"store: {call.name} was refused")


def lose_answer(call: StoreCall) -> NoReturn:
    """After the call: lose the response."""
    raise OutcomeUnknown(f"store: {call.name} was not answered in time")


def crash(call: StoreCall) -> NoReturn:
    """Before or after the call: crash the process."""
    raise ProcessCrashed(f"crashed at call {call.number}, {call.name}")


def tear(keep: int) -> Hook:
    """Before the call: apply only the first `keep` items of a bulk call, and lose the response."""

    def torn(call: StoreCall) -> None:
        *fixed, bulk = call.arguments
        call.perform(*fixed, _first(bulk, keep))
        raise OutcomeUnknown(f"store: {call.name} was not answered in time")

    return torn


def miss_a_replica(reaches_the_others: bool) -> Hook:
    """Before the call: make one replica unreachable, so that no delete is confirmed by all replicas.

    The other replicas apply the delete, or nothing happens at all if the store knows beforehand. Calls that do not need
    every replica are not affected.
    """

    def missed(call: StoreCall) -> HookAnswer | None:
        if call.name != "delete_everywhere":
            return None
        if reaches_the_others:
            call.perform(*call.arguments)
        _, ranges = call.arguments
        return HookAnswer(list(ranges))

    return missed


def delay(clock: Clock, seconds: float) -> Hook:
    """Before or after the call: wait."""
    return lambda call: clock.sleep(seconds)


def on(name: str, nth: int, then: Hook, table: TableRef | None = None) -> Hook:
    """Return a hook that runs `then` at the nth call of this name, counted from 1.

    With a table, only calls are counted that have it as their first argument.
    """
    seen = 0

    def hook(call: StoreCall) -> HookAnswer | None:
        nonlocal seen
        meant = call.name == name and (table is None or call.arguments[0] == table)
        seen += meant
        return then(call) if meant and seen == nth else None

    return hook


def _first(bulk: Any, keep: int) -> Any:
    """Return the first items of a bulk argument; for writes to several tables, the first of each table."""
    if isinstance(bulk, Mapping):
        if all(isinstance(value, Mapping) for value in bulk.values()):
            return {table: _first(values, keep) for table, values in bulk.items()}
        return dict(islice(bulk.items(), keep))
    assert isinstance(bulk, Collection)
    return list(islice(bulk, keep))
