"""Parts of what can happen to a store, each searched on its own: a search of the same length goes deeper there."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from sweep_tasks.catalog import Catalog
from sweep_tasks.model import Cell, Span, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode
from sweep_tasks.queue.progress import QUEUES
from tests.properties.sweep_machine import (
    CELLS,
    MOST_AT_ONCE,
    SETTINGS,
    TABLES,
    SweptStore,
    cells,
    tables,
    up_to,
    whose,
)


class Protecting(SweptStore):
    """Only what matters around protections."""

    administrate = misfortune = step = a_copy_goes_or_comes_back = pause_or_resume = None  # type: ignore[assignment]


class Racing(SweptStore):
    """Protections against sweeps, call by call."""

    @rule(brink=up_to("update", "scan"))
    def sweep(self, brink: str | None) -> None:
        self._start(lambda store: self._sweep(store, QUEUES, 1_000), brink)

    @rule(table=tables, cell=cells, which=st.integers(0, 3))
    def read(self, table: TableRef, cell: Cell, which: int) -> None:
        self._read_at_a_record(table, cell, which)

    write = administrate = step = let_time_pass = look_at_the_immutable_timestamp = None  # type: ignore[assignment]
    a_copy_goes_or_comes_back = pause_or_resume = None  # type: ignore[assignment]


class Refused(Racing):
    """Protections that come too late, while nobody has told them yet."""

    steps = 15
    protects = False

    @rule(back=st.integers(4, 12), table=tables)
    def protect(self, back: int, table: TableRef) -> None:
        """Of a version that is swept by then."""
        super().history(table, CELLS[0], None, False)
        self._start(lambda store: self._sweep(store, QUEUES, 1_000), None)
        if len(ProtectionCatalog(self.shared, SETTINGS, self.clock).records()) < MOST_AT_ONCE:
            self._start(lambda store: self._protect(store, back, Mode.AT, table, Span()), "tables#2")

    @rule(table=tables, which=st.integers(0, 3))
    def read(self, table: TableRef, which: int) -> None:
        self._read_at_a_record(table, CELLS[0], which)

    history = sweep = release_or_move = go_on = misfortune = None  # type: ignore[assignment]


class Dying(SweptStore):
    """Writers and sweepers that do not live to see the end of what they began."""

    protects = False
    administrate = protect = release_or_move = step = None  # type: ignore[assignment]
    read = look_at_the_immutable_timestamp = a_copy_goes_or_comes_back = None  # type: ignore[assignment]
    pause_or_resume = None  # type: ignore[assignment]


class Halting(SweptStore):
    """Sweeps of a partition that is full, which die before they have removed what they are done with."""

    steps = 15
    protects = False

    @rule(table=tables, cell=cells, brink=up_to("delete_ranges", "delete_everywhere", "delete_rows"))
    def sweep(self, table: TableRef, cell: Cell, brink: str | None) -> None:
        self._start(lambda store: self._transact(store, [(table, cell, False)]), None)
        self._reach_the_next_partition()
        self._start(lambda store: self._sweep(store, QUEUES, 1_000), brink)

    @precondition(lambda self: self.running)
    @rule(who=whose)
    def misfortune(self, who: int) -> None:
        super().misfortune(who, "before")

    history = write = read = administrate = protect = release_or_move = go_on = None  # type: ignore[assignment]
    step = let_time_pass = look_at_the_immutable_timestamp = a_copy_goes_or_comes_back = None  # type: ignore[assignment]
    pause_or_resume = None  # type: ignore[assignment]


class Stopping(SweptStore):
    """Sweeps to a timestamp between the start and the commit of a transaction, or at its commit, and protections."""

    @rule(back=st.sampled_from([0, 1, 1, 2, 3]))
    def sweep(self, back: int) -> None:
        self._start(lambda store: self._sweep(store, QUEUES, 1_000, back), None)

    @rule(which=st.integers(0, 3))
    def release_or_move(self, which: int) -> None:
        super().release_or_move(which, None, None)

    write = read = administrate = protect = misfortune = step = go_on = let_time_pass = None  # type: ignore[assignment]
    look_at_the_immutable_timestamp = a_copy_goes_or_comes_back = pause_or_resume = None  # type: ignore[assignment]


class Leasing(SweptStore):
    """Transactions that begin while the immutable timestamp is being worked out."""

    protects = False

    @rule(table=tables, cell=cells, brink=up_to("put", "put_if_absent#2"))
    def write(self, table: TableRef, cell: Cell, brink: str | None) -> None:
        self._start(lambda store: self._transact(store, [(table, cell, False)]), brink)

    @rule(brink=st.sampled_from(["update", "read_rows"]))
    def look_at_the_immutable_timestamp(self, brink: str) -> None:
        super().look_at_the_immutable_timestamp(brink)

    @precondition(lambda self: self.running)
    @rule(who=whose)
    def go_on(self, who: int) -> None:
        super().go_on(who, None)

    history = read = sweep = administrate = protect = release_or_move = misfortune = None  # type: ignore[assignment]
    step = let_time_pass = a_copy_goes_or_comes_back = pause_or_resume = None  # type: ignore[assignment]


class Crashing(SweptStore):
    """Writers and sweepers, and all that can befall them."""

    protects = False
    administrate = protect = release_or_move = step = a_copy_goes_or_comes_back = None  # type: ignore[assignment]
    pause_or_resume = None  # type: ignore[assignment]


class Administering(SweptStore):
    """Tables that change while they are swept."""

    protects = False
    protect = release_or_move = misfortune = step = a_copy_goes_or_comes_back = None  # type: ignore[assignment]
    pause_or_resume = None  # type: ignore[assignment]


class Retaining(SweptStore):
    """Tables that are given a retention and lose it, and what one sweep parks for it while another stands still."""

    protects = False

    @rule(table=tables, retention_s=st.sampled_from([None, 50, 50]))
    def administrate(self, table: TableRef, retention_s: int | None) -> None:
        strategy = self.shared.tables()[table].strategy
        self._start(lambda store: Catalog(store).change(table, strategy, retention_s), None)

    @rule(brink=up_to("scan", "scan#2"))
    def sweep(self, brink: str | None) -> None:
        self._start(lambda store: self._sweep(store, QUEUES, 1_000), brink)

    write = read = protect = release_or_move = misfortune = step = None  # type: ignore[assignment]
    look_at_the_immutable_timestamp = a_copy_goes_or_comes_back = pause_or_resume = None  # type: ignore[assignment]


class Lacking(SweptStore):
    """Delete markers that go while a copy is missing, and records that hold them up."""

    administrate = step = read = look_at_the_immutable_timestamp = None  # type: ignore[assignment]
    pause_or_resume = None  # type: ignore[assignment]


class Missing(Lacking):
    """A copy that goes and comes back, and nobody who protects anything or stands still meanwhile."""

    protects = False

    @rule()
    def sweep(self) -> None:
        self._start(lambda store: self._sweep(store, QUEUES, 1_000), None)

    write = protect = release_or_move = misfortune = go_on = None  # type: ignore[assignment]


class Pausing(SweptStore):
    """Tables and sweeps that are paused and resumed, whatever else is under way."""

    administrate = step = read = look_at_the_immutable_timestamp = None  # type: ignore[assignment]


class Paused(Pausing):
    """The same, and nothing else under way."""

    steps = 15
    protects = False

    @rule()
    def sweep(self) -> None:
        self._start(lambda store: self._sweep(store, QUEUES, 1_000), None)

    @rule(table=st.sampled_from([None, *TABLES]))
    def pause_or_resume(self, table: TableRef | None) -> None:
        super().pause_or_resume(table, None)

    write = protect = release_or_move = misfortune = go_on = a_copy_goes_or_comes_back = None  # type: ignore[assignment]
