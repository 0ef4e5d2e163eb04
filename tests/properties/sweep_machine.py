"""Everything that can happen to a store at once: writers, sweepers, protectors, administrators, and failures.

All of them are simulated processes that run one store call at a time. Any of them may stop anywhere for any time (a
zombie), crash before or after any call, or lose an answer. After every step the store is compared with the plain model:
every reader at or above a table's threshold, and every protected reader, must see what an unswept store would show,
also if an unavailable replica brings back what it still holds. At the end, with all replicas available, everything
released, time passed and everything swept, nothing may be left over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from sweep_tasks.config import Settings
from sweep_tasks.coordination import leases as product
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.leases import Leases
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import SnapshotSwept, SweepflowError
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.run import LegacySweep
from sweep_tasks.model import (
    SENTINEL_TS,
    Cell,
    ConflictHandling,
    ScanReason,
    Span,
    SweepStrategy,
    TableMetadata,
    TableRef,
)
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, State, Target
from sweep_tasks.queue.encoding import FINE, read_cells_column, read_cells_row
from sweep_tasks.queue.progress import QUEUES, Progress
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store import Store
from sweep_tasks.store.faults import ProcessCrashed
from sweep_tasks.store.schema import PARKED, QUEUE_CELLS, QUEUE_TIMESTAMPS
from sweep_tasks.sweep.order import SweepOptions
from sweep_tasks.sweep.run import Sweeper
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.tables.pauses import Pauses
from sweep_tasks.transactions import TransactionManager
from sweep_tasks.transactions.outcomes import CommitTable
from tests.interleavings.search import Fork
from tests.properties.model import Journal, Place, seen_in
from tests.properties.searching import Searched
from tests.support.clock import ManualClock
from tests.support.replicas import Missing, ReplicatedStore
from tests.support.simulation import Process, SharedClock

CONSERVATIVE = TableRef.parse("app.conservative")
THOROUGH = TableRef.parse("app.thorough")
TABLES = {CONSERVATIVE: SweepStrategy.CONSERVATIVE, THOROUGH: SweepStrategy.THOROUGH}
CELLS = [Cell(b"a", b"c"), Cell(b"b", b"c")]
SETTINGS = Settings(retention_s=0, grace_s=1_000, lease_ttl_s=30, writer_wait_s=60, legacy_versions_per_s=0)
MOST_AT_ONCE = 4

tables = st.sampled_from(list(TABLES))
cells = st.sampled_from([CELLS[0], CELLS[0], CELLS[1]])
writes = st.lists(st.tuples(tables, cells, st.booleans()), min_size=1, max_size=2)
whose = st.integers(0, MOST_AT_ONCE - 1)
spans = st.sampled_from([Span(), Span(b"a", b"b"), Span(b"b")])


def up_to(*calls: str) -> st.SearchStrategy[str | None]:
    """The calls before which a process may stop, `put#2` for the second of its kind; None runs to the end."""
    return st.sampled_from([None, None, *calls])


writing = up_to("tables", "put", "put#2", "put#3", "update#3", "put_if_absent#2", "remove")
reading = up_to("get", "tables", "read_rows")
sweeping = up_to(
    "update", "scan", "read_rows#3", "add_sentinels", "delete_ranges", "delete_everywhere", "delete_everywhere#2",
    "delete_rows",
)  # fmt: skip
protecting = up_to("tables#2", "compare_and_set", "compare_and_set#2")
administrating = up_to(
    "update", "compare_and_set", "delete_versions", "read_rows", "alter_table", "alter_table#2", "remove_table",
    "create_table",
)  # fmt: skip
anything = st.none() | up_to("update", "put", "read_rows", "delete_ranges", "delete_rows", "tables", "put_if_absent")


class SweptStore(Searched):
    steps = 50
    conflicts = ConflictHandling.NONE

    def __init__(self) -> None:
        super().__init__()
        self.clock = SharedClock()
        self.shared = ReplicatedStore(self.clock)
        for table, strategy in TABLES.items():
            self.shared.create_table(table, TableMetadata(strategy, self.conflicts))
        self.journal = Journal()
        self.running: list[Process[object]] = []
        self.reads: list[tuple[Place, int, bytes]] = []
        self.leases: dict[int, int] = {}
        self.records = 0
        self.values = 0
        self.highest: dict[object, int] = {}
        self.changed_strategy: set[TableRef] = set()

    # --- writers ------------------------------------------------------------------------------------------------

    def _transact(
        self, store: Store, what: list[tuple[TableRef, Cell, bool]], reads: bool = False, queued: bool = True
    ) -> None:
        queue = QueueWriter(store) if queued else None
        manager = TransactionManager(store, SETTINGS, queue=queue, enqueue=queued, clock=self.clock, renew_leases=False)
        tx = manager.transaction()
        assert tx.lease
        self.leases[tx.lease.ts] = tx.start
        if reads:
            for table, cell, _ in what:
                value = tx.get(table, *cell) or b""
                self.reads.append(((str(table), *cell), tx.start, value))
        journal = self.journal.writes.setdefault(tx.start, {})
        for table, cell, delete in what:
            self.values += 1
            value = b"" if delete else b"v%d" % self.values
            journal[str(table), cell.row, cell.column] = value
            if delete:
                tx.delete(table, *cell)
            else:
                tx.put(table, *cell, value)
        tx.commit()

    @rule(what=writes, reads=st.booleans(), brink=writing)
    def write(self, what: list[tuple[TableRef, Cell, bool]], reads: bool, brink: str | None) -> None:
        self._start(lambda store: self._transact(store, what, reads), brink)

    protects = True

    @rule(table=tables, cell=cells, mode=st.sampled_from([None, *Mode]), delete=st.booleans())
    def history(self, table: TableRef, cell: Cell, mode: Mode | None, delete: bool) -> None:
        """A version, perhaps protected, and another one above it: what most of the rules are about."""
        self._start(lambda store: self._transact(store, [(table, cell, False)]), None)
        if mode and self.protects:
            self._start(lambda store: self._protect(store, 0, mode, table, Span()), None)
        self._start(lambda store: self._transact(store, [(table, cell, delete)]), None)

    # --- readers ------------------------------------------------------------------------------------------------

    def _read_at_a_record(self, table: TableRef, cell: Cell, which: int) -> None:
        """In any state."""
        records = sorted(ProtectionCatalog(self.shared, SETTINGS, self.clock).records(), key=lambda record: record.id)
        if records:
            at = records[which % len(records)].ts
            self._start(lambda store: self._read_at(store, table, cell, at), None)

    def _read_at(self, store: Store, table: TableRef, cell: Cell, at: int) -> None:
        manager = TransactionManager(store, SETTINGS, clock=self.clock, renew_leases=False)
        value = manager.read_at(at).get(table, *cell) or b""
        self.reads.append(((str(table), *cell), at, value))

    @rule(table=tables, cell=cells, back=st.integers(0, 12), brink=reading)
    def read(self, table: TableRef, cell: Cell, back: int, brink: str | None) -> None:
        at = max(TimestampService(self.shared).greatest() - back, 0)
        self._start(lambda store: self._read_at(store, table, cell, at), brink)

    # --- sweepers -----------------------------------------------------------------------------------------------

    def _sweep(self, store: Store, strategies: Collection[SweepStrategy], batch: int, back: int = 0) -> None:
        """`back` lowers the sweep timestamp, so that it falls between what started and what committed."""
        stop_at = max(TimestampService(store).greatest() + 1 - back, 0) if back else None
        options = SweepOptions(batch=batch, grace_s=SETTINGS.grace_s)
        for _ in Sweeper(store, SETTINGS, self.clock).sweep(strategies, stop_at=stop_at, options=options):
            pass

    @rule(
        strategies=st.sampled_from([QUEUES[:1], QUEUES[1:], QUEUES]),
        batch=st.sampled_from([1, 2, 1_000]),
        back=st.sampled_from([0, 0, 1, 2, 3, 6]),
        brink=sweeping,
    )
    def sweep(self, strategies: Collection[SweepStrategy], batch: int, back: int, brink: str | None) -> None:
        self._start(lambda store: self._sweep(store, strategies, batch, back), brink)

    def _check_the_immutable_timestamp(self, store: Store) -> None:
        """No transaction that is open when it is known may have started below it."""
        leases = Leases(store, SETTINGS.lease_ttl_s)
        immutable = product.immutable_timestamp(TimestampService(store), leases)
        for lease in Leases(self.shared, SETTINGS.lease_ttl_s).open():
            start = self.leases.get(lease.ts)
            assert start is None or immutable <= start, f"{immutable} is not immutable: {start} is open"

    @rule(brink=up_to("update", "read_rows"))
    def check_the_immutable_timestamp(self, brink: str | None) -> None:
        self._start(self._check_the_immutable_timestamp, brink)

    # --- protections ----------------------------------------------------------------------------------------------

    def _protect(self, store: Store, back: int, mode: Mode, table: TableRef, rows: Span) -> None:
        self.records += 1
        ts = max(TimestampService(store).fresh() - back, 0)
        ProtectionCatalog(store, SETTINGS, self.clock).protect(
            Record(f"r{self.records}", ts, mode, (Target(table, rows),))
        )

    @rule(back=st.integers(0, 8), mode=st.sampled_from(Mode), table=tables, rows=spans, brink=protecting)
    def protect(self, back: int, mode: Mode, table: TableRef, rows: Span, brink: str | None) -> None:
        self._start(lambda store: self._protect(store, back, mode, table, rows), brink)

    def _a_record(self, number: int) -> str | None:
        ids = sorted(record.id for record in ProtectionCatalog(self.shared, SETTINGS, self.clock).records())
        return ids[number % len(ids)] if ids else None

    @rule(which=st.integers(0, 3), forward=st.sampled_from([None, None, 0, 2]), brink=protecting)
    def release_or_move(self, which: int, forward: int | None, brink: str | None) -> None:
        record = self._a_record(which)
        if record is None:
            return
        ts = max(TimestampService(self.shared).greatest() - (forward or 0), 0)
        if forward is None:
            self._start(lambda store: ProtectionCatalog(store, SETTINGS, self.clock).release(record), brink)
        else:
            self._start(lambda store: ProtectionCatalog(store, SETTINGS, self.clock).move(record, ts), brink)

    # --- administrators -------------------------------------------------------------------------------------------

    @rule(
        what=st.sampled_from(["shards", "retention", "strategy", "truncate", "truncate", "drop and create"]),
        table=tables,
        retention_s=st.sampled_from([None, 5, 50]),
        brink=administrating,
    )
    def administrate(self, what: str, table: TableRef, retention_s: int | None, brink: str | None) -> None:
        metadata = self.shared.catalog_rows()[table]
        if metadata.is_gone:
            self._start(lambda store: self._create(store, table), brink)
        elif what == "shards":
            self._start(lambda store: Progress(store).raise_shards(3), brink)
        elif what == "retention":
            self._start(lambda store: self._catalog(store).change(table, metadata.strategy, retention_s), brink)
        elif what == "strategy":
            other = next(each for each in QUEUES if each is not metadata.strategy)
            self.changed_strategy.add(table)
            self._start(lambda store: self._catalog(store).change(table, other, metadata.retention_s), brink)
        elif what == "truncate":
            self._start(lambda store: self._catalog(store).truncate(table), brink)
        else:
            self._start(lambda store: self._drop_and_create(store, table), brink)

    @rule(table=st.sampled_from([None, *TABLES]), brink=up_to("put_if_absent", "compare_and_set"))
    def pause_or_resume(self, table: TableRef | None, brink: str | None) -> None:
        existing = Pauses(self.shared).current()
        paused = existing.everything if table is None else existing.tables.get(table)
        if paused:
            self._start(lambda store: Pauses(store, self.clock).resume(table), brink)
        else:
            self._start(lambda store: Pauses(store, self.clock).pause(table, "an operator", "for a reason"), brink)

    def _catalog(self, store: Store) -> Catalog:
        return Catalog(store, self.clock, SETTINGS.emptying_wait_s)

    def _create(self, store: Store, table: TableRef) -> None:
        self._catalog(store).create(table, TableMetadata(TABLES[table], self.conflicts))

    def _drop_and_create(self, store: Store, table: TableRef) -> None:
        self._catalog(store).drop(table)
        self._create(store, table)

    # --- time and failures ----------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 10, 35]), next_partition=st.booleans())
    def advance_time(self, seconds: int, next_partition: bool) -> None:
        self.clock.advance(seconds)
        service = TimestampService(self.shared)
        if next_partition:
            self._reach_the_next_partition()
        ClockHistory(self.shared).record_now(service, self.clock, 900)

    def _reach_the_next_partition(self) -> None:
        service = TimestampService(self.shared)
        service.move_past((service.greatest() // FINE + 1) * FINE - 2)

    @precondition(lambda self: self.running)
    @rule(who=whose, brink=anything)
    def go_on(self, who: int, brink: str | None) -> None:
        self._up_to(self.running[who % len(self.running)], brink)
        self._sort_out()

    @precondition(lambda self: self.running)
    @rule(who=whose, steps=st.integers(1, 4))
    def step(self, who: int, steps: int) -> None:
        for _ in range(steps):
            self.running[who % len(self.running)].step()
        self._sort_out()

    @precondition(lambda self: self.running)
    @rule(who=whose, what=st.sampled_from(["before", "after", "unanswered"]))
    def fault(self, who: int, what: str) -> None:
        process = self.running[who % len(self.running)]
        if what == "unanswered":
            process.lose_next_answer()
        elif process.next_call:
            (process.crash_here if what == "before" else process.crash_after_call)()
        self._sort_out()

    @rule(missing=st.sampled_from([None, *Missing]), repaired=st.booleans())
    def toggle_replica(self, missing: Missing | None, repaired: bool) -> None:
        if missing is None:
            self.shared.come_back(repaired)
        else:
            self.shared.missing = missing

    # --- how they run -----------------------------------------------------------------------------------------------

    def _process(self, work: Callable[[Store], Any]) -> Process[object]:
        process: Process[object] = Process(self.shared, work)
        self.clock.advance(0.001)
        self.clock.processes.append(process)
        self.running.append(process)
        return process

    def _start(self, work: Callable[[Store], Any], brink: str | None) -> None:
        """Run up to a call while all others stop; without one, or if too many have stopped already, to the end."""
        crowded = len(self.running) >= MOST_AT_ONCE
        self._up_to(self._process(work), None if crowded else brink)
        self._sort_out()

    @staticmethod
    def _up_to(process: Process[object], brink: str | None) -> None:
        call, _, nth = (brink or "").partition("#")
        left = int(nth or 1)
        while process.step():
            left -= process.next_call == call
            if not left:
                return

    def _sort_out(self) -> None:
        for process in self.running:
            if process.ended and process.error:
                assert isinstance(process.error, SweepflowError | ProcessCrashed), repr(process.error)
        self.running = [process for process in self.running if not process.ended]

    # --- what must hold after every step ----------------------------------------------------------------------------

    def _stored(self) -> dict[Place, dict[int, bytes]]:
        return {
            (str(table), row, column): dict(versions)
            for table in TABLES
            for row, columns in self.shared.contents[table].rows.items()
            if not self.shared.contents[table].metadata.is_gone
            for column, versions in columns.items()
        }

    def _what_readers_may_find(self) -> dict[Place, list[dict[int, bytes]]]:
        """What is stored, and what it becomes with anything that an unavailable replica may bring back."""
        found = {place: [versions] for place, versions in self._stored().items()}
        for table, cell, versions in self.shared.brought_back():
            found.setdefault((str(table), *cell), [{}]).append(versions)
        return found

    def _commits(self) -> dict[int, int]:
        return CommitTable(self.shared).outcomes(list(self.journal.writes))

    @invariant()
    def every_permitted_read_equals_that_of_an_unswept_store(self) -> None:
        commits = self._commits()
        found = self._what_readers_may_find()
        latest = TimestampService(self.shared).greatest() + 1
        records = [
            r for r in ProtectionCatalog(self.shared, SETTINGS, self.clock).records() if r.state is State.ACCEPTED
        ]
        for table, threshold in Thresholds(self.shared).of_tables(self.shared.tables(TABLES.keys()).keys()).items():
            mark = self.journal.emptied[str(table)] = threshold.mark
            for cell in CELLS:
                place = (str(table), *cell)
                least = threshold.for_readers
                written = self.journal.of(place)
                stored = [_existing(versions, mark) for versions in found.get(place, [{}])]
                hidden = [each for each in found.get(place, []) if any(SENTINEL_TS < ts < mark for ts in each)]
                # Between these, readers see nothing else.
                starts = {*written, *(ts for versions in stored for ts in versions)}
                moments = {latest, *(commits[start] + 1 for start in starts if commits.get(start, -1) > -1)}
                why = dict.fromkeys((t for t in moments if t >= least), f"threshold {least}") | {least: "the threshold"}
                for record in records:
                    if any(t.table == table and cell.row in t.rows for t in record.targets) and record.ts >= mark:
                        kept = [t for t in moments if t >= record.ts] if record.mode is Mode.AFTER else []
                        why |= dict.fromkeys([record.ts, *kept], f"protected by {record.id} at {record.ts}")
                for t, reason in why.items():
                    expected = seen_in(written, t, commits)
                    for versions in stored:
                        got = seen_in(versions, t, commits)
                        assert got == expected, f"a reader of {place} at {t} sees {got!r}, not {expected!r} ({reason})"
                    for versions in hidden if t < latest else []:
                        answer = self._ask_real_reader(table, cell, t, versions)
                        assert answer in (None, expected), f"{place} at {t}: {answer!r}, not {expected!r} ({reason})"

    def _ask_real_reader(self, table: TableRef, cell: Cell, at: int, versions: dict[int, bytes]) -> bytes | None:
        """Return the answer if the cell has these versions, None if the snapshot is refused. It changes only a copy."""
        own = Fork(self.shared)
        own.set_versions(table, cell, versions)
        clock = own.clock = ManualClock(self.clock.now_ms())
        manager = TransactionManager(own, SETTINGS, clock=clock, renew_leases=False)
        try:
            return manager.read_at(at).get(table, *cell) or b""
        except SnapshotSwept:
            return None

    @invariant()
    def nothing_moves_down(self) -> None:
        now: dict[object, int] = dict(Progress(self.shared).all())
        for table, threshold in Thresholds(self.shared).of_tables(self.shared.tables(TABLES.keys()).keys()).items():
            now[table, "mark"] = threshold.mark
            now[table, "incarnation"] = threshold.metadata.incarnation
            now |= {(table, strategy): ts for strategy, ts in threshold.by_strategy.items()}
        for what, value in now.items():
            assert value >= self.highest.get(what, -1), f"{what} moved down to {value}"
        self.highest |= now

    @invariant()
    def no_sweep_passes_a_transaction_that_holds_its_lease(self) -> None:
        thresholds = [Thresholds(self.shared).of_strategy(strategy) for strategy in QUEUES]
        for lease in Leases(self.shared, SETTINGS.lease_ttl_s).open():
            start = self.leases.get(lease.ts)
            assert start is None or max(thresholds) <= start, f"{thresholds} passed {start}, which is open"

    @invariant()
    def no_committed_entry_is_left_below_the_progress_of_a_finished_partition(self) -> None:
        commits = self._commits()
        progress = Progress(self.shared).all()
        for row, columns in self.shared.contents[QUEUE_CELLS].rows.items():
            partition, metadata = read_cells_row(row)
            if metadata.dedicated or (partition + 1) * FINE - 1 > progress[metadata.strategy, metadata.shard]:
                continue
            for column in columns:
                start = partition * FINE + read_cells_column(column)[0]
                assert commits.get(start, -1) == -1, f"progress passed the entry of {start}, which is still queued"

    # --- and in the end ---------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        while self.running:
            for process in list(self.running):
                process.step()
            self._sort_out()
        self.every_permitted_read_equals_that_of_an_unswept_store()
        self._check_reads()
        self._release_and_sweep_everything()
        self._check_nothing_is_left_over()

    def _check_reads(self) -> None:
        commits = self._commits()
        for place, at, value in self.reads:
            marks = self.shared.marks[TableRef.parse(place[0])]
            self.journal.emptied[place[0]] = max(mark for mark in marks if mark <= at)
            expected = self.journal.seen(place, at, commits)
            assert value == expected, f"a reader of {place} at {at} got {value!r}, should be {expected!r}"

    def _release_and_sweep_everything(self) -> None:
        self.shared.come_back(repaired=False)
        catalog = ProtectionCatalog(self.shared, SETTINGS, self.clock)
        for record in catalog.records():
            catalog.release(record.id)
        paused = Pauses(self.shared).current()
        for table in [*([None] if paused.everything else []), *paused.tables]:
            Pauses(self.shared).resume(table)
        for _ in range(2):
            self.clock.advance(60)
            self.sweep_all()
        self._reach_the_next_partition()
        self._reach_the_next_partition()
        for _ in range(2):
            self.clock.advance(2 * SETTINGS.grace_s)
            self.sweep_all()
        for table, metadata in self.shared.tables(TABLES.keys()).items():
            if metadata.scan_due and metadata.scan_due.why is ScanReason.TRUNCATED:
                order = LegacyOrder(table)
                scan = LegacySweep(self.shared, SETTINGS, self.clock)
                scan.work(scan.start(order, take_over=True), order)

    def sweep_all(self) -> None:
        ClockHistory(self.shared).record_now(TimestampService(self.shared), self.clock, 900)
        self.clock.advance(55)
        for strategy in QUEUES:
            self._sweep(self.shared, [strategy], 1_000)

    def _check_nothing_is_left_over(self) -> None:
        self.every_permitted_read_equals_that_of_an_unswept_store()
        commits = self._commits()
        stored = self._stored()
        for queue in (QUEUE_CELLS, QUEUE_TIMESTAMPS, PARKED):
            assert self.shared.contents[queue].rows == {}, f"{queue} is not empty"
        for place, versions in stored.items():
            table = TableRef.parse(place[0])
            self.journal.emptied[place[0]] = self.shared.tables()[table].mark
            newest = self.journal.newest(place, 2**62, commits)
            allowed = {newest} if newest is not None else set()
            thorough = self.shared.tables()[table].strategy is SweepStrategy.THOROUGH
            if table in self.changed_strategy:
                allowed |= {-1}
            elif thorough:
                allowed = {ts for ts in allowed if self.journal.writes[ts or 0][place]}
            else:
                allowed |= {-1}
            assert set(versions) <= allowed, f"{place} still has {sorted(versions)}, only {allowed} may stay"

    @initialize()
    def start_the_clock(self) -> None:
        ClockHistory(self.shared).record_now(TimestampService(self.shared), self.clock, 900)


def _existing(versions: dict[int, bytes], mark: int) -> dict[int, bytes]:
    """A version that started below the mark does not exist for readers, even if it is stored."""
    return {ts: value for ts, value in versions.items() if ts >= mark or ts == SENTINEL_TS}
