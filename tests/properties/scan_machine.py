"""The machine of `sweep_machine.py` with table scans beside the targeted sweep, on the same store at the same time.

A scan is one more process that may stop anywhere, die, be resumed by another while it only seemed dead, or sweep to
a lower timestamp than others. Some writers add no entries to the queue: only scans find what they leave.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import LegacySweepOutdated, NotFound
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.run import LegacySweep
from sweep_tasks.model import Cell, Span, TableRef
from sweep_tasks.protection.records import Mode
from sweep_tasks.store import Store
from tests.properties.model import seen_in
from tests.properties.sweep_machine import (
    CELLS,
    CONSERVATIVE,
    MOST_AT_ONCE,
    SETTINGS,
    TABLES,
    THOROUGH,
    SweptStore,
    cells,
    tables,
    up_to,
    writes,
)

SCANS = SETTINGS.model_copy(update={"legacy_versions_per_s": 0})

scanning = up_to(
    "update", "update#2", "update#3", "read_rows#2", "scan_versions", "put_if_absent", "add_sentinels",
    "delete_versions", "delete_ranges", "delete_everywhere", "delete_everywhere#2", "compare_and_set",
)  # fmt: skip
batches = st.sampled_from([1, 2, 1_000])


class Scanning(SweptStore):
    def _scan(self, store: Store, table: TableRef, batch: int, back: int = 0, resume: bool = False) -> None:
        stop_at = max(TimestampService(store).greatest() + 1 - back, 0) if back else None
        sweep = LegacySweep(store, SCANS, self.clock)
        order = LegacyOrder(table, stop_at, ranges=2, batch=batch)
        try:
            run = sweep.resume(table) if resume else sweep.start(order, take_over=True)
        except (NotFound, LegacySweepOutdated):
            run = sweep.start(order, take_over=True)
        sweep.work(run, order)

    @rule(table=tables, batch=batches, back=st.sampled_from([0, 0, 1, 2, 3, 6]), resume=st.booleans(), brink=scanning)
    def scan(self, table: TableRef, batch: int, back: int, resume: bool, brink: str | None) -> None:
        self._start(lambda store: self._scan(store, table, batch, back, resume), brink)

    @rule(what=writes, brink=up_to("put", "put#2", "put_if_absent#2"))
    def write_unannounced(self, what: list[tuple[TableRef, Cell, bool]], brink: str | None) -> None:
        self._start(lambda store: self._transact(store, what, queued=False), brink)

    @rule(
        table=tables, cell=cells, mode=st.sampled_from([None, *Mode]), deletes=st.tuples(st.booleans(), st.booleans())
    )
    def older_than_the_queue(self, table: TableRef, cell: Cell, mode: Mode | None, deletes: tuple[bool, bool]) -> None:
        """Like `history`, three versions deep, without queue entries."""
        for number, delete in enumerate((False, *deletes)):
            if number == 1 and mode and self.protects:
                self._start(lambda store: self._protect(store, 0, mode, table, Span()), None)
            self._start(lambda store, d=delete: self._transact(store, [(table, cell, d)], queued=False), None)  # type: ignore[misc]

    def sweep_all(self) -> None:
        super().sweep_all()
        for table in self.shared.tables(TABLES.keys()):  # a process may have died between a drop and a create
            self._scan(self.shared, table, 1_000)


class ScanRacing(Scanning):
    """Protections against scans, call by call."""

    @rule(table=tables, batch=batches, brink=up_to("update", "update#2", "update#3", "scan_versions"))
    def scan(self, table: TableRef, batch: int, brink: str | None) -> None:
        self._start(lambda store: self._scan(store, table, batch), brink)

    @rule(table=tables, cell=cells, which=st.integers(0, 3))
    def read(self, table: TableRef, cell: Cell, which: int) -> None:
        self._read_at_a_record(table, cell, which)

    write = write_unannounced = sweep = administrate = step = advance_time = None  # type: ignore[assignment]
    check_the_immutable_timestamp = toggle_replica = fault = None  # type: ignore[assignment]
    pause_or_resume = None  # type: ignore[assignment]


class ScanOvertaken(ScanRacing):
    """Protections that are added while a scan stops."""

    steps = 10

    @rule(
        table=tables,
        back=st.integers(1, 8),
        brink=st.sampled_from(["update", "update#2", "update#3", "scan_versions"]),
    )
    def scan(self, table: TableRef, back: int, brink: str) -> None:
        for _ in range(2):
            self._start(lambda store: self._transact(store, [(table, CELLS[0], False)], queued=False), None)
        self._start(lambda store: self._scan(store, table, 1_000), brink)
        self._start(lambda store: self._protect(store, back, Mode.AT, table, Span()), None)

    @precondition(lambda self: self.running)
    @rule(who=st.integers(0, 3))
    def go_on(self, who: int) -> None:
        super().go_on(who, None)

    history = older_than_the_queue = protect = release_or_move = read = None  # type: ignore[assignment]


class ScanAlone(Scanning):
    """Scans and writers without queue entries, which may die or stop, and no other processes. A cell always has a
    sentinel when a version of it was removed."""

    protects = False
    administrate = protect = release_or_move = read = write = sweep = step = history = None  # type: ignore[assignment]
    check_the_immutable_timestamp = toggle_replica = pause_or_resume = None  # type: ignore[assignment]

    @rule(what=writes, brink=up_to("put", "put_if_absent#2", "put_if_absent#2"))
    def write_unannounced(self, what: list[tuple[TableRef, Cell, bool]], brink: str | None) -> None:
        super().write_unannounced(what, brink)

    @rule()
    def advance_time(self) -> None:
        """Longer than a lease."""
        super().advance_time(35, False)

    @invariant()
    def a_reader_that_finds_nothing_where_something_was_finds_a_sentinel(self) -> None:
        """The guard of readers that do not know the threshold."""
        commits, stored = self._commits(), self._stored()
        least = Thresholds(self.shared).of_tables([CONSERVATIVE])[CONSERVATIVE].for_readers
        for cell in CELLS:
            place = (str(CONSERVATIVE), *cell)
            written, versions = self.journal.of(place), stored.get(place, {})
            for start in written:
                t = commits.get(start, -1) + 1
                missing = 0 < t < least and seen_in(written, t, commits) and not seen_in(versions, t, commits)
                hidden = any(ts < t for ts in versions)
                assert not missing or hidden, f"a reader of {place} at {t} reads a removed value as never written"


class ScanHalting(ScanAlone):
    """Scans that stop around a removal, or below the newest commit, and writers that stop before they commit until a
    scan has aborted them."""

    steps = 15

    @rule(
        table=tables,
        cell=cells,
        back=st.sampled_from([0, 0, 1, 2]),
        brink=up_to("add_sentinels", "delete_ranges", "delete_everywhere"),
    )
    def scan(self, table: TableRef, cell: Cell, back: int, brink: str | None) -> None:
        self._start(lambda store: self._transact(store, [(table, cell, False)], queued=False), None)
        self._start(lambda store: self._scan(store, table, 1_000, back), brink)

    @rule(table=tables, cell=cells)
    def write_unannounced(self, table: TableRef, cell: Cell) -> None:
        super().write_unannounced([(table, cell, False)], "put_if_absent#2")

    @precondition(lambda self: self.running)
    @rule(who=st.integers(0, 3))
    def go_on(self, who: int) -> None:
        super().go_on(who, None)

    older_than_the_queue = fault = None  # type: ignore[assignment]


class ScanLacking(Scanning):
    """Delete markers that are removed while a replica is unavailable, and records that hold them."""

    administrate = step = read = check_the_immutable_timestamp = write = None  # type: ignore[assignment]
    pause_or_resume = None  # type: ignore[assignment]

    @rule(cell=cells, back=st.sampled_from([0, 0, 2]), batch=batches, brink=scanning)
    def scan(self, cell: Cell, back: int, batch: int, brink: str | None) -> None:
        """One more delete, so that there is a marker to remove."""
        if len(self.running) < MOST_AT_ONCE:
            self._start(lambda store: self._transact(store, [(THOROUGH, cell, True)], queued=False), None)
        self._start(lambda store: self._scan(store, THOROUGH, batch, back), brink)
