"""The life of a table in every order of steps: the protocol does no harm, and removing any clause does.

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
def test_no_order_of_steps_does_harm_to_those_who(name: str) -> None:
    nothing_goes_wrong(SMALL[name])


def test_no_order_of_steps_does_harm_to_those_who_truncate_write_protect_and_read() -> None:
    nothing_goes_wrong(MEDIUM)


@pytest.mark.parametrize("world", WORLDS)
def test_no_order_of_steps_of_any_three_processes_does_harm_to_a_table_that_is(world: str) -> None:
    nothing_goes_wrong(*every(3, WORLDS[world]))


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("world", WORLDS)
def test_no_order_of_steps_of_any_four_processes_does_harm_to_a_table_that_is(world: str) -> None:
    nothing_goes_wrong(*every(4, WORLDS[world]))


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", LARGE)
def test_no_order_of_steps_of_five_processes_does_harm_to_those_who(name: str) -> None:
    nothing_goes_wrong(LARGE[name])


def nothing_goes_wrong(*scenarios: Scenario, protocol: Protocol | None = None) -> None:
    states, transitions = 0, Transitions(protocol or Protocol())
    for scenario in scenarios:
        explored = scenario.explore(transitions)
        assert scenario.ends <= explored.ends, f"it never ends with {scenario.ends - explored.ends}"
        states += explored.states
    sys.stdout.write(f"{states:,} states\n")


# --- each of its clauses removed, or reversed -------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
def test_harm_is_found_where_the_protocol_is_changed_to(order: type[Wrong]) -> None:
    with pytest.raises(Harmful) as found:
        order.scenario.explore(Transitions(order()))
    sys.stdout.write(f"{found.value}\n")
    assert found.value.harm is order.harm


def test_the_processes_that_find_it_do_no_harm_by_the_protocol() -> None:
    nothing_goes_wrong(*{order.scenario for order in ORDERS})


@pytest.mark.parametrize("variant", HARMLESS)
def test_no_harm_comes_of_what_is_said_to_be_harmless(variant: type[Harmless]) -> None:
    nothing_goes_wrong(variant.scenario, protocol=variant())


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("variant", HARMLESS)
def test_no_harm_comes_of_it_to_any_three_processes(variant: type[Harmless], world: str) -> None:
    nothing_goes_wrong(*every(3, WORLDS[world]), protocol=variant())


# --- the search itself ------------------------------------------------------------------------------------------------


def test_states_that_several_orders_lead_to_are_visited_once() -> None:
    def work(protocol: Protocol) -> Steps:
        for _ in range(9):
            yield read_row()
        return "done"

    processes = [Process(name, work) for name in ("one", "two", "three")]
    explored = on(ACTIVE, *processes).explore(Transitions(Protocol()))
    assert (explored.states, explored.longest) == (10**3, 27)


def test_a_step_that_another_can_come_between_is_tried_both_ways() -> None:
    def work(protocol: Protocol) -> Steps:
        return f"{(yield fresh())} {(yield fresh())}"

    explored = on(ACTIVE, Process("one", work), Process("two", work)).explore(Transitions(Protocol()))
    assert len(explored.ends) == 6


def test_the_way_to_the_harm_is_a_shortest_one() -> None:
    with pytest.raises(Harmful) as found:
        on(ACTIVE, TRUNCATE).explore(Transitions(orders.AnnouncementNeverTakenOver()))
    assert len(found.value.steps) == 2
