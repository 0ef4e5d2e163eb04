"""Every act that can remove data or weaken a safeguard is in the journal, for every caller of the library.

Each is checked three times: that it is recorded with its outcome, that it is recorded for the actor and the reason of
the caller, and that nothing is done where the intent can't be recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, cast

import pytest
from structlog.testing import capture_logs

from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import BadValue, NotYet, StoreUnavailable
from sweep_tasks.journal.actors import NO_REASON, acting_for, current_user
from sweep_tasks.journal.journal import INTERRUPTED, QUARANTINED_ENTRIES, Journal, JournalEntry
from sweep_tasks.journal.safeguards import SAFEGUARDS, lowered, record_lowered
from sweep_tasks.legacy.candidates import candidates
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.progress import Runs, RunState
from sweep_tasks.legacy.resumption import decide_start
from sweep_tasks.legacy.run import LegacySweep
from sweep_tasks.logs import JOURNAL_LINE
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore, StoreCall, lose_answer, on
from sweep_tasks.store.schema import JOURNAL_HEAD, LEGACY_SWEEPS, scan_row
from sweep_tasks.sweep.horizon import Horizon, in_table
from sweep_tasks.sweep.order import SweepOptions, SweepOrder
from sweep_tasks.sweep.run import Sweeper, retry_quarantined
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.tables.pauses import Pauses
from sweep_tasks.transactions import TransactionManager
from tests.support.clock import ManualClock
from tests.support.errors import having
from tests.support.simulation import SkewedClock

TABLE = TableRef.parse("shop.items")
SETTINGS = Settings(retention_s=0, grace_s=0)
STEP_S = SETTINGS.clock_step_max_s


class Shop:
    """A table with two versions of a cell, and a host whose clock is ahead."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.clock = clock
        Catalog(store, clock).create(TABLE, TableMetadata())
        manager = TransactionManager(store, SETTINGS, clock=clock, renew_leases=False)
        for value in (b"1", b"2"):
            with manager.transaction() as tx:
                tx.put(TABLE, b"row", b"c", value)
        manager.close()
        clock.advance(60)
        ClockHistory(store).record_now(TimestampService(store), clock, STEP_S)
        ahead = SkewedClock(clock, 10 * STEP_S, "ahead")
        assert ClockHistory(store).record_now(TimestampService(store), ahead, STEP_S) is None


def record(record_id: str = "backup", ts: int = 1_000) -> Record:
    return Record(record_id, ts, Mode.AT, (Target(TABLE),))


class Act(NamedTuple):
    """The act, its name in the journal, and its subject."""

    do: Callable[[Store, ManualClock], Any]
    what: str
    about: str
    details: Mapping[str, Any] = MappingProxyType({})
    before: Callable[[Store, ManualClock], Any] = lambda store, clock: None


def protected(store: Store, clock: ManualClock) -> None:
    assert ProtectionCatalog(store, SETTINGS, clock).protect(record()).accepted


def paused(store: Store, clock: ManualClock) -> None:
    Pauses(store, clock).pause(TABLE, "bob", "a migration")


def sweep(store: Store, clock: ManualClock) -> None:
    list(Sweeper(store, SETTINGS, clock).sweep([SweepStrategy.CONSERVATIVE]))


def scan(store: Store, clock: ManualClock) -> None:
    LegacySweep(store, SETTINGS, clock).sweep(LegacyOrder(TABLE))


def protect_in_transaction(store: Store, clock: ManualClock) -> None:
    with TransactionManager(store, SETTINGS, clock=clock, renew_leases=False).transaction() as tx:
        tx.protect(TABLE, id="backup", ts=1_000)


def release_in_transaction(store: Store, clock: ManualClock) -> None:
    with TransactionManager(store, SETTINGS, clock=clock, renew_leases=False).transaction() as tx:
        tx.release("backup")


def in_catalog(do: Callable[[Catalog], Any]) -> Callable[[Store, ManualClock], Any]:
    return lambda store, clock: do(Catalog(store, clock))


