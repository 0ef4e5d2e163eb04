"""What protections cost and what they leave: one table, swept repeatedly while records are added and released.

**The bound.** Let p₁ < … < pₖ be the timestamps of the exact (*at*) records that cover a cell, and let no *after* one
cover it. A version *straddles* p if its start < p <= its commit: a reader at p does not see it, though it began before.
After a sweep at S, of the cell's versions that started up to the shard's progress and committed below S, at most
k + 1 straddle none of the pᵢ. (The pᵢ cut the history into k + 1 segments by commit timestamp. In each, the greatest
start removes all that began within the segment before it; what began earlier and committed within it straddles.)

**The promise.** Every reader at or above the threshold, at an exact record's timestamp, and from an *after* record's
timestamp on, sees what a store that was never swept would show.

**Afterwards.** When all records are released and the store is swept again, it equals one with the same writes and
sweeps on which nothing was ever protected.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from sweep_tasks.config import Settings
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import MAX_TS, SENTINEL_TS, Cell, Span, SweepStrategy, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Protections, Record, Target
from sweep_tasks.store.schema import PARKED, QUEUE_CELLS, QUEUE_TIMESTAMPS
from sweep_tasks.sweep import rules
from sweep_tasks.sweep.judging import Judge
from sweep_tasks.transactions import TransactionManager
from sweep_tasks.transactions.outcomes import ABORTED
from tests.conftest import memory_store
from tests.properties.mistakes import protections_count_by_start_instead_of_commit, row_ranges_are_ignored
from tests.properties.model import Journal
from tests.properties.searching import Mistakes, Patch, Searched, find_nothing, search
from tests.support.clock import ManualClock
from tests.unit.sweep.world import TABLE, THOROUGH_TABLE, World

pytestmark = [pytest.mark.properties, pytest.mark.timeout(600)]

CELLS = [Cell(b"a", b"c"), Cell(b"b", b"c")]
GRACE_S = 3_600

spans = st.sampled_from([Span(), Span(), Span(b"a", b"b"), Span(b"b")])
which = st.integers(0, 3)


class Protected(Searched):
    """The same writes and sweeps on two stores, with records on one of them only."""

    steps = 30
    table: TableRef
    strategy: SweepStrategy

    @initialize()
    def begin(self) -> None:
        self.clock = ManualClock()
        self.kept, self.plain = (World(memory_store(self.clock), self.clock) for _ in range(2))
        self.manager = TransactionManager(self.kept.store, Settings(), clock=self.clock, renew_leases=False)
        self.catalog = ProtectionCatalog(self.kept.store)
        self.journal = Journal()
        self.commits: dict[int, int] = {}
        self.now = 0
        self.made = 0
        self.swept: tuple[int, int] | None = None
        """The timestamp and the progress of the last sweep, if nothing has happened since."""

    # --- what happens -------------------------------------------------------------------------------------------------

    @rule(
        cells=st.sampled_from([CELLS[:1], CELLS[:1], CELLS[1:], CELLS]),
        delete=st.booleans(),
        takes=st.sampled_from([1, 1, 1, 3, 6, None]),
    )
    def write(self, cells: list[Cell], delete: bool, takes: int | None) -> None:
        """The next one may start before this one has committed; None is one that aborts."""
        self.now += 1
        start, commit = self.now, ABORTED if takes is None else self.now + takes
        for world in (self.kept, self.plain):
            world.write(start, commit, cells, table=self.table, delete=delete)
        self.journal.writes[start] = {self._place(cell): b"" if delete else b"v" for cell in cells}
        self.commits[start] = commit
        self.swept = None

    @rule(back=st.integers(-3, 8), mode=st.sampled_from(Mode), rows=spans)
    def protect(self, back: int, mode: Mode, rows: Span) -> None:
        """Below the threshold it would be refused; above the current time it holds future writes."""
        ts = max(self.now - back, self._threshold())
        self.made += 1
        record = Record(f"r{self.made}", ts, mode, (Target(self.table, rows),))
        assert self.catalog.protect(record).accepted
        self.swept = None

    @rule(
        mode=st.sampled_from([Mode.AT, Mode.AT, Mode.AFTER]),
        rows=spans,
        ahead=st.sampled_from([0, 0, 1, 2]),
        delete=st.booleans(),
    )
    def history(self, mode: Mode, rows: Span, ahead: int, delete: bool) -> None:
        """A version, protected, and others above it: what the rules are about. One of those may start or commit exactly
        at the protected timestamp."""
        self.write(CELLS, False, 1)
        self.now += 2
        self.protect(-ahead, mode, rows)
        self.write(CELLS, False, 1)
        self.write(CELLS, delete, 1)

    @rule(number=which, forward=st.integers(0, 6))
    def move(self, number: int, forward: int) -> None:
        record = self._one(number)
        if record:
            least = record.ts if record.mode is Mode.AFTER else max(record.ts, self._threshold())
            assert self.catalog.move(record.id, least + forward).accepted
            self.swept = None

    @rule(number=which)
    def release(self, number: int) -> None:
        record = self._one(number)
        if record:
            self.catalog.release(record.id)
            self.swept = None

    @rule(back=st.sampled_from([0, 0, 0, 1, 2, 4]), batch=st.sampled_from([1, 2, 1_000]))
    def sweep(self, back: int, batch: int) -> None:
        """Most are above everything that has committed; `back` puts others between what started and what committed."""
        self._sweep(max(self._latest() + 1 - back, 0), batch)

    def _sweep(self, sweep_ts: int, batch: int) -> None:
        for world in (self.kept, self.plain):
            summary = world.sweep(sweep_ts, self.strategy, batch=batch, grace_s=GRACE_S)
        assert self.kept.progress(self.strategy) == summary.progress, "a record held up the shard"
        self.now = max(self.now, sweep_ts)
        self.swept = sweep_ts, summary.progress

    # --- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def no_cell_keeps_more_than_its_records_ask_for(self) -> None:
        for cell in CELLS if self.swept else []:
            covering = [record for record in self.catalog.records() if record.covers(self.table, cell.row)]
            if all(record.mode is Mode.AT for record in covering):
                points = {record.ts for record in covering}
                plain = [start for start in self._settled(cell) if not self._straddles(start, points)]
                assert len(plain) <= len(points) + 1, f"{plain} are kept for {sorted(points)}"

    @invariant()
    def every_reader_who_was_promised_it_reads_right(self) -> None:
        """Checked after a sweep: nothing else removes anything."""
        if not self.swept:
            return
        TimestampService(self.kept.store).move_past(self.now + 1)
        for cell in CELLS:
            moments = {self._threshold(), self.now, self.now + 1}
            for record in self.catalog.records():
                if record.covers(self.table, cell.row):
                    moments |= set(range(record.ts, self.now + 2)) if record.mode is Mode.AFTER else {record.ts}
            for at in (moment for moment in moments if moment <= self.now + 1):
                assert self._read(cell, at) == self._seen(cell, at), f"a reader at {at} sees something else"

    def teardown(self) -> None:
        if not hasattr(self, "kept"):
            return
        for record in self.catalog.records():
            self.catalog.release(record.id)
        for _ in range(2):
            self.clock.advance(2 * GRACE_S)
            self._sweep(self._latest() + 1, 1_000)
        self.no_cell_keeps_more_than_its_records_ask_for()
        assert self._everything(self.kept) == self._everything(self.plain)
        assert not self.kept.store.scan(PARKED, MAX_TS).items

    # --- reading ------------------------------------------------------------------------------------------------------

    def _one(self, number: int) -> Record | None:
        records = sorted(self.catalog.records(), key=lambda record: record.id)
        return records[number % len(records)] if records else None

    def _latest(self) -> int:
        return max([self.now, *self.commits.values()])

    def _threshold(self) -> int:
        return Thresholds(self.kept.store).of_tables([self.table])[self.table].for_readers

    def _place(self, cell: Cell) -> tuple[str, bytes, bytes]:
        return str(self.table), cell.row, cell.column

    def _settled(self, cell: Cell) -> list[int]:
        """Versions that the last sweep had to judge."""
        assert self.swept
        sweep_ts, progress = self.swept
        return [ts for ts in self.kept.versions(cell, self.table) if SENTINEL_TS < ts <= progress
                and self.commits[ts] < sweep_ts]  # fmt: skip

    def _straddles(self, start: int, points: set[int]) -> bool:
        return any(start < point <= self.commits[start] for point in points)

    def _read(self, cell: Cell, at: int) -> int | None:
        found = self.manager.read_at(at).versions(self.table, [cell]).get(cell)
        return None if found is None or found.is_delete else found.ts

    def _seen(self, cell: Cell, at: int) -> int | None:
        newest = self.journal.newest(self._place(cell), at, self.commits)
        return None if newest is None or not self.journal.writes[newest][self._place(cell)] else newest

    def _everything(self, world: World) -> list[Any]:
        tables = (self.table, QUEUE_CELLS, QUEUE_TIMESTAMPS)
        return [world.progress(self.strategy), *(world.store.scan_versions(table).items for table in tables)]


class Conservative(Protected):
    table, strategy = TABLE, SweepStrategy.CONSERVATIVE


class Thorough(Protected):
    table, strategy = THOROUGH_TABLE, SweepStrategy.THOROUGH


class Exact(Thorough):
    """Only exact records, so that the bound can be checked after every sweep."""

    @rule(back=st.integers(-3, 8), rows=spans)
    def protect(self, back: int, rows: Span) -> None:
        super().protect(back, Mode.AT, rows)

    @rule(rows=spans, ahead=st.sampled_from([0, 0, 1, 2]), delete=st.booleans())
    def history(self, rows: Span, ahead: int, delete: bool) -> None:
        self.write(CELLS, False, 1)
        self.now += 2
        self.protect(-ahead, rows)
        self.write(CELLS, False, 1)
        self.write(CELLS, delete, 1)


MACHINES = [Conservative, Thorough, Exact]
MISTAKES = Mistakes()


# --- and it can fail --------------------------------------------------------------------------------------------------


@MISTAKES.planted(Exact, after=10)
def exact_records_hold_everything(patch: Patch) -> None:
    removable = rules.removable
    patch.setattr(
        rules, "removable", lambda entry, held_by, strategy: None if held_by else removable(entry, None, strategy)
    )


@MISTAKES.planted(Thorough, after=13)
def a_commit_at_the_protected_timestamp_counts_as_before(patch: Patch) -> None:
    holding = Protections.holding
    patch.setattr(Protections, "holding", lambda self, table, row, commit: holding(self, table, row, commit - 1))


@MISTAKES.planted(Thorough, after=7)
def the_least_record_decides(patch: Patch) -> None:
    patch.setattr(Protections, "holding", lambda self, *entry: min(self.holding_in_order(*entry), default=None))


@MISTAKES.planted(Thorough, after=6)
def parked_entries_are_forgotten(patch: Patch) -> None:
    patch.setattr(Judge, "rejudge_parked", lambda *_, **__: None)


MISTAKES.planted(Thorough, after=25)(row_ranges_are_ignored)
MISTAKES.planted(Thorough, after=13)(protections_count_by_start_instead_of_commit)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_cell_keeps_a_version_for_each_record_and_one_for_today(machine: type[Protected]) -> None:
    find_nothing(machine, MISTAKES.length_for(Exact if machine is Exact else Thorough))


@pytest.mark.parametrize("name", MISTAKES)
def test_the_machine_notices_when(name: str, monkeypatch: Patch) -> None:
    mistake = MISTAKES[name]
    mistake.make(monkeypatch)
    with pytest.raises((AssertionError, ExceptionGroup)):
        search(mistake.machine)


@pytest.mark.long
def test_the_wider_machine_notices_when_exact_records_hold_everything(monkeypatch: Patch) -> None:
    exact_records_hold_everything(monkeypatch)
    with pytest.raises((AssertionError, ExceptionGroup)):
        search(Thorough)
