"""Every act that can remove data or weaken a safeguard is in the journal, for every caller of the library.

Each is checked three times: that it is recorded with its outcome, that it is recorded for the actor and the reason of
the caller, and that nothing is done where the intent can't be recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import pytest
from structlog.testing import capture_logs

from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import BadValue, StoreUnavailable
from sweep_tasks.journal.actors import NO_REASON, acting_for, current_user
from sweep_tasks.journal.journal import QUARANTINED_ENTRIES, Entry, Journal
from sweep_tasks.journal.safeguards import SAFEGUARDS, lowered, record_lowered
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.legacy.run import LegacySweep
from sweep_tasks.logs import JOURNAL_LINE
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.store import Store
from sweep_tasks.store.faults import Call, FaultyStore, lose_answer, on
from sweep_tasks.store.schema import JOURNAL_HEAD
from sweep_tasks.sweep.order import SweepOptions
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
        {"ts": 2_000, "before": 1_000},
        protected,
    ),
    "release": Act(in_protections(lambda records: records.release("backup")), "release", "backup", {}, protected),
    "release in a transaction": Act(release_in_transaction, "release", "backup", {}, protected),
    "resume": Act(lambda store, clock: Pauses(store, clock).resume(TABLE), "resume", str(TABLE), {}, paused),
    "retry": Act(lambda store, clock: retry_quarantined(store, SETTINGS, clock), "retry", QUARANTINED_ENTRIES),
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
    "clock confirm": Act(lambda store, clock: ClockHistory(store).confirm("ahead"), "clock confirm", "ahead"),
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


def newest(store: Store) -> tuple[Entry, Entry]:
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
    def refuse(call: Call) -> None:
        if call.name == "compare_and_set" and call.arguments[0] == JOURNAL_HEAD:
            raise StoreUnavailable("store: away")

    standing = stored(store)
    with pytest.raises(StoreUnavailable):
        act.do(FaultyStore(store, before=refuse), clock)
    assert stored(store) == standing


def stored(store: Store) -> dict[str, Any]:
    """All that an act could change."""
    return {
        "versions": store.scan_versions(TABLE, limit=100).items,
        "table": store.catalog_rows([TABLE])[TABLE],
        "records": [(each.id, each.ts, each.state, each.released_by) for each in ProtectionCatalog(store).records()],
        "paused": Pauses(store).standing(),
        "clock": ClockHistory(store).last(),
        "settings": store.read(JOURNAL_HEAD, [Cell(b"settings", b"v")]),
    }


def test_a_pause_is_recorded_for_the_user_who_requests_it(store: Store, clock: ManualClock) -> None:
    Shop(store, clock)
    Pauses(store, clock).pause(TABLE, "ada", "a closer look")
    intent, outcome = newest(store)
    assert (intent.by, intent.what, intent.about, intent.reason) == ("ada", "pause", str(TABLE), "a closer look")
    assert outcome.outcome == "done"


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
