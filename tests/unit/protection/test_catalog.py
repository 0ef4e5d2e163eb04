"""Protecting, releasing and moving: against sweeps, limits and each other."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import (
    AlreadyExists,
    BadValue,
    LimitExceeded,
    NotFound,
    OutcomeUnknown,
    RecordChanged,
    SnapshotSwept,
    UnknownTable,
)
from sweep_tasks.model import MAX_TS, Cell, Span, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog, ProtectionVerdict
from sweep_tasks.protection.records import Mode, Record, State, Target
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore, ProcessCrashed, StoreCall, crash, lose_answer, on
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.store.schema import PROTECTIONS
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.transactions import TransactionManager
from sweep_tasks.transactions.outcomes import CommitTable
from tests.conftest import memory_store
from tests.support.clock import ManualClock
from tests.support.errors import having
from tests.support.processes import in_processes
from tests.support.simulation import Process
from tests.support.tables import set_mark
from tests.unit.protection.concurrent import protect_and_release

CONSERVATIVE, THOROUGH, _ = SweepStrategy
AT, AFTER = Mode
TABLE, OTHER = TableRef.parse("app.items"), TableRef.parse("app.other")
THREE_SPANS = tuple(Target(TABLE, Span(start, end)) for start, end in ((b"a", b"b"), (b"c", b"d"), (b"e", b"")))


def record(name: str = "a", ts: int = 50, mode: Mode = AT, targets: tuple[Target, ...] = (Target(TABLE),)) -> Record:
    return Record(name, ts, mode, targets)


def state(store: Store) -> dict[Cell, bytes]:
    return store.read_rows(PROTECTIONS, [b"records"])


def limited(store: Store, records: int = 0, spans: int = 0) -> ProtectionCatalog:
    return ProtectionCatalog(store, Settings(max_protection_records=records, max_protection_spans=spans))


def exceeded(error: LimitExceeded) -> tuple[str | None, int, int, int]:
    return error.field, error.details["used"], error.details["more"], error.details["limit"]


def described(found: Record) -> tuple[object, ...]:
    return found.id, found.ts, found.mode, found.targets, found.state


def moving(name: str, ts: int) -> Callable[[Store], ProtectionVerdict]:
    return lambda store: ProtectionCatalog(store).move(name, ts)


def none_ended(starts: Collection[int]) -> dict[int, int]:
    assert not starts
    return {}


def protector(given: Record) -> Callable[[Store], ProtectionVerdict]:
    return lambda store: ProtectionCatalog(store).protect(given)


@pytest.fixture
def catalog(store: Store, table: TableRef) -> ProtectionCatalog:
    assert table == TABLE
    store.create_table(OTHER, TableMetadata(THOROUGH))
    return ProtectionCatalog(store)


class TestProtecting:
    def test_above_every_threshold_it_is_accepted(self, store: Store, catalog: ProtectionCatalog) -> None:
        Thresholds(store).raise_strategy(CONSERVATIVE, 50)
        assert catalog.protect(record()) == ProtectionVerdict(True)
        assert [(each.id, each.ts, each.state) for each in catalog.records()] == [("a", 50, State.ACCEPTED)]
        assert catalog.get("a").targets == (Target(TABLE),)

    def test_below_a_threshold_it_is_refused_and_leaves_nothing(self, store: Store, catalog: ProtectionCatalog) -> None:
        Thresholds(store).raise_strategy(CONSERVATIVE, 51)
        assert catalog.protect(record()) == ProtectionVerdict(False, 51)
        assert catalog.records() == []
        assert catalog.protect(record(ts=51)).accepted, "the result is correct"

    def test_the_greatest_threshold_of_its_tables_counts(self, store: Store, catalog: ProtectionCatalog) -> None:
        Thresholds(store).raise_strategy(CONSERVATIVE, 40)
        Thresholds(store).raise_strategy(THOROUGH, 60)
        assert catalog.protect(record()).accepted
        assert catalog.protect(record("b", targets=(Target(TABLE), Target(OTHER)))) == ProtectionVerdict(False, 60)

    def test_a_truncation_is_a_threshold_too(self, store: Store, catalog: ProtectionCatalog) -> None:
        set_mark(store, TABLE, 70)
        assert catalog.protect(record()) == ProtectionVerdict(False, 70)

    def test_a_known_id_exists_and_stays_as_it_is(self, store: Store, catalog: ProtectionCatalog) -> None:
        catalog.protect(record())
        before = state(store)
        with pytest.raises(AlreadyExists, check=having(field="id")) as refused:
            catalog.protect(record(ts=90, mode=AFTER))
        assert (refused.value.code, refused.value.details["record_id"], refused.value.reason) == (
            "exists",
            "a",
            "duplicate",
        )
        assert state(store) == before

    @pytest.mark.parametrize(
        ("given", "error"),
        [
            (record(ts=-1), BadValue),
            (record(ts=2**63), BadValue),
            (record(targets=()), BadValue),
            (record(targets=(Target(TABLE), Target(TableRef.parse("app.nowhere")))), UnknownTable),
        ],
    )
    def test_invalid_arguments_are_refused_and_change_nothing(
        self, store: Store, catalog: ProtectionCatalog, given: Record, error: type[Exception]
    ) -> None:
        with pytest.raises(error):
            catalog.protect(given)
        assert state(store) == {}

    @pytest.mark.parametrize("text", ["a\x1b[2J", "\u202eb", "two\nlines", "\x00"])
    def test_texts_that_can_not_be_shown_are_refused_and_change_nothing(
        self, store: Store, catalog: ProtectionCatalog, text: str
    ) -> None:
        for field, given in (
            ("id", replace(record(), id=text)),
            ("meta", replace(record(), meta={text: "value"})),
            ("meta", replace(record(), meta={"key": text})),
            ("meta_type", replace(record(), meta_type=text)),
            ("meta_type", replace(record(), meta_type="x" * 201)),
        ):
            with pytest.raises(BadValue) as refused:
                catalog.protect(given)
            assert refused.value.field == field
            assert text not in str(refused.value)
        assert state(store) == {}

    def test_records_are_returned_with_their_ranges(self, catalog: ProtectionCatalog) -> None:
        catalog.protect(record("ü", mode=AFTER, targets=THREE_SPANS))
        assert described(catalog.get("ü")) == ("ü", 50, AFTER, THREE_SPANS, State.ACCEPTED)


class TestReleasing:
    def test_a_released_record_is_removed_and_its_id_is_free(self, catalog: ProtectionCatalog) -> None:
        catalog.protect(record())
        catalog.release("a")
        assert catalog.records() == []
        assert catalog.protect(record(ts=80)).accepted

    def test_an_unknown_id_is_not_found(self, store: Store, catalog: ProtectionCatalog) -> None:
        catalog.protect(record())
        before = state(store)
        for call in (catalog.release, catalog.get):
            with pytest.raises(NotFound) as refused:
                call("b")
            assert (refused.value.code, refused.value.details["record_id"]) == ("not_found", "b")
        with pytest.raises(NotFound):
            catalog.move("b", 60)
        assert state(store) == before


@pytest.mark.usefixtures("table")
class TestLimits:
    def test_too_many_spans(self, store: Store) -> None:
        catalog = limited(store, spans=3)
        catalog.protect(record("a"))
        before = state(store)
        with pytest.raises(LimitExceeded) as refused:
            catalog.protect(record("b", targets=THREE_SPANS))
        assert exceeded(refused.value) == ("max_protection_spans", 1, 3, 3)
        assert state(store) == before
        catalog.release("a")
        assert catalog.protect(record("b", targets=THREE_SPANS)).accepted

    def test_too_many_records(self, store: Store) -> None:
        catalog = limited(store, records=2)
        for name in ("a", "b"):
            catalog.protect(record(name))
        with pytest.raises(LimitExceeded) as refused:
            catalog.protect(record("c"))
        assert exceeded(refused.value) == ("max_protection_records", 2, 1, 2)
        catalog.release("a")
        assert catalog.protect(record("c")).accepted

    def test_zero_is_no_limit(self, store: Store) -> None:
        catalog = limited(store)
        for number in range(20):
            assert catalog.protect(record(str(number), targets=THREE_SPANS)).accepted

    def test_what_is_refused_is_not_counted(self, store: Store) -> None:
        Thresholds(store).raise_strategy(CONSERVATIVE, 60)
        catalog = limited(store, records=1)
        for _ in range(3):
            assert not catalog.protect(record(ts=50)).accepted
        assert catalog.protect(record(ts=60)).accepted

    def test_over_a_limit_that_was_lowered_releasing_and_moving_still_work(self, store: Store) -> None:
        for name in ("a", "b", "c"):
            ProtectionCatalog(store).protect(record(name))
        strict = limited(store, records=1, spans=1)
        assert strict.move("a", 60).accepted
        strict.release("b")
        assert len(strict.records()) == 2


class TestMoving:
    @pytest.mark.parametrize("mode", Mode)
    def test_at_or_above_the_threshold_it_moves(self, store: Store, catalog: ProtectionCatalog, mode: Mode) -> None:
        catalog.protect(record(mode=mode))
        Thresholds(store).raise_strategy(CONSERVATIVE, 60)
        assert catalog.move("a", 60) == ProtectionVerdict(True)
        assert described(catalog.get("a")) == ("a", 60, mode, (Target(TABLE),), State.ACCEPTED)

    def test_below_the_threshold_at_stays_where_it_is(self, store: Store, catalog: ProtectionCatalog) -> None:
        catalog.protect(record())
        before = catalog.get("a")
        Thresholds(store).raise_strategy(CONSERVATIVE, 70)
        assert catalog.move("a", 60) == ProtectionVerdict(False, 70)
        assert catalog.get("a") == before

    def test_below_the_threshold_after_moves_up_all_the_same(self, store: Store, catalog: ProtectionCatalog) -> None:
        catalog.protect(record(mode=AFTER))
        Thresholds(store).raise_strategy(CONSERVATIVE, 70)
        assert catalog.move("a", 60) == ProtectionVerdict(True)
        assert catalog.get("a").ts == 60

    def test_both_timestamps_are_held_before_the_threshold_is_read(self, memory: MemoryStore) -> None:
        memory.create_table(TABLE, TableMetadata())
        catalog = ProtectionCatalog(memory)
        catalog.protect(record())
        mover = Process(memory, lambda store: ProtectionCatalog(store).move("a", 60))
        mover.step_to("compare_and_set")
        mover.step()
        assert catalog.get("a").timestamps == (50, 60)
        assert [each.ts for each in catalog.protections().holding_in_order(TABLE, b"r", MAX_TS)] == [60, 50]
        assert mover.finish() == ProtectionVerdict(True)
        assert catalog.get("a").timestamps == (60,)

    def test_a_sweep_that_publishes_in_between_is_seen_or_sees_it(self) -> None:
        """At every point of a move a sweep publishes and reads the records: it respects what the move ends with."""
        for calls in range(1, 9):
            memory = memory_store()
            memory.create_table(TABLE, TableMetadata())
            catalog = ProtectionCatalog(memory)
            catalog.protect(record())
            mover = Process(memory, lambda store: ProtectionCatalog(store).move("a", 60))
            for _ in range(calls):
                mover.step()
            Thresholds(memory).raise_strategy(CONSERVATIVE, 70)
            seen = {protection.ts for protection in catalog.protections().holding_in_order(TABLE, b"r", MAX_TS)}
            mover.finish()
            assert catalog.get("a").ts in seen, calls


class TestAgainstSweeps:
    def test_in_every_interleaving_the_second_sees_the_first(self) -> None:
        verdicts = set()
        for calls in range(12):
            memory = memory_store()
            memory.create_table(TABLE, TableMetadata())
            process = Process(memory, protector(record()))
            for _ in range(calls):
                process.step()
            Thresholds(memory).raise_strategy(CONSERVATIVE, 70)
            honoured = ProtectionCatalog(memory).protections().holding(TABLE, b"r", MAX_TS)
            verdict = process.finish()
            assert verdict is not None
            assert not verdict.accepted or honoured, "accepted, and a sweep does not know of it"
            verdicts.add(verdict)
        assert verdicts == {ProtectionVerdict(True), ProtectionVerdict(False, 70)}

    def test_a_pending_record_holds_sweeps_and_helps_no_reader(self, memory: MemoryStore, clock: ManualClock) -> None:
        memory.create_table(TABLE, TableMetadata())
        cell = Cell(b"r", b"c")
        for start in (10, 20, 60):
            memory.put(start, {TABLE: {cell: b"%d" % start}})
            CommitTable(memory).decide(start, start + 1)
        TimestampService(memory).move_past(100)
        process = Process(memory, protector(record()))
        process.step_to("compare_and_set")
        process.step_to("compare_and_set")
        assert ProtectionCatalog(memory).get("a").state is State.PENDING
        assert ProtectionCatalog(memory).protections().holding(TABLE, b"r", MAX_TS), "a sweep respects it"
        process.finish()
        Thresholds(memory).raise_strategy(CONSERVATIVE, 90)
        snapshot = TransactionManager(memory, clock=clock, renew_leases=False).read_at(50)
        assert snapshot.get(TABLE, b"r", b"c") == b"20", "accepted, it permits reads below the threshold"

    def test_a_reader_below_the_threshold_fails_while_the_record_is_pending(
        self, memory: MemoryStore, clock: ManualClock
    ) -> None:
        memory.create_table(TABLE, TableMetadata())
        TimestampService(memory).move_past(100)
        dying = FaultyStore(memory, before=on("compare_and_set", 2, crash, PROTECTIONS))
        with pytest.raises(ProcessCrashed):
            ProtectionCatalog(dying).protect(record())
        Thresholds(memory).raise_strategy(CONSERVATIVE, 90)
        assert ProtectionCatalog(memory).get("a").state is State.PENDING
        with pytest.raises(SnapshotSwept):
            TransactionManager(memory, clock=clock, renew_leases=False).read_at(50).get(TABLE, b"r", b"c")


class TestReleasingByVersion:
    def test_a_record_created_again_under_the_same_name_stays(self, catalog: ProtectionCatalog) -> None:
        catalog.protect(record())
        seen = catalog.get("a")
        catalog.release("a")
        catalog.protect(record(ts=90))
        with pytest.raises(RecordChanged):
            catalog.release("a", seen.version)
        assert catalog.get("a").ts == 90
        catalog.release("a", catalog.get("a").version)
        assert catalog.records() == []

    def test_one_that_has_moved_stays(self, catalog: ProtectionCatalog) -> None:
        catalog.protect(record())
        seen = catalog.get("a")
        catalog.move("a", 60)
        with pytest.raises(RecordChanged):
            catalog.release("a", seen.version)


class TestPatterns:
    def test_every_threshold_of_what_it_matches_counts(self, store: Store, catalog: ProtectionCatalog) -> None:
        Thresholds(store).raise_strategy(THOROUGH, 60)
        assert catalog.protect(record(targets=(Target.parse("app.*"),))) == ProtectionVerdict(False, 60)
        assert catalog.protect(record(targets=(Target.parse("app.i*"),))).accepted

    def test_one_that_matches_nothing_is_a_mistake(self, store: Store, catalog: ProtectionCatalog) -> None:
        with pytest.raises(BadValue) as refused:
            catalog.protect(record(targets=(Target(TABLE), Target.parse("shop.*"))))
        assert (refused.value.field, refused.value.reason) == ("targets", "no_match")
        assert "shop.*" in str(refused.value)
        assert state(store) == {}

    def test_tables_created_later_are_protected(self, store: Store, catalog: ProtectionCatalog) -> None:
        catalog.protect(record(targets=(Target.parse("app.*"),)))
        later = TableRef.parse("app.later")
        store.create_table(later, TableMetadata())
        assert catalog.protections().holding(later, b"r", MAX_TS)
        with pytest.raises(BadValue, check=having(reason="protected")) as refused:
            Catalog(store).drop(later)
        assert (refused.value.code, refused.value.details["records"]) == ("bad_value", ("a",))


class TestLostAnswers:
    @pytest.mark.parametrize("number", [1, 2])
    def test_an_answer_that_was_lost_is_found_by_reading(self, memory: MemoryStore, number: int) -> None:
        memory.create_table(TABLE, TableMetadata())
        losing = ProtectionCatalog(FaultyStore(memory, after=on("compare_and_set", number, lose_answer, PROTECTIONS)))
        assert losing.protect(record()).accepted
        assert ProtectionCatalog(memory).get("a").state is State.ACCEPTED
        assert ProtectionCatalog(memory).metadata() == (2, 1, 1)

    def test_a_lost_answer_of_a_release_is_found_by_reading(self, memory: MemoryStore) -> None:
        memory.create_table(TABLE, TableMetadata())
        ProtectionCatalog(memory).protect(record())
        ProtectionCatalog(FaultyStore(memory, after=on("compare_and_set", 1, lose_answer, PROTECTIONS))).release("a")
        assert ProtectionCatalog(memory).metadata() == (3, 0, 0)

    def test_a_lost_request_is_repeated(self, memory: MemoryStore) -> None:
        memory.create_table(TABLE, TableMetadata())

        def lost(call: StoreCall) -> None:
            raise OutcomeUnknown("store: no answer")

        assert (
            ProtectionCatalog(FaultyStore(memory, before=on("compare_and_set", 1, lost, PROTECTIONS)))
            .protect(record())
            .accepted
        )
        assert ProtectionCatalog(memory).metadata() == (2, 1, 1)


class TestResolution:
    def test_one_left_pending_is_accepted_or_dropped(self, memory: MemoryStore) -> None:
        memory.create_table(TABLE, TableMetadata())
        catalog = ProtectionCatalog(memory)
        high, low = catalog.begin(record("high", 70)), catalog.begin(record("low", 50))
        Thresholds(memory).raise_strategy(CONSERVATIVE, 60)
        resolved = catalog.resolve(high, none_ended)
        assert resolved
        assert resolved.state is State.ACCEPTED
        assert catalog.resolve(low, none_ended) is None
        assert [each.id for each in catalog.records()] == ["high"]

    def test_an_unfinished_move_is_completed_or_undone(self, memory: MemoryStore) -> None:
        memory.create_table(TABLE, TableMetadata())
        catalog = ProtectionCatalog(memory)
        for name, ts in (("far", 70), ("near", 55)):
            catalog.protect(record(name))
            mover = Process(memory, moving(name, ts))
            mover.step_to("compare_and_set")
            mover.step()
        Thresholds(memory).raise_strategy(CONSERVATIVE, 60)
        for each in catalog.records():
            catalog.resolve(each, none_ended)
        assert {each.id: each.timestamps for each in catalog.records()} == {"far": (70,), "near": (50,)}

    def test_a_record_of_a_dropped_table_is_removed(self, memory: MemoryStore) -> None:
        memory.create_table(TABLE, TableMetadata())
        catalog = ProtectionCatalog(memory)
        left = catalog.begin(record())
        Catalog(memory).drop(TABLE, force=True)
        assert catalog.resolve(left, none_ended) is None

    def test_resolving_a_removed_record_does_not_remove_another_one(self, memory: MemoryStore) -> None:
        memory.create_table(TABLE, TableMetadata())
        slow = Process(memory, protector(record(ts=50)))
        slow.step_to("compare_and_set")
        slow.step()
        catalog = ProtectionCatalog(memory)
        Thresholds(memory).raise_strategy(CONSERVATIVE, 60)
        assert catalog.resolve(catalog.get("a"), none_ended) is None
        assert catalog.protect(record(ts=70)).accepted
        assert slow.finish() == ProtectionVerdict(False, 60)
        assert catalog.get("a").ts == 70

    def test_wrong_counts_are_corrected(self, memory: MemoryStore) -> None:
        memory.create_table(TABLE, TableMetadata())
        catalog = ProtectionCatalog(memory)
        catalog.protect(record(targets=THREE_SPANS))
        assert catalog.recount() is False
        meta = Cell(b"records", b"meta")
        memory.update(PROTECTIONS, meta, lambda _: b"[9, 7, 7]")
        assert catalog.recount() is True
        assert catalog.metadata() == (10, 1, 3)


def test_a_setting_keeps_all_later_versions_for_readers_that_know_no_thresholds(
    store: Store, catalog: ProtectionCatalog
) -> None:
    catalog.protect(record("before"))
    ProtectionCatalog(store, Settings(protect_at_as_after=True)).protect(record("since"))
    assert {each.id: each.mode for each in catalog.records()} == {"before": AT, "since": AFTER}


def test_sixty_four_owners_at_once_lose_no_record_and_no_count(memory: MemoryStore) -> None:
    memory.create_table(TABLE, TableMetadata())

    def own(number: int) -> None:
        catalog = ProtectionCatalog(memory)
        assert catalog.protect(record(f"p{number}", targets=THREE_SPANS[: 1 + number % 3])).accepted
        if number % 2:
            catalog.release(f"p{number}")

    with ThreadPoolExecutor(64) as pool:
        list(pool.map(own, range(64)))
    meta, kept = ProtectionCatalog(memory).state()
    assert sorted(each.id for each in kept) == sorted(f"p{number}" for number in range(0, 64, 2))
    assert meta == (64 * 2 + 32, 32, sum(len(each.targets) for each in kept))


def test_sixteen_processes_at_once_lose_no_record_and_no_count(sqlite: Store, sqlite_url: str) -> None:
    sqlite.create_table(TABLE, TableMetadata())
    in_processes(16, protect_and_release, sqlite_url)
    kept = ProtectionCatalog(sqlite).records()
    assert sorted(each.id for each in kept) == sorted(f"p{number}-{index}" for number in range(16) for index in (0, 2))
    assert {each.state for each in kept} == {State.ACCEPTED}
    spans = sum(len(each.targets) for each in kept)
    assert spans == 16 * (1 + 3)
    with pytest.raises(LimitExceeded) as refused:
        limited(sqlite, records=32).protect(record("more"))
    assert exceeded(refused.value) == ("max_protection_records", 32, 1, 32)
    with pytest.raises(LimitExceeded) as refused:
        limited(sqlite, spans=spans).protect(record("more"))
    assert exceeded(refused.value) == ("max_protection_spans", spans, 1, spans)


class TestConcurrency:
    def test_one_released_while_it_is_verified_is_not_reported_as_holding(self, memory: MemoryStore) -> None:
        memory.create_table(TABLE, TableMetadata())
        process = Process(memory, protector(record()))
        process.step_to("compare_and_set")
        process.step()
        ProtectionCatalog(memory).release("a")
        with pytest.raises(NotFound, check=having(released="a")):
            process.finish()

    def test_a_table_dropped_while_it_is_verified_leaves_no_record(self, memory: MemoryStore) -> None:
        memory.create_table(TABLE, TableMetadata())
        process = Process(memory, protector(record()))
        process.step_to("compare_and_set")
        process.step()
        Catalog(memory).drop(TABLE, force=True)
        with pytest.raises(UnknownTable):
            process.finish()
        assert ProtectionCatalog(memory).records() == []

    def test_a_move_of_a_record_of_a_dropped_table_changes_nothing(self, memory: MemoryStore) -> None:
        memory.create_table(TABLE, TableMetadata())
        catalog = ProtectionCatalog(memory)
        catalog.protect(record())
        Catalog(memory).drop(TABLE, force=True)
        with pytest.raises(UnknownTable):
            catalog.move("a", 60)
        assert catalog.get("a").timestamps == (50,)

    @pytest.mark.parametrize("mode", Mode)
    def test_the_slower_of_two_moves_does_not_restore_what_the_other_released(self, mode: Mode) -> None:
        for calls in range(1, 8):
            memory = memory_store()
            memory.create_table(TABLE, TableMetadata())
            catalog = ProtectionCatalog(memory)
            catalog.protect(record(mode=mode))
            slow = Process(memory, lambda store: ProtectionCatalog(store).move("a", 60))
            for _ in range(calls):
                slow.step()
            if slow.ended:
                break
            catalog.move("a", 70)
            slow.run_to_end()
            assert catalog.get("a").timestamps == (70,), f"after {calls} calls"
            assert slow.error, "it reports that it was overtaken"
