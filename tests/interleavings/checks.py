"""Invariants of every state, even if any of the processes stops there forever.

The reference is the plain model of `tests/properties/model.py`: a store that was never swept. Most checks depend only
on what the store holds, and run once for each content.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import SnapshotSwept
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.run import LegacySweep
from sweep_tasks.model import SENTINEL_TS, Cell, SweepStrategy
from sweep_tasks.protection.catalog import ProtectionVerdict
from sweep_tasks.protection.records import Mode, Record, State
from sweep_tasks.queue.encoding import FINE
from sweep_tasks.queue.progress import QUEUES, Progress
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.store.schema import PARKED, PROTECTIONS, QUEUE_CELLS, QUEUE_TIMESTAMPS, THRESHOLDS, TRANSACTIONS
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.order import SweepOptions
from sweep_tasks.sweep.steps import ShardSweep
from sweep_tasks.transactions.outcomes import CommitTable
from tests.interleavings import search
from tests.interleavings.processes import Position
from tests.interleavings.search import Contents, Fork, all_of
from tests.interleavings.world import GREATEST, NOW_MS, SETTINGS, TABLE, A, B, S, World, protections, seen_by_reader
from tests.properties.model import Place, seen_in
from tests.support.clock import ManualClock

MOMENTS = {S, GREATEST, 11, 12, 13, 15, 22, 23, 25, 32, 33, 35}
"""Timestamps right before and where a reader's answer changes, and those that the scenarios protect."""
READ_BY_READERS = (TABLE, THRESHOLDS, PROTECTIONS, TRANSACTIONS)
_APART_MS = 10 * SETTINGS.grace_s * 1_000
"""Aborted writes are removed once more when the grace period is over."""
_LATER_MS = NOW_MS + 2 * _APART_MS
_ROUNDS = 2
"""Settling and sweeping are repeated: not everything has to be done at once."""