def in_protections(do: Callable[[ProtectionCatalog], Any]) -> Callable[[Store, ManualClock], Any]:
    return lambda store, clock: do(ProtectionCatalog(store, SETTINGS, clock))


ACTS = {
    "truncate": Act(in_catalog(lambda tables: tables.truncate(TABLE)), "truncate", str(TABLE), {"forced": False}),
    "force": Act(
        in_catalog(lambda tables: tables.truncate(TABLE, force=True)),
        "truncate",
        str(TABLE),
        {"forced": True},
        protected,
    ),
    "drop": Act(in_catalog(lambda tables: tables.drop(TABLE)), "drop", str(TABLE), {"forced": False}),
    "strategy": Act(
        in_catalog(lambda tables: tables.set_strategy(TABLE, SweepStrategy.THOROUGH)),
        "change table",
        str(TABLE),
        {
            "before": {"strategy": "conservative", "retention_s": None},
            "after": {"strategy": "thorough", "retention_s": None},
        },
    ),
    "retention": Act(
        in_catalog(lambda tables: tables.change(TABLE, None, 60)),
        "change table",
        str(TABLE),
        {
            "before": {"strategy": "conservative", "retention_s": None},
            "after": {"strategy": "conservative", "retention_s": 60},
        },
    ),
    "protect": Act(protected, "protect", "backup", {"ts": 1_000, "mode": "at", "tables": [str(TABLE)]}),
    "protect in a transaction": Act(protect_in_transaction, "protect", "backup", {"ts": 1_000}),
    "move": Act(
        in_protections(lambda records: records.move("backup", 2_000)),
        "move",
        "backup",
        {"ts": 2_000, "before": 1_000, "mode": "at", "tables": [str(TABLE)]},
        protected,
    ),
    "release": Act(in_protections(lambda records: records.release("backup")), "release", "backup", {}, protected),
    "release in a transaction": Act(release_in_transaction, "release", "backup", {}, protected),
    "resume": Act(lambda store, clock: Pauses(store, clock).resume(TABLE), "resume", str(TABLE), {}, paused),
    "retry": Act(
        lambda store, clock: retry_quarantined(store, SETTINGS, clock),
        "retry",
        QUARANTINED_ENTRIES,
        {},
        lambda store, clock: record_lowered(store, SETTINGS, clock),
    ),
    "sweep": Act(
        sweep,
        "sweep",
        "conservative",
        {"retentions_s": {"conservative": 0}, "shards": [0]},
        lambda store, clock: record_lowered(store, SETTINGS, clock),
    ),
    "scan": Act(
        scan,
        "legacy sweep",
        str(TABLE),
        {"attempt": 1, "strategy": "conservative"},
        lambda store, clock: record_lowered(store, SETTINGS, clock),
    ),
    "clock confirm": Act(
        lambda store, clock: ClockHistory(store).confirm("ahead", clock, 20 * STEP_S),
        "clock confirm",
        "ahead",
        {"forced": False, "ahead_s": 10 * STEP_S},
    ),
    "clock confirm by force": Act(
        lambda store, clock: ClockHistory(store).confirm("ahead", clock, STEP_S, force=True),
        "clock confirm",
        "ahead",
        {"forced": True, "ahead_s": 10 * STEP_S},
    ),
    "clock sample": Act(
        lambda store, clock: ClockHistory(store).record_now(
            TimestampService(store), SkewedClock(clock, 10 * STEP_S, "ahead"), step_max_s=0
        ),
        "clock sample",
        "ahead",
        {"ahead_s": 10 * STEP_S, "clock_step_max_s": 0},
    ),
    "clock discard": Act(
        lambda store, clock: ClockHistory(store).discard(0), "clock discard", "1970-01-01 00:00:00+00:00"
    ),
    "settings": Act(
        lambda store, clock: record_lowered(store, Settings(retention_s=60), clock),
        "settings",
        "retention_s",
        {"lowered": {"retention_s": [3_600, 60]}},
    ),
}


