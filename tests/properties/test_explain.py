"""Every version that a sweep left has exactly one reason, and it is the right one.

Remove the reported cause and sweep: the version is removed, or another cause is reported that also held it, and no
cause is reported twice. A version that is reported as live stays in every case. Its table counts it under that reason.
"""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.diagnosis import explain, obstacles, waiting
from sweep_tasks.diagnosis.obstacles import Obstacle, Reason, SweepConditions, WaitingEntry
from sweep_tasks.model import MAX_TS, SweepStrategy, TableRef
from sweep_tasks.queue.parking import Hold
from sweep_tasks.store import Store
from sweep_tasks.store.sqlite import SQLiteStore
from tests.properties.explained_world import (
    ExplainedWorld,
    Step,
    histories,
    histories_of_writes,
    histories_under_records,
    readable_histories,
    wider_histories,
)
from tests.properties.searching import IN_A_ROUND, ROUNDS, WIDE, Patch, length

pytestmark = [pytest.mark.properties, pytest.mark.timeout(600)]

MOST_CAUSES = 12
History = tuple[TableRef, int | None, list[Step]]


def check(history: History, new: Callable[[], Store | None] = lambda: None) -> None:
    for ts, found in ExplainedWorld(*history, new()).explained().items():
        if found["state"] == "live":
            assert found["reason"] == "newest"
            stays(ExplainedWorld(*history, new()), ts)
        else:
            goes(ExplainedWorld(*history, new()), ts)
        if found["reason"] == "protected":
            is_the_record_to_release(history, ts, found["by"], new)


def goes(world: ExplainedWorld, ts: int) -> None:
    named: list[Any] = []
    for _ in range(MOST_CAUSES):
        found = world.explained()[ts]
        cause = found["reason"], found["by"], found["until"]
        assert cause not in named, f"{cause} was taken away before: {named}"
        assert found["reason"] != "newest", f"{named} and then it is live"
        named.append(cause)
        world.sweep_without(found)
        if ts not in world.stored():
            return
    pytest.fail(f"it is still there after {named}")


def stays(world: ExplainedWorld, ts: int) -> None:
    """With every cause removed that anything else has."""
    for _ in range(MOST_CAUSES):
        others = [each for each in world.explained().values() if each["state"] != "live"]
        if not others:
            break
        world.sweep_without(others[0])
    assert ts in world.stored(), "it was called live"


def is_the_record_to_release(history: History, ts: int, named: str, new: Callable[[], Store | None]) -> None:
    """If removing one record is enough, it is the reported one."""

    def stays_without(record: str) -> bool:
        world = ExplainedWorld(*history, new())
        world.sweep_without({"reason": "protected", "by": record, "until": None})
        return ts in world.stored()

    enough = [record for record in ExplainedWorld(*history, new()).records() if not stays_without(record)]
    assert not enough or named in enough, f"{named} was named, {enough} it takes"


def agrees(history: History) -> None:
    """For each version that an entry removes, `explain` of the table reports the same as `explain` of the cell."""
    world = ExplainedWorld(*history)
    alone = Counter((each["reason"], each["by"]) for each in world.explained().values() if each["where"])
    assert world.counted_by_the_table() == alone