class Checks:
    def __init__(self, world: World, forced: bool = False) -> None:
        """A process may empty the table despite protections."""
        self._world = world
        self._forced = forced
        self._read: set[Hashable] = set()
        self._checked: set[Contents] = set()
        self._before = protections(world.store).records()
        self._marks: dict[Contents, dict[str, int]] = {}
        self._records: dict[Contents, list[Record]] = {}

    # --- what a search asks -----------------------------------------------------------------------------------------

    def at_rest(self, state: search.State) -> None:
        contents, positions = state
        if contents not in self._checked:
            self._checked.add(contents)
            self._check_readers(contents.store)
            self._check_counts(contents.store)
            self._check_nothing_would_be_left_over(contents.store)
        for promised in _promises(positions):
            found = [record for record in self._records_in(contents) if record.id == promised.id]
            assert [(each.ts, each.state) for each in found] == [(promised.ts, State.ACCEPTED)], (
                f"{promised.id} was reported as accepted at {promised.ts}, but {found} is stored"
            )

    def step(self, before: Contents, after: Contents) -> None:
        now = self._risen_to(after)
        for what, value in self._risen_to(before).items():
            assert now[what] >= value, f"{what} fell from {value} to {now[what]}"

    def at_the_end(self, state: search.State) -> None:
        """A process that got no answer, because it was lost, leaves work that others settle."""
        if not any(each.lost_answers and (each.error or each.actor.commits) for each in state.positions):
            self._check_every_record_is_explained(state)
        for position in state.positions:
            if not (position.lost_answers and position.error):
                self._check_reported(position, state.contents.store)

    # --- results of reads --------------------------------------------------------------------------------------------

    def _check_every_record_is_explained(self, state: search.State) -> None:
        """Every stored record existed before, or its process was informed of it, or another process completed it and
        the first one was asked to check again."""
        settled = any(each.actor.settles for each in state.positions)
        reported = [each.actor.holds for each in state.positions if _is_accepted(each) or (settled and each.error)]
        explained = {(each.id, each.ts) for each in [*reported, *self._before] if each}
        for each in self._records_in(state.contents):
            assert (each.id, each.ts) in explained, f"{each} is left behind, and no process was informed of it"
            assert each.state is State.ACCEPTED, f"{each} is left behind, and all have ended"
            assert each.held_ts is None, f"{each} is left behind half moved, and all have ended"

    def _check_reported(self, position: Position, store: MemoryStore) -> None:
        """Return the answer that the caller of this process got."""
        at = position.actor.reads_at
        if at is not None and not position.error:
            commits = self._world.commits_in(store)
            expected = {cell: value for cell in (A, B) if (value := self._unswept(cell, at, 0, commits))}
            assert position.result == expected, f"a reader at {at} got {position.result}, not {expected}"
        if position.actor.writes is not None:
            reported = {position.result} if position.error is None else set()
            stands = {commit for commit in CommitTable(store).outcomes(self._world.starts).items() if commit[1] >= 0}
            assert reported == stands, f"{position.actor.name} got {reported}, but {stands} is stored"
        if position.actor.commits:
            starts = range(GREATEST, TimestampService(store).greatest() + 1)
            committed = [commit for commit in CommitTable(store).outcomes(starts).values() if commit >= 0]
            assert bool(committed) == _is_accepted(position), f"{position.actor.name}: {position.error}; {committed}"

    def _check_readers(self, store: Fork) -> None:
        """A plain reader, which trusts the threshold and the records, and the real one, which checks itself. Once for
        all stores that are equal to them."""
        same_to_them = all_of(store, READ_BY_READERS)
        if same_to_them in self._read:
            return
        self._read.add(same_to_them)
        commits = self._world.commits_in(store)
        threshold = Thresholds(store).of_tables([TABLE])[TABLE]
        accepted = [each for each in protections(store).records() if each.state is State.ACCEPTED]
        for t in MOMENTS | {threshold.for_readers, *(each.ts for each in accepted)}:
            reported = self._ask_real_reader(store, t)
            for cell in (A, B):
                expected = self._unswept(cell, t, threshold.mark, commits)
                given_up = self._forced and t < threshold.mark
                kept = not given_up and any(_keeps(each, cell, t) for each in accepted)
                if t >= threshold.for_readers or kept:
                    stored = store.contents[TABLE].versions(cell).items()
                    existing = {ts: value for ts, value in stored if ts == SENTINEL_TS or ts >= threshold.mark}
                    got = seen_in(existing, t, commits)
                    why = f"threshold {threshold.for_readers}, accepted {[(each.id, each.ts) for each in accepted]}"
                    assert got == expected, f"a reader of {cell.row!r} at {t} sees {got!r}, not {expected!r}; {why}"
                    assert reported[cell] is not None, f"a reader of {cell.row!r} at {t} is turned away; {why}"
                assert reported[cell] in (None, expected), (
                    f"{cell.row!r} at {t}: read {reported[cell]!r}, not {expected!r}"
                )

    def _unswept(self, cell: Cell, t: int, mark: int, commits: dict[int, int]) -> bytes:
        """A reader below the mark of a truncation that is allowed to read sees what was there before it."""
        self._world.journal.emptied = {str(TABLE): mark} if t >= mark else {}
        return self._world.journal.seen(_place(cell), t, commits)

    @staticmethod
    def _ask_real_reader(store: MemoryStore, t: int) -> dict[Cell, bytes | None]:
        """Return None if the reader fails because its snapshot was swept. It withdraws announcements only in its own
        fork of the store. All leases have expired by then, so it waits for no process."""
        reported: dict[Cell, bytes | None] = {}
        for cell in (A, B):
            try:
                own = Fork(store)
                own.clock = ManualClock(_LATER_MS)
                reported[cell] = seen_by_reader(own, t, [cell]).get(cell, b"")
            except SnapshotSwept:
                reported[cell] = None
        return reported

    @staticmethod
    def _check_counts(store: MemoryStore) -> None:
        meta, records = protections(store).state()
        spans = sum(len(each.targets) for each in records)
        assert (meta.records, meta.spans) == (len(records), spans), f"{meta} does not count {records}"

    def _records_in(self, contents: Contents) -> list[Record]:
        found = self._records.get(contents)
        if found is None:
            found = self._records[contents] = protections(contents.store).records()
        return found

    def _risen_to(self, contents: Contents) -> dict[str, int]:
        """Everything that never falls."""
        found = self._marks.get(contents)
        if found is None:
            store = contents.store
            threshold = Thresholds(store).of_tables([TABLE])[TABLE]
            found = self._marks[contents] = {
                **{f"progress of {each}": ts for each, ts in Progress(store).all().items()},
                **{f"{each} threshold": Thresholds(store).of_strategy(each) for each in QUEUES},
                "own threshold": threshold.own,
                "mark": threshold.mark,
                "timestamp": TimestampService(store).greatest(),
                "records version": protections(store).metadata().version,
            }
        return found

    # --- and in the end ---------------------------------------------------------------------------------------------

    def _check_nothing_would_be_left_over(self, store: Fork) -> None:
        """Stop all running processes. What they left is resolved, then released, and swept."""
        left = Fork(store)
        catalog = protections(left)
        for _ in range(_ROUNDS):
            for each in catalog.records():
                catalog.resolve(each, CommitTable(left).abort)
        for each in catalog.records():
            assert each.state is State.ACCEPTED, f"{each} was settled"
            assert each.held_ts is None, f"{each} was settled"
        self._check_readers(left)
        for each in catalog.records():
            catalog.release(each.id)
        self._check_counts(left)
        for number in range(_ROUNDS):
            _sweep_all(left, _LATER_MS + number * _APART_MS)
        if left.tables([TABLE])[TABLE].scan_due:
            _scan(left)
        for queue in (QUEUE_CELLS, QUEUE_TIMESTAMPS, PARKED):
            assert not left.contents[queue].rows, f"{queue} is not empty after all was released and swept"
        threshold = Thresholds(left).of_tables([TABLE])[TABLE]
        strategies = threshold.metadata.strategies
        for cell in (A, B):
            self._check_one_version_is_left(left, cell, threshold.mark, strategies)

    def _check_one_version_is_left(
        self, store: MemoryStore, cell: Cell, mark: int, strategies: frozenset[SweepStrategy]
    ) -> None:
        self._world.journal.emptied = {str(TABLE): mark}
        newest = self._world.journal.newest(_place(cell), 2**62, self._world.commits_in(store))
        value = b"" if newest is None else self._world.journal.writes[newest][_place(cell)]
        wanted = {newest} if value else set()
        allowed = wanted | ({-1, newest} if SweepStrategy.CONSERVATIVE in strategies else set())
        found = set(store.contents[TABLE].versions(cell))
        assert wanted <= found <= allowed, f"{cell.row!r} is left with {found}; {wanted} to {allowed} may stay"


