"""Every order of calls that a few processes can make, run with the real code, and proof that a wrong one is found."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TypeVar

import pytest

from sweep_tasks import retries
from sweep_tasks.model import Cell, SweepStrategy
from sweep_tasks.protection.records import Mode
from sweep_tasks.store import Store
from sweep_tasks.store.schema import PROTECTIONS, THRESHOLDS
from tests.interleavings import processes
from tests.interleavings.emptying import EMPTYING, NEW, SWEPT, SWEPT_WIDER, write
from tests.interleavings.emptying import WIDER as EMPTYING_WIDER
from tests.interleavings.emptying import Scenario as Emptying
from tests.interleavings.emptying_reversed import REVERSED
from tests.interleavings.processes import Actor
from tests.interleavings.scenarios import RECORDS, THREE, WIDER, WITH_A_SWEEP, Scenario
from tests.interleavings.search import Contents, Explored, Search, State, Violation
from tests.interleavings.stale_reads import reading_first
from tests.interleavings.world import TABLE, A, World, change, move, protect, read, sweep, sweep_everything, truncate
from tests.properties.mistakes import MISTAKES

AnyScenario = TypeVar("AnyScenario", Scenario, Emptying)

pytestmark = pytest.mark.timeout(1_200)

STRATEGIES = [SweepStrategy.CONSERVATIVE, SweepStrategy.THOROUGH]

# Those that take a few seconds at most, and the rest in `make test-long`.
ANSWERS_LOST = ["drop and write", "drop and drop", "create and create"]
EMPTIED_IN_PIECES = [
    "truncate and write",
    "truncate and read twice",
    "truncate and protect",
    "drop, and create and write",
]
SWEPT_IN_PIECES = ["read", "release"]


# --- the real code ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", WITH_A_SWEEP)
def test_no_order_of_calls_of_a_sweep_and_another_process_breaks_an_invariant(
    name: str, strategy: SweepStrategy
) -> None:
    no_violation(WITH_A_SWEEP[name](strategy))


@pytest.mark.parametrize("name", RECORDS)
def test_no_order_of_calls_of_two_processes_that_change_records_breaks_an_invariant(name: str) -> None:
    no_violation(RECORDS[name]())


@pytest.mark.parametrize("name", THREE)
def test_no_order_of_calls_of_three_processes_breaks_an_invariant(name: str) -> None:
    no_violation(THREE[name]())


TWO_ATTEMPTS = retries.RetryRule(0, 0, attempts=2)
"""Two processes that take over from each other would continue for long."""


@pytest.mark.parametrize("name", EMPTYING)
def test_no_order_of_calls_during_a_truncation_breaks_an_invariant(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "EMPTIED_TABLE", TWO_ATTEMPTS)
    no_violation(EMPTYING[name]())


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", SWEPT)
def test_no_order_of_calls_beside_a_sweep_breaks_an_invariant_while_a_table_is_emptied_by(
    name: str, strategy: SweepStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "EMPTIED_TABLE", TWO_ATTEMPTS)
    no_violation(SWEPT[name](strategy))


@pytest.mark.long
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", SWEPT_WIDER)
def test_no_order_of_calls_of_three_processes_beside_a_sweep_breaks_an_invariant(
    name: str, strategy: SweepStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "EMPTIED_TABLE", TWO_ATTEMPTS)
    no_violation(SWEPT_WIDER[name](strategy))


@pytest.mark.parametrize("name", ANSWERS_LOST)
def test_no_order_of_calls_during_a_truncation_with_a_lost_answer_breaks_an_invariant(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "EMPTIED_TABLE", TWO_ATTEMPTS)
    no_violation(EMPTYING[name](), lost_answers=1)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("name", EMPTIED_IN_PIECES)
def test_no_order_of_calls_during_a_truncation_in_pieces_breaks_an_invariant(
    name: str, backwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "EMPTIED_TABLE", TWO_ATTEMPTS)
    no_violation(in_pieces(EMPTYING[name](), backwards))


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", SWEPT_IN_PIECES)
def test_no_order_of_calls_beside_a_sweep_in_pieces_breaks_an_invariant(
    name: str, strategy: SweepStrategy, backwards: bool
) -> None:
    no_violation(in_pieces(WITH_A_SWEEP[name](strategy), backwards))


@pytest.mark.long
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", sorted({*WITH_A_SWEEP} - {*SWEPT_IN_PIECES}))
def test_no_order_of_calls_of_any_process_in_pieces_breaks_an_invariant(
    name: str, strategy: SweepStrategy, backwards: bool
) -> None:
    no_violation(in_pieces(WITH_A_SWEEP[name](strategy), backwards))


@pytest.mark.long
@pytest.mark.parametrize("name", sorted({*EMPTYING} - {*EMPTIED_IN_PIECES}))
def test_no_order_of_calls_during_any_truncation_in_pieces_breaks_an_invariant(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "EMPTIED_TABLE", TWO_ATTEMPTS)
    no_violation(in_pieces(EMPTYING[name]()))


@pytest.mark.long
@pytest.mark.parametrize("name", sorted({*EMPTYING} - {*ANSWERS_LOST}))
def test_no_order_of_calls_during_any_truncation_with_a_lost_answer_breaks_an_invariant(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "EMPTIED_TABLE", TWO_ATTEMPTS)
    no_violation(EMPTYING[name](), lost_answers=1)


@pytest.mark.long
@pytest.mark.parametrize("name", EMPTYING_WIDER)
def test_no_order_of_calls_of_three_processes_during_a_truncation_breaks_an_invariant(name: str) -> None:
    no_violation(EMPTYING_WIDER[name]())


@pytest.mark.long
@pytest.mark.parametrize("name", WIDER)
def test_no_order_of_calls_of_two_long_runs_breaks_an_invariant(name: str) -> None:
    no_violation(WIDER[name]())


@pytest.mark.parametrize("name", ["protect", "move", "release, everything parked", "protect in a transaction"])
def test_no_order_of_calls_with_a_lost_answer_breaks_an_invariant(name: str) -> None:
    no_violation(WITH_A_SWEEP[name](SweepStrategy.CONSERVATIVE), lost_answers=1)


@pytest.mark.long
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", WITH_A_SWEEP)
def test_no_order_of_calls_with_two_lost_answers_breaks_an_invariant(name: str, strategy: SweepStrategy) -> None:
    no_violation(WITH_A_SWEEP[name](strategy), lost_answers=2)


@pytest.mark.parametrize("name", RECORDS)
def test_no_order_of_calls_that_change_records_with_a_lost_answer_breaks_an_invariant(name: str) -> None:
    no_violation(RECORDS[name](), lost_answers=1)


def in_pieces(scenario: AnyScenario, backwards: bool = False) -> AnyScenario:
    return scenario._replace(actors=tuple(processes.in_pieces(each, backwards) for each in scenario.actors))


def no_violation(scenario: Scenario | Emptying, lost_answers: int = 0) -> None:
    explored = scenario.explore(lost_answers)
    sys.stdout.write(f"{explored}\n")
    assert scenario.ends <= explored.outcomes, f"{explored}; it never ends with {scenario.ends - explored.outcomes}"


# --- each of the orders that keep it so, the other way round ----------------------------------------------------------


WRONG_ORDER: dict[str, Callable[[], Scenario]] = {
    "protect checks before its record is written": lambda: Scenario(
        World(), (reading_first(THRESHOLDS, protect(25)), sweep()), set()
    ),
    "protect after checks before its record is written": lambda: Scenario(
        World(), (reading_first(THRESHOLDS, protect(15, Mode.AFTER)), sweep()), set()
    ),
    "sweep reads the protections before it publishes": lambda: Scenario(
        World(), (protect(25), reading_first(PROTECTIONS, sweep())), set()
    ),
    "move checks before it holds both": lambda: Scenario(
        World().after(protect(15)), (reading_first(THRESHOLDS, move(25)), sweep()), set()
    ),
    "truncate reads the protections before it publishes its mark": lambda: Scenario(
        World(), (reading_first(PROTECTIONS, truncate()), protect(25)), set()
    ),
    "a retention is relied on as of before it was on record": lambda: Scenario(
        World(), (reading_first(THRESHOLDS, change(50)), sweep()), set()
    ),
    "sweep reads the tables before it publishes": lambda: Scenario(
        World(), (change(50), reading_first(None, sweep())), set()
    ),
    "a reader checks the threshold before it reads": lambda: Scenario(
        World(), (reading_first(THRESHOLDS, read(25)), sweep()), set()
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_ORDER)
def test_an_order_of_calls_that_breaks_an_invariant_is_found_when(name: str) -> None:
    with pytest.raises(Violation, match=r"a reader (of|at) .*\n1\. "):
        WRONG_ORDER[name]().explore()


def test_a_writer_that_checks_before_its_entries_are_queued_is_found() -> None:
    """It commits what the sweep has passed, and no sweep removes what it replaced."""
    hasty = reading_first(THRESHOLDS, write())
    with pytest.raises(Violation):
        Scenario(World().expect(NEW), (hasty, sweep_everything(SweepStrategy.CONSERVATIVE)), set()).explore()


@pytest.mark.parametrize("name", REVERSED)
def test_an_order_of_truncation_that_breaks_an_invariant_is_found_when(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "EMPTIED_TABLE", TWO_ATTEMPTS)
    scenario = EMPTYING[REVERSED[name].scenario]()
    REVERSED[name].plant(monkeypatch)
    with pytest.raises(Violation, match=r"\n1\. "):
        scenario.explore(REVERSED[name].lost_answers)


@pytest.mark.parametrize("name", EMPTIED_IN_PIECES[1:2])
def test_an_order_of_emptying_in_pieces_that_does_harm_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page is removed with its table's mark checked before, and not with the decision."""
    monkeypatch.setattr(retries, "EMPTIED_TABLE", TWO_ATTEMPTS)
    REVERSED["a_reader_sees_what_started_below_the_mark"].plant(monkeypatch)
    with pytest.raises(Violation, match=r"\n1\. "):
        in_pieces(EMPTYING[name]()).explore()