@settings(max_examples=max(6, WIDE // 15))
@given(wider_histories)
def test_removing_the_reported_cause_on_sqlite_removes_the_version(history: History) -> None:
    with ExitStack() as until_the_end:
        folder = until_the_end.enter_context(tempfile.TemporaryDirectory())
        number = itertools.count()

        def new() -> Store:
            file = Path(folder) / f"{next(number)}.db"
            SQLiteStore.initialise(file)
            return until_the_end.enter_context(SQLiteStore(file, durability="off"))

        check(history, new)


# --- mistakes that the search must notice -----------------------------------------------------------------------------


def a_protection_is_compared_with_the_start(patch: Patch) -> None:
    def by_start(waits: WaitingEntry) -> WaitingEntry:
        return waits._replace(entry=waits.entry._replace(commit=waits.entry.start))

    of_records, of_hold = obstacles._record_obstacles, obstacles._hold_obstacles
    patch.setattr(obstacles, "_record_obstacles", lambda waits, *rest, **but: of_records(by_start(waits), *rest, **but))
    patch.setattr(obstacles, "_hold_obstacles", lambda waits, *rest: of_hold(by_start(waits), *rest))


def the_wrong_record_is_named(patch: Patch) -> None:
    real = obstacles._hold_obstacles

    def another(waits: WaitingEntry, hold: Hold, ts: int, around: SweepConditions) -> list[Obstacle]:
        entry = waits.entry
        covering = around.protections.holding_in_order(entry.table, entry.cell.row, MAX_TS)
        others = sorted(each.record for each in covering if each.record != hold.record)
        return [
            each._replace(by=others[0]) if each.reason is Reason.PROTECTED and others else each
            for each in real(waits, hold, ts, around)
        ]

    patch.setattr(obstacles, "_hold_obstacles", another)


def a_retention_ends_too_early(patch: Patch) -> None:
    patch.setattr(ClockHistory, "passed_at", lambda self, ts: (self.moment_of(ts) or 1) - 1_000)


def parked_entries_are_not_searched(patch: Patch) -> None:
    patch.setattr(waiting, "all_parked", lambda *_: {})


def the_queue_is_not_searched(patch: Patch) -> None:
    patch.setattr(waiting.CellSearch, "_look_up", lambda *_: ())
    patch.setattr(waiting.CellSearch, "_read", lambda *_: waiting._Read())


def what_was_judged_counts_as_queued(patch: Patch) -> None:
    patch.setattr(waiting, "_in_current_partition", lambda *_: False)


def a_delete_of_a_thorough_table_is_treated_as_live(patch: Patch) -> None:
    state = explain._state
    patch.setattr(
        explain, "_state", lambda each, outcomes, newest, strategy, acting, around: state(
            each, outcomes, newest, SweepStrategy.CONSERVATIVE, [], around)
    )  # fmt: skip


def the_newest_is_the_last_that_committed(patch: Patch) -> None:
    state = explain._state

    def by_commit(each: Any, outcomes: Any, newest: Any, *rest: Any) -> str:
        last = max(outcomes, key=outcomes.get) if outcomes else newest
        return state(each, outcomes, last, *rest)

    patch.setattr(explain, "_state", by_commit)


def open_transactions_hold_nothing(patch: Patch) -> None:
    limits = obstacles._limits
    patch.setattr(
        obstacles,
        "_limits",
        lambda *around: {
            strategy: tuple(limit for limit in found if limit.reason is not Reason.OPEN_TRANSACTION)
            for strategy, found in limits(*around).items()
        },
    )


def replicas_are_never_missing(patch: Patch) -> None:
    real = obstacles._hold_obstacles

    def all_there(*arguments: Any) -> list[Obstacle]:
        return [each for each in real(*arguments) if each.reason is not Reason.PARKED_REPLICAS]

    patch.setattr(obstacles, "_hold_obstacles", all_there)


def a_table_asks_what_an_entry_could_remove_at_most(patch: Patch) -> None:
    patch.setattr(explain, "reason_for", lambda ts, *rest, **how: obstacles.reason_for(min(ts, 0), *rest, **how))


class Mistake(NamedTuple):
    make: Callable[[Patch], None]
    after: int
    """The number of examples until it was caught, see `searching.py`."""
    histories: st.SearchStrategy[History] = histories
    check: Callable[[History], None] = check


MISTAKES = [
    Mistake(a_protection_is_compared_with_the_start, histories=histories_under_records, after=8),
    Mistake(the_wrong_record_is_named, after=2, histories=histories_under_records),
    Mistake(a_retention_ends_too_early, after=1),
    Mistake(parked_entries_are_not_searched, after=7),
    Mistake(the_queue_is_not_searched, after=1),
    Mistake(what_was_judged_counts_as_queued, after=44),
    Mistake(a_delete_of_a_thorough_table_is_treated_as_live, after=26),
    Mistake(the_newest_is_the_last_that_committed, after=16, histories=histories_of_writes),
    Mistake(open_transactions_hold_nothing, after=8),
    Mistake(replicas_are_never_missing, after=44),
    Mistake(a_table_asks_what_an_entry_could_remove_at_most, after=2, histories=readable_histories, check=agrees),
]


def length_for(these: st.SearchStrategy[History]) -> int:
    return length(mistake.after for mistake in MISTAKES if mistake.histories is these)


@settings(max_examples=length_for(histories))
@given(wider_histories)
def test_without_the_reported_cause_the_version_is_removed(history: History) -> None:
    check(history)


@settings(max_examples=length_for(histories_under_records))
@given(histories_under_records)
def test_without_the_reported_record_the_version_is_removed(history: History) -> None:
    check(history)


@settings(max_examples=length_for(histories_of_writes))
@given(histories_of_writes)
def test_nothing_is_named_for_the_newest_whenever_others_committed(history: History) -> None:
    check(history)


@settings(max_examples=max(60, length_for(readable_histories)))
@given(readable_histories)
def test_a_table_counts_each_version_under_the_reason_that_is_given_for_it_alone(history: History) -> None:
    agrees(history)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.make.__name__)
def test_the_search_notices_when(monkeypatch: pytest.MonkeyPatch, mistake: Mistake) -> None:
    mistake.make(monkeypatch)

    with pytest.raises((AssertionError, pytest.fail.Exception, KeyError, BaseExceptionGroup)):
        search(mistake.histories, mistake.check)


@pytest.mark.long
@pytest.mark.parametrize("make", [the_wrong_record_is_named, the_newest_is_the_last_that_committed])
def test_the_search_of_all_histories_notices_when(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[Patch], None]
) -> None:
    make(monkeypatch)

    with pytest.raises((AssertionError, pytest.fail.Exception, KeyError, BaseExceptionGroup)):
        search(histories)


def search(these: st.SearchStrategy[History], check: Callable[[History], None] = check) -> None:
    for number in range(ROUNDS):

        @seed(number)
        @settings(max_examples=IN_A_ROUND, phases=[Phase.generate], database=None)
        @given(these)
        def one(history: History) -> None:
            check(history)

        one()
