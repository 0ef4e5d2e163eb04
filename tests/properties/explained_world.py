"""A small history of one cell in two tables, and how to remove each cause that `explain` may report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import strategies as st

from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.leases import Leases
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.diagnosis.explain import explain_cell, explain_table
from sweep_tasks.model import MAX_TS, SENTINEL_TS, Cell, SweepStrategy, TableMetadata, TableRef, VersionRange
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.encoding import FINE, cells_column, fine, shared_row, write_bytes
from sweep_tasks.queue.ids import TableIds
from sweep_tasks.queue.parking import Parking, Quarantine
from sweep_tasks.queue.progress import Progress
from sweep_tasks.queue.writer import QueueWriter, shard_of
from sweep_tasks.store.contract import Store
from sweep_tasks.store.schema import QUEUE_CELLS
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.judging import Judge
from sweep_tasks.sweep.order import SweepOptions
from sweep_tasks.sweep.rules import Entry
from sweep_tasks.sweep.run import Sweeper, retry_quarantined
from sweep_tasks.sweep.summary import Summary, SweepCounts
from sweep_tasks.sweep.view import SweepView
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.tables.pauses import EVERYTHING, Pauses
from sweep_tasks.transactions.outcomes import ABORTED, CommitTable
from tests.support.clock import ManualClock
from tests.support.replicas import Missing, ReplicatedStore

CONSERVATIVE, THOROUGH = TableRef.parse("app.conservative"), TableRef.parse("app.thorough")
CELL = Cell(b"row", b"column")
SETTINGS = Settings(retention_s=100, grace_s=150, lease_ttl_s=1_000_000)
OWN_RETENTION_S = 250
STRATEGIES = {CONSERVATIVE: SweepStrategy.CONSERVATIVE, THOROUGH: SweepStrategy.THOROUGH}

Step = tuple[Any, ...]
ends = st.sampled_from(["commits", "commits", "commits", "commits later", "aborts", "dies"])
steps = st.one_of(
    st.tuples(st.just("write"), ends, st.booleans(), st.sampled_from([True] * 7 + [False])),
    st.tuples(st.just("write"), ends, st.booleans(), st.just(True)),
    st.tuples(st.just("protect"), st.sampled_from([Mode.AT, Mode.AT, Mode.AFTER]), st.integers(0, 6)),
    st.tuples(st.just("lease")),
    st.tuples(st.just("wait"), st.sampled_from([1, 60, 120])),
    st.tuples(st.just("sweep")),
    st.tuples(st.just("lose replica")),
    st.tuples(st.just("late value")),
)
readable_steps = st.one_of(
    steps,
    st.tuples(st.just("pause"), st.booleans()),
    st.tuples(st.just("more shards"), st.integers(2, 5)),
    st.tuples(st.just("change strategy"), st.sampled_from(SweepStrategy)),
)
wider_steps = st.one_of(readable_steps, st.tuples(st.just("garbled write")))


def histories_of(these: st.SearchStrategy[Step]) -> st.SearchStrategy[tuple[TableRef, int | None, list[Step]]]:
    return st.tuples(
        st.sampled_from(list(STRATEGIES)),
        st.sampled_from([None, OWN_RETENTION_S]),
        st.lists(these, min_size=3, max_size=12),
    )


histories = histories_of(steps)
"""The histories in which mistakes are searched: the more can happen, the longer a search takes."""
wider_histories = histories_of(wider_steps)
readable_histories = histories_of(readable_steps)
"""The table of an entry that can't be read is unknown."""


_protected_writes = st.tuples(
    st.tuples(st.just("write"), ends, st.booleans(), st.just(True)),
    st.tuples(st.just("protect"), st.just(Mode.AT), st.integers(0, 2)),
)
histories_under_records = st.tuples(
    st.sampled_from(list(STRATEGIES)),
    st.none(),
    st.lists(_protected_writes, min_size=2, max_size=5).map(lambda pairs: [step for pair in pairs for step in pair]),
)
"""Writes, most of which are held by a record of their own."""
histories_of_writes = st.tuples(
    st.sampled_from(list(STRATEGIES)),
    st.none(),
    st.lists(
        st.tuples(st.just("write"), st.sampled_from(["commits", "commits later"]), st.booleans(), st.just(True)),
        min_size=2,
        max_size=5,
    ),
)
"""Writes, some of which commit after others that began after them."""