@pytest.fixture(params=ACTS, ids=str)
def act(request: pytest.FixtureRequest, store: Store, clock: ManualClock) -> Act:
    found: Act = ACTS[request.param]
    Shop(store, clock)
    found.before(store, clock)
    return found


def newest(store: Store) -> tuple[JournalEntry, JournalEntry]:
    """The last intent, and its outcome."""
    head = Journal(store).verify().entries
    intent, outcome = Journal(store).entry(head - 1), Journal(store).entry(head)
    assert intent
    assert outcome
    assert outcome.intent == intent.number
    return intent, outcome


def test_it_is_recorded_with_its_outcome(store: Store, clock: ManualClock, act: Act) -> None:
    act.do(store, clock)
    intent, outcome = newest(store)
    assert (intent.by, intent.what, intent.about, intent.reason) == (current_user(), act.what, act.about, NO_REASON)
    assert intent.details.items() >= act.details.items()
    assert outcome.outcome == "done"


def test_it_is_logged_with_the_plain_values_that_are_stored(store: Store, clock: ManualClock, act: Act) -> None:
    """A log line that names an enum, such as `SweepStrategy.CONSERVATIVE`, can't be searched."""
    with capture_logs() as lines:
        act.do(store, clock)
    logged = [line for line in lines if line.get("code") == JOURNAL_LINE][-2:]
    stored = newest(store)
    assert [line["number"] for line in logged] == [entry.number for entry in stored]
    assert [repr(line["details"]) for line in logged] == [repr(entry.details) for entry in stored]


def test_it_is_recorded_for_the_actor_and_the_reason_of_the_caller(store: Store, clock: ManualClock, act: Act) -> None:
    with acting_for("ada", "spring cleaning"):
        act.do(store, clock)
    assert {(entry.by, entry.what, entry.reason) for entry in newest(store)} == {("ada", act.what, "spring cleaning")}


def test_it_is_not_done_if_the_intent_can_not_be_recorded(store: Store, clock: ManualClock, act: Act) -> None:
    def refuse(call: StoreCall) -> None:
        if call.name == "compare_and_set" and call.arguments[0] == JOURNAL_HEAD:
            raise StoreUnavailable("store: away")

    existing = stored(store)
    with pytest.raises(StoreUnavailable):
        act.do(FaultyStore(store, before=refuse), clock)
    assert stored(store) == existing


def stored(store: Store) -> dict[str, Any]:
    """All that an act could change."""
    return {
        "versions": store.scan_versions(TABLE, limit=100).items,
        "table": store.catalog_rows([TABLE])[TABLE],
        "records": [(each.id, each.ts, each.state, each.released_by) for each in ProtectionCatalog(store).records()],
        "paused": Pauses(store).current(),
        "clock": ClockHistory(store).last(),
        "settings": store.read(JOURNAL_HEAD, [Cell(b"settings", b"v")]),
    }


def entries(store: Store) -> list[JournalEntry]:
    numbers = range(1, Journal(store).verify().entries + 1)
    return [each for number in numbers if (each := Journal(store).entry(number))]


def test_a_pause_is_recorded_for_the_user_who_requests_it(store: Store, clock: ManualClock) -> None:
    Shop(store, clock)
    Pauses(store, clock).pause(TABLE, "ada", "a closer look")
    intent, outcome = newest(store)
    assert (intent.by, intent.what, intent.about, intent.reason) == ("ada", "pause", str(TABLE), "a closer look")
    assert outcome.outcome == "done"


def test_nothing_is_paused_if_the_intent_can_not_be_recorded(store: Store, clock: ManualClock) -> None:
    Shop(store, clock)

    def refuse(call: StoreCall) -> None:
        if call.name == "compare_and_set" and call.arguments[0] == JOURNAL_HEAD:
            raise StoreUnavailable("store: away")

    with pytest.raises(StoreUnavailable):
        Pauses(FaultyStore(store, before=refuse), clock).pause(None, "ada", "a closer look")
    assert Pauses(store, clock).current().listed() == []


