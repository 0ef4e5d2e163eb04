"""Whose turn it is to be scanned, lane by lane, and the form of a scan in the Airflow UI.

Pools and tasks must be there when a DAG file is read, and tables are not known then. So there is a fixed number of
lanes, each a task in a one-slot pool, and a table always falls to the same lane by its name: whoever wants to scan it,
by turns or by hand, waits in that lane, and so no table is scanned twice at once. If the number of lanes is changed
while a scan is under way, the run that stands in the store tells the second one that the first is at work.

Who was asked for by hand waits for its lane for as long as it takes. Turns do not: there will be others. A lane that is
in use is left out when turns are given, and turns that did not begin in time are over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import mmh3
from airflow.sdk import Param

from sweep_tasks.config import MAX_PAGE_VERSIONS
from sweep_tasks.errors import BadValue
from sweep_tasks.model import TableRef

if TYPE_CHECKING:
    from sweep_tasks.clock import Clock
    from sweep_tasks.config import Settings
    from sweep_tasks.store.contract import Store

BY_HAND = "asked for by hand"
_WHAT, _HOW_MUCH = "What to scan", "How much"
_LATE_S = 600
"""How long the turns of a run may wait for their lane."""


class Planned(NamedTuple):
    """A turn of a table in its lane. 0 seconds is no limit."""

    table: str
    why: str
    seconds: float
    until_ms: int | None = None
    """When the turns of its run are over, however often they are tried. Not for those asked for by hand."""


def lane_task(lane: int) -> str:
    return f"lane_{lane}"


def lane_of(table: TableRef, lanes: int) -> int:
    return mmh3.hash(str(table), signed=False) % lanes


def legacy_form() -> dict[str, Param]:
    return {
        "table": Param(
            None,
            type=["string", "null"],
            title="Table",
            description="For example shop.orders. Empty: by turns, whichever needs it most.",
            section=_WHAT,
        ),
        "from_row": Param(
            "",
            type=["string", "null"],
            pattern="^([0-9a-fA-F]{2})*$",
            title="From row",
            description="In hexadecimal: begin at this row of the table, in the store's own order. Empty: all of it.",
            section=_WHAT,
        ),
        "anew": Param(
            False,
            type="boolean",
            title="Anew",
            description="From the beginning, even if a run of the table could be gone on with.",
            section=_WHAT,
        ),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Count what would go; remove nothing, publish nothing.",
            section=_WHAT,
        ),
        "max_cells": Param(
            0,
            type="integer",
            minimum=0,
            title="Cells at most",
            description="The scan of a table stops after so many, the next one goes on from there. 0: no limit.",
            section=_HOW_MUCH,
        ),
        "max_seconds": Param(
            0,
            type="number",
            minimum=0,
            title="Seconds at most",
            description="For the table named above. By turns the setting legacy_budget_s decides. 0: no limit.",
            section=_HOW_MUCH,
        ),
        "batch": Param(
            0,
            type="integer",
            minimum=0,
            maximum=MAX_PAGE_VERSIONS,
            title="Versions at a time",
            description="Fewer are easier on the store. 0: as the setting legacy_batch_versions says.",
            section=_HOW_MUCH,
        ),
    }


def planned(store: Store, settings: Settings, clock: Clock, params: Mapping[str, Any]) -> dict[str, list[Planned]]:
    """The turns of each lane that has some, by its task."""
    if params["table"]:
        return _by_hand(store, settings, params)
    if params["from_row"]:
        raise BadValue("from_row", "is a row of one table; name the table, or leave it empty", reason="no_table")
    return dict(_by_turns(store, settings, clock))


def _by_hand(store: Store, settings: Settings, params: Mapping[str, Any]) -> dict[str, list[Planned]]:
    from sweep_tasks.legacy.order import swept_strategy

    table = TableRef.parse(params["table"])
    swept_strategy(store, table)
    turn = Planned(str(table), BY_HAND, params["max_seconds"])
    return {lane_task(lane_of(table, settings.legacy_lanes)): [turn]}


def _by_turns(store: Store, settings: Settings, clock: Clock) -> Iterator[tuple[str, list[Planned]]]:
    from sweep_tasks.legacy.candidates import candidates, policy
    from sweep_tasks.legacy.priority import turns
    from sweep_tasks.sweep.pauses import Pauses

    if not settings.legacy_budget_s:
        return
    paused = Pauses(store).standing()
    until_ms = clock.now_ms() + 1000 * (settings.legacy_budget_s + _LATE_S)
    found = [each for each in candidates(store, settings, clock) if not paused.holds(each.table)]
    for lane in range(settings.legacy_lanes):
        ours = [each for each in found if lane_of(each.table, settings.legacy_lanes) == lane]
        chosen = turns(ours, policy(settings), settings.legacy_budget_s, clock.now_ms())
        if chosen:
            yield lane_task(lane), [Planned(str(each.table), each.why.label, each.seconds, until_ms) for each in chosen]


def still_due(store: Store, settings: Settings, clock: Clock, table: TableRef) -> bool:
    """Whether a table that was given a turn would still be given one: it may have been scanned, paused or dropped while
    its lane was in use."""
    from sweep_tasks.legacy.candidates import candidates, policy
    from sweep_tasks.legacy.priority import reason
    from sweep_tasks.sweep.pauses import Pauses

    if Pauses(store).standing().holds(table):
        return False
    found = candidates(store, settings, clock, only=[table])
    return any(reason(each, policy(settings), clock.now_ms()) is not None for each in found)