def test_a_delete_marker_that_is_removed_in_one_call_with_what_it_hides_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That is safe as long as calls are atomic: only a search in pieces finds it."""
    MISTAKES["a_delete_marker_is_removed_in_one_call_with_what_it_hides"].make(monkeypatch)
    scenario = WITH_A_SWEEP["release"]
    no_violation(scenario(SweepStrategy.THOROUGH))
    with pytest.raises(Violation, match=r"a reader of .*\n1\. "):
        in_pieces(scenario(SweepStrategy.THOROUGH)).explore()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_sweep_that_removes_what_was_written_to_a_table_created_again_is_found(
    strategy: SweepStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    MISTAKES["the_entrys_own_version_is_removed_too"].make(monkeypatch)
    with pytest.raises(Violation, match=r"is lost"):
        SWEPT["create and write"](strategy).explore()


# --- the search itself ------------------------------------------------------------------------------------------------


class Unconcerned:
    def at_rest(self, state: State) -> None:
        """Nothing."""

    def step(self, before: Contents, after: Contents) -> None:
        """Nothing."""

    def at_the_end(self, state: State) -> None:
        """Nothing."""


class AllCounted(Unconcerned):
    """Both have counted to two."""

    def at_the_end(self, state: State) -> None:
        assert state.contents.store.get(TABLE, {A: 2})[A].value == b"2"


def writer(number: int, calls: int) -> Actor:
    def work(store: Store) -> None:
        for each in range(calls):
            store.put(1, {TABLE: {Cell(b"%d" % number, b"%d" % each): b"v"}})

    return Actor(f"writer {number}", work)


def counter(name: str) -> Actor:
    """Reads, then writes: what another process has written in between is lost."""

    def work(store: Store) -> None:
        found = store.get(TABLE, {A: 2}).get(A)
        store.put(1, {TABLE: {A: b"%d" % (int(found.value) + 1 if found else 1)}})

    return Actor(name, work)


def empty() -> World:
    world = World()
    world.store.truncate(TABLE, before=100)
    return world


def orders(*actors: Actor) -> Explored:
    return Search(empty().store, actors, Unconcerned()).run()


def test_two_processes_with_three_and_four_calls_have_thirty_five_orders() -> None:
    found = orders(writer(1, 3), writer(2, 4))
    assert found.schedules == math.comb(7, 3)
    assert found.states == 4 * 5 - 1
    assert found.longest == 7


def test_three_processes_are_tried_in_every_order() -> None:
    assert orders(writer(1, 2), writer(2, 2), writer(3, 2)).schedules == math.factorial(6) // 2**3


def test_states_that_several_orders_lead_to_are_checked_once() -> None:
    found = orders(writer(1, 10), writer(2, 10))
    assert found.schedules == math.comb(20, 10)
    assert found.states == 11 * 11 - 1


def test_a_lost_update_is_found_and_its_schedule_is_reported() -> None:
    with pytest.raises(Violation) as found:
        Search(empty().store, [counter("one"), counter("two")], AllCounted()).run()
    way = str(found.value).splitlines()
    assert {"1. one: get app.t", "2. two: get app.t"} <= set(way) or {"1. two: get app.t", "2. one: get app.t"} <= set(
        way
    )
    assert {"one: done", "two: done"} <= set(way)


def test_the_store_that_a_search_starts_from_stays_as_it_is() -> None:
    world = empty()
    Search(world.store, [writer(1, 3)], Unconcerned()).run()
    assert world.store.scan(TABLE, 100).items == []


def test_a_nondeterministic_process_is_refused() -> None:
    calls = iter(["scan", "tables"])
    restless = Actor("restless", lambda store: store.scan(TABLE, 1) if next(calls) == "scan" else store.tables())
    with pytest.raises(AssertionError, match=r"called tables\b.*\bscan"):
        Search(empty().store, [restless], Unconcerned()).run()