@pytest.mark.parametrize("how", ["release", "release in a transaction"])
def test_a_release_is_recorded_with_what_is_no_longer_protected(store: Store, clock: ManualClock, how: str) -> None:
    """The record itself is gone then, and the entry of its creation may be pruned."""
    Shop(store, clock)
    protected(store, clock)
    ACTS[how].do(store, clock)
    intent, outcome = newest(store)
    assert (intent.what, outcome.details) == ("release", {"ts": 1_000, "mode": "at", "tables": [str(TABLE)]})


def test_what_is_refused_is_recorded_as_failed(store: Store, clock: ManualClock) -> None:
    Shop(store, clock)
    protected(store, clock)
    with pytest.raises(BadValue, check=having(reason="protected")) as refused:
        Catalog(store, clock).truncate(TABLE)
    outcome = newest(store)[1]
    assert (outcome.outcome, outcome.details["reason"]) == (f"failed: {BadValue.code}", refused.value.reason)


def test_a_protection_that_is_too_late_is_recorded_as_failed(store: Store, clock: ManualClock) -> None:
    Shop(store, clock)
    sweep(store, clock)
    assert not ProtectionCatalog(store, SETTINGS, clock).protect(record(ts=0)).accepted
    assert newest(store)[1].outcome == "failed: already_swept"


def test_an_act_that_fails_for_a_reason_of_no_kind_is_recorded_as_a_defect(store: Store, clock: ManualClock) -> None:
    with pytest.raises(ZeroDivisionError), Journal(store, clock).record("drop", "shop.items"):
        raise ZeroDivisionError
    assert newest(store)[1].outcome == "failed: defect"


class TestSweeps:
    def test_of_all_shards_and_strategies_are_one_entry(self, store: Store, clock: ManualClock) -> None:
        Shop(store, clock)
        record_lowered(store, SETTINGS, clock)
        before = Journal(store).verify().entries
        summaries = list(Sweeper(store, SETTINGS, clock).sweep())
        assert len(summaries) == 2
        assert Journal(store).verify().entries == before + 2
        intent, outcome = newest(store)
        horizons = {each.strategy.value: each.sweep_ts for each in summaries}
        assert intent.details == {
            "horizons": horizons, "retentions_s": {"conservative": 0, "thorough": 0}, "shards": [0]
        }  # fmt: skip
        assert outcome.details.items() >= {"swept_to": horizons, "shards": 2, "entries": 2, "quarantined": 0}.items()

    def test_that_remove_nothing_are_not_recorded(self, store: Store, clock: ManualClock) -> None:
        Shop(store, clock)
        before = Journal(store).verify().entries
        list(Sweeper(store, SETTINGS, clock).sweep(options=SweepOptions(dry_run=True)))
        LegacySweep(store, SETTINGS, clock).sweep(LegacyOrder(TABLE, dry_run=True))
        assert Journal(store).verify().entries == before

    def test_that_their_caller_stops_are_recorded_as_interrupted(self, store: Store, clock: ManualClock) -> None:
        Shop(store, clock)
        record_lowered(store, SETTINGS, clock)
        summaries = cast("Generator[Any]", Sweeper(store, SETTINGS, clock).sweep())
        next(summaries)
        summaries.close()
        intent, outcome = newest(store)
        assert (intent.what, outcome.outcome) == ("sweep", f"failed: {INTERRUPTED}")
        assert outcome.details.items() >= {"shards": 1, "entries": 2}.items()

    @pytest.mark.parametrize(
        "act",
        [sweep, scan, lambda store, clock: retry_quarantined(store, SETTINGS, clock)],
        ids=["sweep", "scan", "retry"],
    )
    def test_record_settings_that_are_less_safe_before_anything_else(
        self, store: Store, clock: ManualClock, act: Callable[[Store, ManualClock], None]
    ) -> None:
        Shop(store, clock)
        clock.advance(60)
        existing = stored(store)

        def refuse(call: StoreCall) -> None:
            if call.name == "compare_and_set" and call.arguments[0] == JOURNAL_HEAD:
                raise StoreUnavailable("store: away")

        with pytest.raises(StoreUnavailable):
            act(FaultyStore(store, before=refuse), clock)
        assert stored(store) == existing, "no clock sample is left either"
        act(store, clock)
        assert [each.what for each in entries(store)][:2] == ["settings", "settings"]


