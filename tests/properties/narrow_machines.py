"""Parts of what can happen to a store, each searched separately: a search of the same length is deeper there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from sweep_tasks.model import Cell, ConflictHandling, Span, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode
from sweep_tasks.queue import writer
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store import Store
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions import TransactionManager
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
    writes,
)
from tests.support.simulation import InPieces, Process


class Protecting(SweptStore):
    """Only what matters for protections."""

    administrate = fault = step = toggle_replica = pause_or_resume = None  # type: ignore[assignment]


class Racing(SweptStore):
    """Protections against sweeps, call by call."""

    @rule(brink=up_to("update", "scan"))
    def sweep(self, brink: str | None) -> None:
        self._start(lambda store: self._sweep(store, QUEUES, 1_000), brink)

    @rule(table=tables, cell=cells, which=st.integers(0, 3))
    def read(self, table: TableRef, cell: Cell, which: int) -> None:
        self._read_at_a_record(table, cell, which)

    write = administrate = step = advance_time = check_the_immutable_timestamp = None  # type: ignore[assignment]
    toggle_replica = pause_or_resume = None  # type: ignore[assignment]


class Refused(Racing):
    """Protections that come too late, before they are refused."""

    steps = 15
    protects = False

    @rule(back=st.integers(4, 12), table=tables)
    def protect(self, back: int, table: TableRef) -> None:
        """At a version that is already swept."""
        super().history(table, CELLS[0], None, False)
        self._start(lambda store: self._sweep(store, QUEUES, 1_000), None)
        if len(ProtectionCatalog(self.shared, SETTINGS, self.clock).records()) < MOST_AT_ONCE:
            self._start(lambda store: self._protect(store, back, Mode.AT, table, Span()), "tables#2")

    @rule(table=tables, which=st.integers(0, 3))
    def read(self, table: TableRef, which: int) -> None:
        self._read_at_a_record(table, CELLS[0], which)

    history = sweep = release_or_move = go_on = fault = None  # type: ignore[assignment]


class Dying(SweptStore):
    """Writers and sweepers that die before they end."""

    protects = False
    administrate = protect = release_or_move = step = None  # type: ignore[assignment]
    read = check_the_immutable_timestamp = toggle_replica = None  # type: ignore[assignment]
    pause_or_resume = None  # type: ignore[assignment]


class Halting(SweptStore):
    """Sweeps of a partition that is complete, which die before they have cleaned it."""

    steps = 15
    protects = False

    @rule(table=tables, cell=cells, brink=up_to("delete_ranges", "delete_everywhere", "delete_rows"))
    def sweep(self, table: TableRef, cell: Cell, brink: str | None) -> None:
        self._start(lambda store: self._transact(store, [(table, cell, False)]), None)
        self._reach_the_next_partition()
        self._start(lambda store: self._sweep(store, QUEUES, 1_000), brink)

    @precondition(lambda self: self.running)
    @rule(who=whose)
    def fault(self, who: int) -> None:
        super().fault(who, "before")

    history = write = read = administrate = protect = release_or_move = go_on = None  # type: ignore[assignment]
    step = advance_time = check_the_immutable_timestamp = toggle_replica = None  # type: ignore[assignment]
    pause_or_resume = None  # type: ignore[assignment]


class Stopping(SweptStore):
    """Sweeps to a timestamp between the start and the commit of a transaction, or at its commit, and protections."""

    @rule(back=st.sampled_from([0, 1, 1, 2, 3]))
    def sweep(self, back: int) -> None:
        self._start(lambda store: self._sweep(store, QUEUES, 1_000, back), None)

    @rule(which=st.integers(0, 3))
    def release_or_move(self, which: int) -> None:
        super().release_or_move(which, None, None)

    write = read = administrate = protect = fault = step = go_on = advance_time = None  # type: ignore[assignment]
    check_the_immutable_timestamp = toggle_replica = pause_or_resume = None  # type: ignore[assignment]


class Leasing(SweptStore):
    """Transactions that begin while the immutable timestamp is computed."""

    protects = False

    @rule(table=tables, cell=cells, brink=up_to("put", "put_if_absent#2"))
    def write(self, table: TableRef, cell: Cell, brink: str | None) -> None:
        self._start(lambda store: self._transact(store, [(table, cell, False)]), brink)

    @rule(brink=st.sampled_from(["update", "read_rows"]))
    def check_the_immutable_timestamp(self, brink: str) -> None:
        super().check_the_immutable_timestamp(brink)

    @precondition(lambda self: self.running)
    @rule(who=whose)
    def go_on(self, who: int) -> None:
        super().go_on(who, None)

    history = read = sweep = administrate = protect = release_or_move = fault = None  # type: ignore[assignment]
    step = advance_time = toggle_replica = pause_or_resume = None  # type: ignore[assignment]


class Crashing(SweptStore):
    """Writers and sweepers, and everything that can happen to them."""

    protects = False
    administrate = protect = release_or_move = step = toggle_replica = None  # type: ignore[assignment]
    pause_or_resume = None  # type: ignore[assignment]


class Tearing(SweptStore):
    """Bulk calls that are interrupted, or end, between two of their cells."""

    steps = 15
    protects = False

    @initialize(backwards=st.booleans())
    def choose_an_order(self, backwards: bool) -> None:
        """Choose the order of the cells of a call."""
        self.backwards = backwards

    def _process(self, work: Callable[[Store], Any]) -> Process[object]:
        return super()._process(lambda store: work(InPieces(store, self.backwards)))

    def _write_all(self, table: TableRef, delete: bool, brink: str | None) -> None:
        self._start(lambda store: self._transact(store, [(table, cell, delete) for cell in CELLS]), brink)

    @rule(table=tables, delete=st.booleans(), brink=st.sampled_from(["put#3", "put#4", "put#5"]))
    def write(self, table: TableRef, delete: bool, brink: str) -> None:
        """The mark, two entries, two values."""
        self._write_all(table, delete, brink)

    @rule(
        table=tables,
        delete=st.booleans(),
        brink=st.sampled_from(["add_sentinels#2", "delete_ranges#2", "delete_everywhere#2"]),
    )
    def sweep(self, table: TableRef, delete: bool, brink: str) -> None:
        """While no other writer is open: the horizon would stop at the oldest one."""
        while self.running:
            self.go_on(0, None)
        self._write_all(table, False, None)
        self._write_all(table, delete, None)
        self._start(lambda store: self._sweep(store, QUEUES, 1_000), brink)

    @precondition(lambda self: self.running)
    @rule(who=whose, what=st.sampled_from(["before", "unanswered"]))
    def fault(self, who: int, what: str) -> None:
        process = self.running[who % len(self.running)]
        super().fault(who, what)
        process.run_to_end()
        self._sort_out()

    administrate = protect = release_or_move = step = read = history = advance_time = None  # type: ignore[assignment]
    check_the_immutable_timestamp = toggle_replica = pause_or_resume = None  # type: ignore[assignment]


class Dedicated(SweptStore):
    """Transactions so large that the queue keeps them in dedicated rows, and sweeps that die among these."""

    steps = 8
    protects = False

    def __init__(self) -> None:
        super().__init__()
        self._sizes = pytest.MonkeyPatch()
        self._sizes.setattr(writer, "SHARED_WRITES", 1)

    @initialize(writes=st.sampled_from([1, 2]))
    def choose_a_size(self, writes: int) -> None:
        """Two rows of one page, or one row of two pages, where a batch has one entry."""
        self._sizes.setattr(writer, "DEDICATED_WRITES", writes)

    @rule(table=tables, brink=st.sampled_from(["delete_ranges#5", "delete_rows#3"]), dies=st.booleans())
    def sweep(self, table: TableRef, brink: str, dies: bool) -> None:
        """A complete partition up to its shared row, or the next one up to the last page."""
        self._write_all(table, None)
        self._reach_the_next_partition()
        self._write_all(table, None)
        self._start(lambda store: self._sweep(store, QUEUES, 1), brink)
        if dies and self.running:
            super().fault(-1, "before")

    def _write_all(self, table: TableRef, brink: str | None) -> None:
        self._start(lambda store: self._transact(store, [(table, cell, False) for cell in CELLS]), brink)

    @rule(table=tables, brink=up_to("put#2", "put#3", "put#4"))
    def write(self, table: TableRef, brink: str | None) -> None:
        self._write_all(table, brink)

    @precondition(lambda self: self.running)
    @rule(who=whose)
    def fault(self, who: int) -> None:
        super().fault(who, "before")

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self._sizes.undo()

    administrate = protect = release_or_move = step = read = history = advance_time = None  # type: ignore[assignment]
    check_the_immutable_timestamp = toggle_replica = pause_or_resume = None  # type: ignore[assignment]


class Counting(SweptStore):
    """Counters that several transactions increment at once while they are swept: the first committer wins, and no count
    is lost."""

    steps = 15
    protects = False
    conflicts = ConflictHandling.FIRST_COMMITTER_WINS

    def _count(self, store: Store, table: TableRef) -> None:
        """A counter at three is deleted, and counts from the beginning."""
        queue = QueueWriter(store)
        manager = TransactionManager(store, SETTINGS, queue=queue, clock=self.clock, renew_leases=False)
        tx = manager.transaction()
        assert tx.lease
        self.leases[tx.lease.ts] = tx.start
        count = int(tx.get(table, *CELLS[0]) or 0) + 1
        self.journal.writes[tx.start] = {(str(table), *CELLS[0]): b"" if count == 3 else b"%d" % count}
        if count == 3:
            tx.delete(table, *CELLS[0])
        else:
            tx.put(table, *CELLS[0], b"%d" % count)
        tx.commit()

    @initialize(table=tables)
    def choose_a_table(self, table: TableRef) -> None:
        self.table = table

    @rule(brink=st.sampled_from([None, "put", "put", "newest"]))
    def write(self, brink: str | None) -> None:
        self._start(lambda store: self._count(store, self.table), brink)

    @rule()
    def sweep(self) -> None:
        self._start(lambda store: self._sweep(store, QUEUES, 1_000), None)

    @precondition(lambda self: self.running)
    @rule(who=whose)
    def go_on(self, who: int) -> None:
        super().go_on(who, None)

    @invariant()
    def no_count_is_lost(self) -> None:
        commits = self._commits()
        for table in TABLES:
            written = self.journal.of((str(table), *CELLS[0]))
            committed = sorted(start for start in written if commits.get(start, -1) > -1)
            for number, start in enumerate(committed, 1):
                assert int(written[start] or 3) == (number - 1) % 3 + 1, f"{start} of {committed} lost a count"

    history = read = administrate = protect = release_or_move = fault = advance_time = None  # type: ignore[assignment]
    step = check_the_immutable_timestamp = toggle_replica = pause_or_resume = None  # type: ignore[assignment]


class Administering(SweptStore):
    """Tables that change while they are swept."""

    protects = False
    protect = release_or_move = fault = step = toggle_replica = None  # type: ignore[assignment]
    pause_or_resume = None  # type: ignore[assignment]


class Truncating(SweptStore):
    """Tables that are truncated, dropped and created again, while a replica is unavailable for a while."""

    steps = 25
    protects = False

    @rule(
        table=tables,
        what=st.sampled_from(["truncate", "drop"]),
        brink=up_to("scan_versions", "delete_versions", "create_table"),
    )
    def administrate(self, table: TableRef, what: str, brink: str | None) -> None:
        super().administrate(what, table, None, brink)

    @rule(table=tables, cell=cells, back=st.integers(0, 12))
    def read(self, table: TableRef, cell: Cell, back: int) -> None:
        super().read(table, cell, back, None)

    @rule(what=writes)
    def write(self, what: list[tuple[TableRef, Cell, bool]]) -> None:
        super().write(what, False, None)

    @precondition(lambda self: self.running)
    @rule(who=whose)
    def go_on(self, who: int) -> None:
        super().go_on(who, None)

    sweep = protect = release_or_move = fault = step = None  # type: ignore[assignment]
    check_the_immutable_timestamp = pause_or_resume = None  # type: ignore[assignment]


class Retaining(SweptStore):
    """Tables that get and lose a retention, and what one sweep parks for it while another stops."""

    protects = False

    @rule(table=tables, retention_s=st.sampled_from([None, 50, 50]))
    def administrate(self, table: TableRef, retention_s: int | None) -> None:
        strategy = self.shared.tables()[table].strategy
        self._start(lambda store: Catalog(store).change(table, strategy, retention_s), None)

    @rule(brink=up_to("scan", "scan#2"))
    def sweep(self, brink: str | None) -> None:
        self._start(lambda store: self._sweep(store, QUEUES, 1_000), brink)

    write = read = protect = release_or_move = fault = step = None  # type: ignore[assignment]
    check_the_immutable_timestamp = toggle_replica = pause_or_resume = None  # type: ignore[assignment]


class Lacking(SweptStore):
    """Delete markers that are removed while a replica is unavailable, and records that hold them."""

    administrate = step = read = check_the_immutable_timestamp = None  # type: ignore[assignment]
    pause_or_resume = None  # type: ignore[assignment]


class Missing(Lacking):
    """A replica that becomes unavailable and available again, without protections and without processes that stop."""

    protects = False

    @rule()
    def sweep(self) -> None:
        self._start(lambda store: self._sweep(store, QUEUES, 1_000), None)

    write = protect = release_or_move = fault = go_on = None  # type: ignore[assignment]


class Pausing(SweptStore):
    """Pausing and resuming tables and sweeps while anything else runs."""

    administrate = step = read = check_the_immutable_timestamp = None  # type: ignore[assignment]


class Paused(Pausing):
    """The same, with nothing else running."""

    steps = 15
    protects = False

    @rule()
    def sweep(self) -> None:
        self._start(lambda store: self._sweep(store, QUEUES, 1_000), None)

    @rule(table=st.sampled_from([None, *TABLES]))
    def pause_or_resume(self, table: TableRef | None) -> None:
        super().pause_or_resume(table, None)

    write = protect = release_or_move = fault = go_on = toggle_replica = None  # type: ignore[assignment]