class ExplainedWorld:
    def __init__(
        self, table: TableRef, own_retention_s: int | None, history: list[Step], store: Store | None = None
    ) -> None:
        """On a store in memory, with a replica that may be unavailable, or on a given one."""
        self.table = table
        self.clock = ManualClock(1_000_000_000)
        self.store = store or ReplicatedStore(self.clock)
        self.timestamps = TimestampService(self.store)
        self.leases = Leases(self.store, SETTINGS.lease_ttl_s)
        self._later: Callable[[], None] | None = None
        self._records = 0
        Catalog(self.store).create(table, TableMetadata(STRATEGIES[table], retention_s=own_retention_s))
        self._wait(1)
        for name, *arguments in history:
            getattr(self, f"_{name.replace(' ', '_')}")(*arguments)
            self._wait(1)
        if self._later:
            self._later()
        self._wait(1)
        self._sweep()

    # --- making history -------------------------------------------------------------------------------------------

    def _write(self, end: str, delete: bool, enqueue: bool) -> None:
        """A write that commits later does so after the next one, which began after it."""
        lease = self.timestamps.fresh()
        start = self.timestamps.fresh()
        writes = {self.table: {CELL: b"" if delete else b"value"}}
        if enqueue:
            QueueWriter(self.store).enqueue(start, writes, self.store.tables([self.table]))
        self.store.put(start, writes)
        self._end(lease, start, end)

    def _end(self, lease: int, start: int, end: str) -> None:
        before, self._later = self._later, None
        if end == "commits":
            CommitTable(self.store).decide(start, self.timestamps.fresh())
        elif end == "aborts":
            CommitTable(self.store).decide(start, ABORTED)
        elif end == "commits later":
            held = self.leases.take(lease, "a writer")

            def commit() -> None:
                CommitTable(self.store).decide(start, self.timestamps.fresh())
                self.leases.release([held])

            self._later = commit
        if before:
            before()

    def _protect(self, mode: Mode, back: int) -> None:
        self._records += 1
        ts = max(0, self.timestamps.greatest() - back)
        record = Record(f"r{self._records}", ts, mode, (Target(self.table),))
        ProtectionCatalog(self.store, SETTINGS, self.clock).protect(record)

    def _lease(self) -> None:
        self.leases.take(self.timestamps.fresh(), "a reader")

    def _wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        ClockHistory(self.store).record_now(self.timestamps, self.clock, 900)

    def _sweep(self) -> None:
        options = SweepOptions(grace_s=SETTINGS.grace_s)
        list(Sweeper(self.store, SETTINGS, self.clock).sweep(options=options))

    def _lose_replica(self) -> None:
        if isinstance(self.store, ReplicatedStore):
            self.store.missing = Missing.KNOWN

    def _restore_replicas(self) -> None:
        if isinstance(self.store, ReplicatedStore):
            self.store.come_back(repaired=True)

    def _pause(self, everything: bool) -> None:
        what = None if everything else self.table
        if what not in self._paused():
            Pauses(self.store, self.clock).pause(what, "an operator", "an inspection")

    def _paused(self) -> list[TableRef | None]:
        everything, tables = Pauses(self.store).current()
        return [*([None] if everything else []), *tables]

    def _resume(self, these: Iterable[TableRef | None]) -> None:
        for what in list(these):
            Pauses(self.store).resume(what)

    def _more_shards(self, number: int) -> None:
        progress = Progress(self.store)
        if number > progress.shards():
            progress.raise_shards(number)

    def _garbled_write(self) -> None:
        """It committed, but of its entry only the start can be read."""
        start = self.timestamps.fresh()
        writes = {self.table: {CELL: b"value"}}
        QueueWriter(self.store).enqueue(start, writes, self.store.tables([self.table]))
        if self.strategy is not SweepStrategy.NOTHING:
            shard = shard_of(self.table, CELL, Progress(self.store).shards())
            place = Cell(shared_row(fine(start), self.strategy, shard), cells_column(start % FINE, 0))
            self.store.put(start, {QUEUE_CELLS: {place: b"\x02"}})
        self.store.put(start, writes)
        CommitTable(self.store).decide(start, self.timestamps.fresh())

    def _repair_quarantined(self) -> None:
        quarantine = Quarantine(self.store, self.timestamps)
        readable = write_bytes(TableIds(self.store).id_of(self.table), CELL, False)
        quarantine.add([each._replace(value=readable) for each in quarantine.all()])
        retry_quarantined(self.store, SETTINGS, self.clock)

    def _late_value(self) -> None:
        """A writer that a sweep has aborted stores its value at last."""
        for queue in Progress(self.store).all():
            for parked in Parking(self.store, self.timestamps, *queue).all():
                if parked.commit == ABORTED:
                    self.store.put(parked.start, {self.table: {CELL: b"late"}})
                    return

    def _change_strategy(self, strategy: SweepStrategy) -> None:
        Catalog(self.store).set_strategy(self.table, strategy)

    @property
    def strategy(self) -> SweepStrategy:
        return self.store.tables([self.table])[self.table].strategy

    # --- reading, and removing causes -----------------------------------------------------------------------------

    def explained(self) -> dict[int, dict[str, Any]]:
        found = explain_cell(self.store, SETTINGS, self.clock, self.table, CELL).document()["versions"]
        assert [each["ts"] for each in found] == sorted(self.stored()), "each version has exactly one reason"
        return {each["ts"]: each for each in found}

    def counted_by_the_table(self) -> Counter[tuple[str, Any]]:
        """Versions, by reason and by what holds them."""
        blocks = explain_table(self.store, SETTINGS, self.clock, self.table).document()["blocks"]
        return Counter({(each["reason"], each["by"]): each["versions"] for each in blocks if each["versions"]})

    def stored(self) -> list[int]:
        return self.store.timestamps(self.table, [CELL]).get(CELL, [])

    def records(self) -> list[str]:
        return [record.id for record in ProtectionCatalog(self.store).records()]

    def sweep_without(self, found: dict[str, Any]) -> None:
        """Remove the reported cause, and sweep."""
        reason, by, until = found["reason"], found["by"], found["until"]
        if reason == "open_transaction":
            self.leases.release([lease for lease in self.leases.open() if f"{lease.owner} since {lease.ts}" == by])
        elif reason in ("retention", "parked_grace"):
            self._sweep_just_before(found)
            self._reach(until)
        elif reason == "protected":
            ProtectionCatalog(self.store).release(by)
        elif reason == "blocked":
            assert CommitTable(self.store).outcomes([by]), "what blocks has committed"
            self.leases.release(self.leases.open())
            self._reach(self.clock.now_ms() + SETTINGS.retention_s * 1000)
        elif reason == "parked_replicas":
            assert isinstance(self.store, ReplicatedStore)
            assert self.store.missing, "all replicas are available"
            self._restore_replicas()
        elif reason == "paused":
            self._resume([None if by == EVERYTHING else TableRef.parse(str(by))])
        elif reason == "quarantined":
            self._resume([each for each in self._paused() if each is None])  # otherwise a retry is refused
            self._repair_quarantined()
        elif reason == "no_queue_entry":
            self._sweep_with_nothing_in_the_way()
            assert found["ts"] in self.stored(), "an entry of the queue removed it after all"
            self._sweep_manually()
        else:
            assert reason == "queued", reason
            self._get_to(found["where"]["goes_at"], found["ts"])
        self._sweep()

    def _get_to(self, end: int | None, ts: int) -> None:
        """The end of a partition: sweeps clean it when nothing before that is needed."""
        if end is not None:
            self.leases.release(self.leases.open())
            self.timestamps.move_past(end)
            self._reach(None)
            self._sweep()
            assert ts not in self.stored(), "its removal there was reported"

    def _reach(self, moment_ms: int | None) -> None:
        """A time that is not known yet becomes known with the next clock sample, and one retention later."""
        if moment_ms is None:
            self._wait(1)
            moment_ms = self.clock.now_ms() + OWN_RETENTION_S * 1000
        self.clock.advance(max(0, moment_ms - self.clock.now_ms()) / 1000)

    def _sweep_just_before(self, found: dict[str, Any]) -> None:
        if found["until"] is not None and found["until"] - 1 > self.clock.now_ms():
            self.clock.advance((found["until"] - 1 - self.clock.now_ms()) / 1000)
            self._sweep()
            assert found["ts"] in self.stored(), "it was removed too early"

    def _sweep_with_nothing_in_the_way(self) -> None:
        self.leases.release(self.leases.open())
        for record in self.records():
            ProtectionCatalog(self.store).release(record)
        self._restore_replicas()
        self._resume(self._paused())
        self._reach(None)
        self._sweep()

    def _sweep_manually(self) -> None:
        """Do what a scan of the table would do if there is no entry: judge every write of the cell, and remove a
        sentinel from a thorough table. A table with the strategy nothing has to get another one first."""
        store: Store = self.store
        if self.strategy is SweepStrategy.NOTHING:
            self._change_strategy(SweepStrategy.CONSERVATIVE)
        if self.strategy is SweepStrategy.THOROUGH:
            store.delete_ranges(self.table, [VersionRange(CELL, SENTINEL_TS, SENTINEL_TS + 1)])
        view = SweepView.publish(store, Horizon(MAX_TS, self.clock.now_ms()), dry_run=True)
        outcomes = CommitTable(store).abort([ts for ts in self.stored() if ts >= 0])
        table_id = TableIds(store).id_of(self.table)
        values = {ts: store.get(self.table, {CELL: ts + 1})[CELL].value for ts in outcomes}
        entries = [Entry(self.table, table_id, CELL, ts, commit, not values[ts]) for ts, commit in outcomes.items()]
        parking = Parking(store, self.timestamps, self.strategy, 0)
        summary = Summary(self.strategy, 0, MAX_TS)
        judge = Judge(store, self.strategy, view, parking, self.clock, SETTINGS.grace_s, summary, SweepCounts())
        judge.judge(entries, ProtectionCatalog(store).protections())