class TestScans:
    """The entry of a scan has the retention that versions of the table were kept for."""

    SETTINGS = Settings(retention_s=600, grace_s=0)

    @pytest.fixture
    def old(self, store: Store, clock: ManualClock) -> None:
        """The versions are older than every retention."""
        Shop(store, clock)
        record_lowered(store, self.SETTINGS, clock)
        for _ in range(100):
            clock.advance(600)
            ClockHistory(store).record_now(TimestampService(store), clock, STEP_S)

    def details(self, store: Store) -> dict[str, Any]:
        found = newest(store)[0]
        assert found.what == "legacy sweep"
        return {name: found.details[name] for name in ("attempt", "retention_s", "sweep_ts")}

    @pytest.mark.parametrize(
        ("own_s", "strategy", "expected_s"),
        [
            (None, SweepStrategy.CONSERVATIVE, 600),
            (60, SweepStrategy.CONSERVATIVE, 600),
            (7_200, SweepStrategy.CONSERVATIVE, 7_200),
            (None, SweepStrategy.THOROUGH, 0),
            (7_200, SweepStrategy.THOROUGH, 7_200),
        ],
    )
    @pytest.mark.usefixtures("old")
    def test_have_the_longer_one_of_the_setting_and_the_table(
        self, store: Store, clock: ManualClock, own_s: int | None, strategy: SweepStrategy, expected_s: int
    ) -> None:
        Catalog(store, clock).change(TABLE, strategy, own_s)
        summary = LegacySweep(store, self.SETTINGS, clock).sweep(LegacyOrder(TABLE))
        horizon = Horizon(summary.sweep_ts, clock.now_ms())
        reached = in_table(horizon, own_s, ClockHistory(store))
        assert self.details(store) == {"attempt": 1, "retention_s": expected_s, "sweep_ts": reached}
        assert (reached < summary.sweep_ts) == (expected_s == 7_200)

    @pytest.mark.parametrize(("own_s", "expected_s"), [(None, 600), (7_200, 7_200)])
    @pytest.mark.usefixtures("old")
    def test_that_are_resumed_have_the_one_that_they_started_with_or_a_longer_one_of_the_table(
        self, store: Store, clock: ManualClock, own_s: int | None, expected_s: int
    ) -> None:
        run = LegacySweep(store, self.SETTINGS, clock).start(LegacyOrder(TABLE))
        Runs(store).change_own(run, state=RunState.PAUSED)
        Catalog(store, clock).change(TABLE, None, own_s)
        shorter = LegacySweep(store, self.SETTINGS.model_copy(update={"retention_s": 0}), clock)
        shorter.work(shorter.resume(TABLE), LegacyOrder(TABLE))
        reached = in_table(run.horizon, own_s, ClockHistory(store))
        assert self.details(store) == {"attempt": 2, "retention_s": expected_s, "sweep_ts": reached}

    @pytest.mark.parametrize("how", ["resume", "decide"])
    def test_that_are_resumed_record_the_settings_before_they_store_a_clock_sample(
        self, store: Store, clock: ManualClock, how: str
    ) -> None:
        Shop(store, clock)
        record_lowered(store, SETTINGS, clock)
        run = LegacySweep(store, SETTINGS, clock).start(LegacyOrder(TABLE))
        Runs(store).change_own(run, state=RunState.PAUSED)
        off = SETTINGS.model_copy(update={"clock_step_max_s": 0})
        clock.advance(60)

        def act(on: Store) -> None:
            if how == "resume":
                LegacySweep(on, off, clock).resume(TABLE)
            else:
                decide_start(on, off, clock, LegacyOrder(TABLE), restart=False, owner="another")

        def refuse(call: StoreCall) -> None:
            if call.name == "compare_and_set" and call.arguments[0] == JOURNAL_HEAD:
                raise StoreUnavailable("store: away")

        before = stored(store)
        with pytest.raises(StoreUnavailable):
            act(FaultyStore(store, before=refuse))
        assert stored(store) == before
        act(store)
        intent, _ = newest(store)
        assert (intent.what, intent.about) == ("settings", "clock_step_max_s")

    def test_of_an_older_version_are_loaded_and_have_the_setting(self, store: Store, clock: ManualClock) -> None:
        Shop(store, clock)
        legacy = LegacySweep(store, SETTINGS, clock)
        run = legacy.start(LegacyOrder(TABLE))
        cell = Cell(scan_row(b"run", TABLE), b"v")

        def as_before(current: bytes | None) -> bytes:
            plain = json.loads(current or b"")
            for name in ("retention_s", "own_retention_s"):
                del plain[name]
            return json.dumps(plain).encode()

        store.update(LEGACY_SWEEPS, cell, as_before)
        loaded = Runs(store).of(TABLE)
        assert loaded == replace(run, retention_s=None)
        legacy.work(loaded, LegacyOrder(TABLE))
        assert self.details(store)["retention_s"] == SETTINGS.retention_s