def _promises(positions: tuple[Position, ...]) -> Iterator[Record]:
    """The result of a process, unless another one has started to undo it."""
    for each in positions:
        others = (other for other in positions if other is not each and other.actor.lets_go_of and not other.error)
        gone = {other.actor.lets_go_of for other in others if other.has_started}
        if each.actor.holds and _is_accepted(each) and each.actor.holds.id not in gone:
            yield each.actor.holds


def _is_accepted(position: Position) -> bool:
    return isinstance(position.result, ProtectionVerdict) and position.result.accepted


def _keeps(record: Record, cell: Cell, t: int) -> bool:
    covered = any(cell.row in target.rows for target in record.targets)
    return covered and (t >= record.ts if record.mode is Mode.AFTER else t == record.ts)


def _place(cell: Cell) -> Place:
    return (str(TABLE), *cell)


def _scan(store: MemoryStore) -> None:
    scan = LegacySweep(store, SETTINGS, ManualClock(_LATER_MS))
    order = LegacyOrder(TABLE)
    scan.work(scan.start(order, Horizon(TimestampService(store).greatest(), _LATER_MS)), order)


def _sweep_all(store: MemoryStore, now_ms: int) -> None:
    """A time at which retention and grace period are over, and the partition of the history is complete."""
    clock = ManualClock(now_ms - _APART_MS)
    service = TimestampService(store)
    service.move_past((service.greatest() // FINE + 1) * FINE)
    ClockHistory(store).record_now(service, clock, 900)
    clock.advance(_APART_MS / 1_000)
    horizon = Horizon(service.greatest(), clock.now_ms())
    for strategy in QUEUES:
        ShardSweep(store, strategy, 0, horizon, clock, SweepOptions(grace_s=SETTINGS.grace_s)).run()
