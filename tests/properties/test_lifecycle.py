"""The life of a table in every order of steps: the protocol keeps all invariants, and removing any clause breaks one.

The model is written from the protocol and is separate from the code: `docs/decisions/0007-emptying-a-table.md`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TypeVar

import pytest

from tests.interleavings.lifecycle import harmless, orders, orders_clients, orders_create
from tests.interleavings.lifecycle.harmless import Harmless
from tests.interleavings.lifecycle.orders import Wrong
from tests.interleavings.lifecycle.protocol import Protocol, Steps
from tests.interleavings.lifecycle.scenarios import (
    ABSENT,
    ACTIVE,
    GONE,
    LARGE,
    MEDIUM,
    SMALL,
    TRUNCATE,
    Scenario,
    every,
    on,
)
from tests.interleavings.lifecycle.search import Harmful, Process, Transitions
from tests.interleavings.lifecycle.world import fresh, read_row

Variant = TypeVar("Variant", bound=Protocol)


def variants(module: ModuleType, kind: type[Variant]) -> list[type[Variant]]:
    """The variants of the protocol that a module defines."""
    classes = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, kind)]
    return [each for each in classes if each.__module__ == module.__name__ and each is not kind]


ORDERS = [each for module in (orders, orders_create, orders_clients) for each in variants(module, Wrong)]
HARMLESS = variants(harmless, Harmless)
WORLDS = {"active": ACTIVE, "gone": GONE, "absent": ABSENT}


# --- the protocol -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_no_order_of_steps_breaks_an_invariant_of_processes_that(name: str) -> None:
    no_violation(SMALL[name])


def test_no_order_of_steps_of_truncate_write_protect_and_read_breaks_an_invariant() -> None:
    no_violation(MEDIUM)


@pytest.mark.parametrize("world", WORLDS)
def test_no_order_of_steps_of_any_three_processes_breaks_an_invariant_of_a_table_that_is(world: str) -> None:
    no_violation(*every(3, WORLDS[world]))


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("world", WORLDS)
def test_no_order_of_steps_of_any_four_processes_breaks_an_invariant_of_a_table_that_is(world: str) -> None:
    no_violation(*every(4, WORLDS[world]))


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", LARGE)
def test_no_order_of_steps_of_five_processes_breaks_an_invariant_of_processes_that(name: str) -> None:
    no_violation(LARGE[name])


def no_violation(*scenarios: Scenario, protocol: Protocol | None = None) -> None:
    states, transitions = 0, Transitions(protocol or Protocol())
    for scenario in scenarios:
        explored = scenario.explore(transitions)
        assert scenario.ends <= explored.ends, f"it never ends with {scenario.ends - explored.ends}"
        states += explored.states
    sys.stdout.write(f"{states:,} states\n")


# --- each of its clauses removed, or reversed -------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
def test_a_violation_is_found_if_the_protocol_is_changed_to(order: type[Wrong]) -> None:
    with pytest.raises(Harmful) as found:
        order.scenario.explore(Transitions(order()))
    sys.stdout.write(f"{found.value}\n")
    assert found.value.harm is order.harm


def test_the_same_processes_break_no_invariant_under_the_protocol() -> None:
    no_violation(*{order.scenario for order in ORDERS})


@pytest.mark.parametrize("variant", HARMLESS)
def test_orders_declared_harmless_break_no_invariant(variant: type[Harmless]) -> None:
    no_violation(variant.scenario, protocol=variant())


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("variant", HARMLESS)
def test_no_three_processes_break_an_invariant(variant: type[Harmless], world: str) -> None:
    no_violation(*every(3, WORLDS[world]), protocol=variant())


# --- the search itself ------------------------------------------------------------------------------------------------


def test_states_that_several_orders_lead_to_are_visited_once() -> None:
    def work(protocol: Protocol) -> Steps:
        for _ in range(9):
            yield read_row()
        return "done"

    processes = [Process(name, work) for name in ("one", "two", "three")]
    explored = on(ACTIVE, *processes).explore(Transitions(Protocol()))
    assert (explored.states, explored.longest) == (10**3, 27)


def test_a_step_that_can_be_interleaved_is_tried_in_both_orders() -> None:
    def work(protocol: Protocol) -> Steps:
        return f"{(yield fresh())} {(yield fresh())}"

    explored = on(ACTIVE, Process("one", work), Process("two", work)).explore(Transitions(Protocol()))
    assert len(explored.ends) == 6


def test_the_reported_path_to_a_violation_is_a_shortest_one() -> None:
    with pytest.raises(Harmful) as found:
        on(ACTIVE, TRUNCATE).explore(Transitions(orders.AnnouncementNeverTakenOver()))
    assert len(found.value.steps) == 2