class TestClockSamples:
    """With the limit off, a host that is a day ahead makes everything look a day older."""

    OFF = Settings(clock_step_max_s=0)

    @pytest.fixture
    def ahead(self, store: Store, clock: ManualClock) -> SkewedClock:
        Shop(store, clock)
        return SkewedClock(clock, 86_400, "a day ahead")

    def test_that_only_the_missing_limit_accepts_are_not_stored_by_a_dry_run(
        self, store: Store, clock: ManualClock, ahead: SkewedClock
    ) -> None:
        before = ClockHistory(store).last()
        list(Sweeper(store, self.OFF, ahead).sweep(options=SweepOptions(dry_run=True)))
        SweepOrder(SweepStrategy.CONSERVATIVE, 0, dry_run=True).horizon(store, self.OFF, ahead)
        with pytest.raises(NotYet):
            LegacySweep(store, self.OFF, ahead).sweep(LegacyOrder(TABLE, dry_run=True))
        candidates(store, self.OFF, ahead)
        assert ClockHistory(store).last() == before
        assert entries(store) == []
        (swept,) = Sweeper(store, Settings(), clock).sweep([SweepStrategy.CONSERVATIVE])
        assert (swept.sweep_ts, swept.range_deletes) == (0, 0), "what was just written stays"

    def test_that_a_sweep_stores_are_recorded_after_the_settings(self, store: Store, ahead: SkewedClock) -> None:
        list(Sweeper(store, self.OFF, ahead).sweep([SweepStrategy.CONSERVATIVE]))
        intents = [each for each in entries(store) if each.intent is None]
        assert [each.what for each in intents] == ["settings", "clock sample", "sweep"]
        assert intents[1].details.items() >= {"ahead_s": 86_400, "clock_step_max_s": 0}.items()

    def test_that_transactions_store_are_recorded_or_refused(self, store: Store, ahead: SkewedClock) -> None:
        away = True

        def refuse(call: StoreCall) -> None:
            if away and call.name == "compare_and_set" and call.arguments[0] == JOURNAL_HEAD:
                raise StoreUnavailable("store: away")

        before = ClockHistory(store).last()
        manager = TransactionManager(FaultyStore(store, before=refuse), self.OFF, clock=ahead, renew_leases=False)
        with pytest.raises(StoreUnavailable):
            manager._record_clock_sample()
        assert ClockHistory(store).last() == before
        away = False
        manager._record_clock_sample()
        last = ClockHistory(store).last()
        assert last
        assert last.wall_ms == ahead.now_ms()
        assert [(each.what, each.about) for each in entries(store)] == [("clock sample", "a day ahead")] * 2

    def test_within_the_default_limit_are_not_recorded(self, store: Store, clock: ManualClock) -> None:
        Shop(store, clock)
        near = SkewedClock(clock, STEP_S - 1, "nearly right")
        for step_max_s in (0, 10 * STEP_S):
            clock.advance(1)
            assert ClockHistory(store).record_now(TimestampService(store), near, step_max_s)
        assert entries(store) == []

    def test_that_are_ahead_are_confirmed_only_by_force(self, store: Store, clock: ManualClock) -> None:
        Shop(store, clock)
        before = ClockHistory(store).last()
        with pytest.raises(BadValue, check=having(reason="ahead_of_here")):
            ClockHistory(store).confirm("ahead", clock, STEP_S)
        assert ClockHistory(store).last() == before
        intent, outcome = newest(store)
        assert (intent.details, outcome.outcome) == ({"forced": False, "ahead_s": 10 * STEP_S}, "failed: bad_value")


