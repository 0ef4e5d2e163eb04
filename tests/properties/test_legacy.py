"""Table scans: they leave what the targeted sweep leaves, and both can run at the same time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory, ClockSample
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.legacy import rules as legacy_rules
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.rules import Acting, CurrentCell
from sweep_tasks.legacy.run import LegacySweep
from sweep_tasks.legacy.scan import Scanner
from sweep_tasks.model import SENTINEL_TS, Cell, Span, StoredVersion, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store import Store
from sweep_tasks.store.sqlite import SQLiteStore
from sweep_tasks.sweep import rules
from sweep_tasks.sweep.actions import Actions
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.order import SweepOptions
from sweep_tasks.sweep.rules import Plan
from sweep_tasks.sweep.steps import ShardSweep
from sweep_tasks.transactions.outcomes import ABORTED, CommitTable
from tests.conftest import memory_store
from tests.properties.scan_machine import ScanAlone, ScanHalting, ScanLacking, Scanning, ScanOvertaken, ScanRacing
from tests.properties.searching import WIDE, Machine, Mistakes, Patch, find_nothing, search
from tests.support.clock import ManualClock

pytestmark = [pytest.mark.properties, pytest.mark.timeout(1_200)]

MACHINES = [Scanning, ScanRacing, ScanOvertaken, ScanAlone, ScanHalting, ScanLacking]
WIDER: dict[Machine, Machine] = {ScanHalting: ScanAlone, ScanOvertaken: ScanRacing}
MISTAKES = Mistakes()


# --- the same as the targeted sweep ---------------------------------------------------------------------------------

TABLE = TableRef.parse("app.items")
CELLS = [Cell(row, column) for row in (b"a", b"b") for column in (b"c", b"d")]
SWEEP_TS = 1_000
SETTINGS = Settings(retention_s=0, legacy_versions_per_s=0)

histories = st.lists(
    st.tuples(
        st.lists(st.sampled_from(CELLS), min_size=1, max_size=3, unique=True),
        st.booleans(),  # a delete
        st.sampled_from(["commits", "commits", "late", "aborts", "never ends"]),
    ),
    max_size=12,
)
records = st.lists(
    st.tuples(
        st.integers(0, 300), st.sampled_from(Mode), st.sampled_from([Span(), Span(b"a", b"b"), Span(b"b")])
    ),
    max_size=3,
)  # fmt: skip


class Case(NamedTuple):
    history: list[tuple[list[Cell], bool, str]]
    protected: list[tuple[int, Mode, Span]]
    strategy: SweepStrategy
    retention_s: int | None
    sentinels: set[Cell]
    batch: int
    at_a_time: int

    def left_by(self, sweep: Sweep, store: Store, clock: ManualClock, look_before_delete: bool) -> Left:
        """What is stored in the table afterwards, and the outcomes of its transactions."""
        metadata = TableMetadata(self.strategy, retention_s=self.retention_s, look_before_delete=look_before_delete)
        store.create_table(TABLE, metadata)
        ClockHistory(store).record(ClockSample(clock.now_ms() - 30_000, 100))
        TimestampService(store).move_past(SWEEP_TS)
        for number, (ts, mode, rows) in enumerate(self.protected):
            ProtectionCatalog(store, clock=clock).protect(Record(f"r{number}", ts, mode, (Target(TABLE, rows),)))
        for number, (cells, delete, ending) in enumerate(self.history):
            write(store, 20 * number + 10, cells, delete, ending)
        store.add_sentinels(TABLE, list(self.sentinels))
        sweep(store, clock, self)
        return Left(store.scan_versions(TABLE).items, CommitTable(store).outcomes(range(10, 300, 20)))


class Left(NamedTuple):
    versions: list[StoredVersion]
    commits: dict[int, int]

    def as_scans_leave(self, strategy: SweepStrategy) -> Left:
        """A targeted sweep reaches sentinels of a thorough table only where a write covers them. A scan reads and
        removes all of them."""
        return self.without_sentinels if strategy is SweepStrategy.THOROUGH else self

    @property
    def without_sentinels(self) -> Left:
        return self._replace(versions=[each for each in self.versions if each.ts != SENTINEL_TS])

    @property
    def sentinels(self) -> set[Cell]:
        return {each.cell for each in self.versions if each.ts == SENTINEL_TS}


Sweep = Callable[[Store, ManualClock, Case], None]
cases = st.builds(
    Case,
    history=histories,
    protected=records,
    strategy=st.sampled_from([SweepStrategy.CONSERVATIVE, SweepStrategy.THOROUGH]),
    retention_s=st.sampled_from([None, None, 1, 60]),
    sentinels=st.sets(st.sampled_from(CELLS)),
    batch=st.sampled_from([1, 2, 3, 1_000]),
    at_a_time=st.sampled_from([0, 1, 2]),
)


@settings(max_examples=max(300, 20 * WIDE))
@given(case=cases)
def test_a_scan_leaves_what_the_targeted_sweep_leaves(case: Case) -> None:
    """Also if the scan is interrupted and resumed often. The table has look-before-delete, and one transaction is swept
    at a time: otherwise the targeted sweep leaves sentinels where there was nothing to remove, or only aborted
    versions."""
    by_queue, by_scan = (left_on_memory(case, sweep, look_before_delete=True) for sweep in (targeted, scanned))
    assert by_queue.as_scans_leave(case.strategy) == by_scan


@settings(max_examples=max(30, 2 * WIDE))
@given(case=cases)
def test_a_scan_on_sqlite_leaves_the_same(case: Case) -> None:
    by_queue, by_scan = (left_on_sqlite(case, sweep, look_before_delete=True) for sweep in (targeted, scanned))
    assert by_queue.as_scans_leave(case.strategy) == by_scan


@settings(max_examples=max(75, 5 * WIDE))
@given(case=cases, left_on=st.sampled_from(["memory", "memory", "sqlite"]))
def test_a_sweep_that_does_not_check_before_it_deletes_leaves_more_sentinels_and_nothing_else(
    case: Case, left_on: str
) -> None:
    left = {"memory": left_on_memory, "sqlite": left_on_sqlite}[left_on]
    by_queue, by_scan = (left(case, sweep, look_before_delete=False) for sweep in (targeted, scanned))
    assert by_queue.without_sentinels == by_scan.without_sentinels
    assert by_queue.sentinels >= by_scan.sentinels


def left_on_memory(case: Case, sweep: Sweep, look_before_delete: bool) -> Left:
    clock = ManualClock()
    return case.left_by(sweep, memory_store(clock), clock, look_before_delete)


def left_on_sqlite(case: Case, sweep: Sweep, look_before_delete: bool) -> Left:
    clock = ManualClock()
    with TemporaryDirectory() as folder:
        SQLiteStore.initialise(Path(folder) / "store.db")
        with SQLiteStore(Path(folder) / "store.db", clock=clock, durability="off") as store:
            return case.left_by(sweep, store, clock, look_before_delete)


def write(store: Store, start: int, cells: list[Cell], delete: bool, ending: str) -> None:
    values = {TABLE: dict.fromkeys(cells, b"" if delete else b"v")}
    QueueWriter(store).enqueue(start, values, store.tables([TABLE]))
    store.put(start, values)
    if ending != "never ends":
        outcome = {"commits": start + 5, "late": start + 95, "aborts": ABORTED}[ending]
        CommitTable(store).decide(start, outcome)


def targeted(store: Store, clock: ManualClock, case: Case) -> None:
    ShardSweep(store, case.strategy, 0, Horizon(SWEEP_TS, clock.now_ms()), clock, SweepOptions(batch=1)).run()


def scanned(store: Store, clock: ManualClock, case: Case) -> None:
    sweep = LegacySweep(store, SETTINGS, clock)
    order = LegacyOrder(TABLE, ranges=2, batch=case.batch, max_cells=case.at_a_time)
    summary = sweep.work(sweep.start(order, Horizon(SWEEP_TS, clock.now_ms())), order)
    while summary.stopped:
        summary = sweep.work(sweep.resume(TABLE), order)


# --- mistakes -------------------------------------------------------------------------------------------------------


@MISTAKES.planted(ScanOvertaken, after=1)
def a_scan_reads_protections_before_it_publishes(patch: Patch) -> None:
    start, read = LegacySweep.start, ProtectionCatalog.protections

    def early(self: LegacySweep, *args: Any, **kwargs: Any) -> Any:
        known = read(ProtectionCatalog(self._store))
        patch.setattr("sweep_tasks.legacy.run.ProtectionCatalog.protections", lambda _: known)
        return start(self, *args, **kwargs)

    patch.setattr(LegacySweep, "start", early)


@MISTAKES.planted(ScanRacing, after=4)
def a_scan_publishes_nothing(patch: Patch) -> None:
    patch.setattr("sweep_tasks.legacy.run.Thresholds.raise_strategy", lambda self, strategy, ts: ts)


@MISTAKES.planted(ScanHalting, after=11)
def a_commit_above_the_sweep_timestamp_acts(patch: Patch) -> None:
    act = CurrentCell.act

    def lenient(self: CurrentCell, found: Acting) -> None:
        act(self, found._replace(commit=min(found.commit, self._rules.sweep_ts - 1)))

    patch.setattr(CurrentCell, "act", lenient)


@MISTAKES.planted(ScanHalting, after=35)
def a_scan_treats_undecided_transactions_as_aborted(patch: Patch) -> None:
    init = Scanner.__init__

    def careless(self: Scanner, *args: Any) -> None:
        init(self, *args)
        abort = self._commits.abort_unfinished
        patch.setattr(self._commits, "abort_unfinished", lambda starts, dry_run: abort(starts, dry_run=True))

    patch.setattr(Scanner, "__init__", careless)


@MISTAKES.planted(ScanHalting, after=42)
def a_scan_writes_sentinels_after_tombstones(patch: Patch) -> None:
    apply = Actions.apply

    def wrong_order(self: Actions, plan: Plan, tables: Any) -> Any:
        sentinels, plan.sentinels = plan.sentinels, {}
        done = apply(self, plan, tables)
        apply(self, Plan(sentinels=sentinels), tables)
        return done

    patch.setattr(Actions, "apply", wrong_order)


@MISTAKES.planted(ScanHalting, after=6)
def a_scan_writes_no_sentinels(patch: Patch) -> None:
    removal_for = rules.removal_for
    patch.setattr(legacy_rules, "removal_for", lambda *given: (g := removal_for(*given)) and g._replace(sentinel=False))


@MISTAKES.planted(ScanLacking, after=21)
def a_delete_marker_is_removed_with_the_page_it_was_read_on(patch: Patch) -> None:
    emit = CurrentCell.emit

    def hasty(self: CurrentCell) -> None:
        emit(self)
        if self._marker:
            versions = self._page.plan.exact.setdefault(self._rules.table, [])
            versions.append((self.cell, self._marker.entry.start))

    patch.setattr(CurrentCell, "emit", hasty)


@MISTAKES.planted(ScanRacing, after=9)
def only_the_newest_version_of_a_cell_acts_in_a_scan(patch: Patch) -> None:
    holder = rules.holder

    def blind(entry: Any, view: Any, protections: Any) -> Any:
        held_by = holder(entry, view, protections)
        return None if held_by and held_by.mode is Mode.AT else held_by

    patch.setattr(legacy_rules, "holder", blind)


@pytest.mark.parametrize("machine", MACHINES)
def test_concurrent_operations_with_a_scan_change_no_read_and_leave_no_garbage(
    machine: type[Scanning],
) -> None:
    find_nothing(machine, MISTAKES.length_for(machine))


@pytest.mark.parametrize("name", MISTAKES)
def test_the_machine_notices_when(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    mistake = MISTAKES[name]
    mistake.make(monkeypatch)
    with pytest.raises((AssertionError, KeyError, ExceptionGroup)):
        search(mistake.machine)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, mistake in MISTAKES.items() if mistake.machine in WIDER])
def test_a_wider_machine_notices_too_when(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    mistake = MISTAKES[name]
    mistake.make(monkeypatch)
    with pytest.raises((AssertionError, KeyError, ExceptionGroup)):
        search(WIDER[mistake.machine])


@pytest.mark.long
@pytest.mark.parametrize("machine", MACHINES)
def test_without_a_mistake_the_same_searches_find_nothing(machine: type[Scanning]) -> None:
    search(machine)