class TestTables:
    def test_that_are_as_they_should_be_already_are_not_recorded(self, store: Store, clock: ManualClock) -> None:
        Shop(store, clock)
        before = Journal(store).verify().entries
        Catalog(store, clock).set_strategy(TABLE, SweepStrategy.CONSERVATIVE)
        Catalog(store, clock).change(TABLE, None, None)
        assert Journal(store).verify().entries == before


class TestSettings:
    SAFE: ClassVar[dict[str, Any]] = {name: Settings.model_fields[name].default for name in SAFEGUARDS}
    LESS_SAFE: ClassVar[dict[str, Any]] = {
        "retention_s": 60,
        "grace_s": 60,
        "cassandra_gc_grace_s": 60,
        "clock_step_max_s": 0,
        "sqlite_durability": "normal",
        "cassandra_read_consistency": "one",
        "cassandra_write_consistency": "local_quorum",
        "cassandra_serial_consistency": "local_serial",
        "cassandra_tls": False,
        "cassandra_plaintext_password": True,
        "task_folder_shared": True,
        "protect_at_as_after": False,
    }

    @pytest.mark.parametrize("name", SAFEGUARDS)
    def test_that_are_lowered_are_noticed_one_by_one(self, name: str) -> None:
        safe = self.SAFE | {"cassandra_tls": True, "protect_at_as_after": True}
        less_safe = safe | {name: self.LESS_SAFE[name]}
        assert lowered(safe, less_safe) == [name]
        assert lowered(less_safe, safe) == []

    def test_are_recorded_when_they_are_lowered_and_not_again(self, store: Store, clock: ManualClock) -> None:
        for retention_s, entries in ((3_600, 0), (60, 2), (60, 2), (3_600, 2), (600, 4)):
            record_lowered(store, Settings(retention_s=retention_s), clock)
            assert Journal(store).verify().entries == entries
        assert newest(store)[0].details == {"lowered": {"retention_s": [3_600, 600]}}

    @pytest.mark.parametrize("carried_out", [True, False])
    def test_are_in_force_also_if_the_answer_is_lost(self, store: Store, clock: ManualClock, carried_out: bool) -> None:
        lost = on("compare_and_set", 1, lose_answer, JOURNAL_HEAD)
        unsure = FaultyStore(store, after=lost) if carried_out else FaultyStore(store, before=lost)
        record_lowered(unsure, Settings(), clock)
        assert store.read(JOURNAL_HEAD, [Cell(b"settings", b"v")])
        record_lowered(store, Settings(retention_s=60), clock)
        assert newest(store)[0].what == "settings"

    def test_of_a_new_store_are_compared_with_the_defaults(self, store: Store, clock: ManualClock) -> None:
        record_lowered(store, Settings(grace_s=1, sqlite_durability="normal"), clock)
        assert newest(store)[0].about == "grace_s, sqlite_durability"
