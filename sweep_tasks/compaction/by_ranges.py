"""A round on a node whose files nobody can read from here: by what sweeps have counted, range by range of the ring.

Every sweep keeps how many tombstones it wrote where on the ring (`sweep/deletions.py`). Where gc_grace has passed for
many of them, Cassandra is told to compact that stretch of the ring: all files that reach into it, together. As most
files reach all around the ring, one compaction serves all ranges of a table, and may cost as much as the table has on
the node. What it drops can't be measured: the ranges are marked as compacted, and come again when sweeps add to them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

from sweep_tasks.clock import SystemClock
from sweep_tasks.compaction.documents import Document, of_plan, of_stopped
from sweep_tasks.compaction.execution import Outcome, Result
from sweep_tasks.compaction.node_files import Order, remembered, summary_for, tables_of
from sweep_tasks.compaction.planning import Compaction, Plan, Stopped, all_stopped, week_of
from sweep_tasks.compaction.proof import Blocked, Blocker, by_the_table
from sweep_tasks.compaction.remembered import DECLINED
from sweep_tasks.compaction.rules import Reason
from sweep_tasks.compaction.server import Server, TableState, awaited, blocker_in, look_at
from sweep_tasks.compaction.strategies import Kind, strategy_of
from sweep_tasks.compaction.thresholds import Thresholds, thresholds_in
from sweep_tasks.compaction.turns import Ready, in_turn
from sweep_tasks.config import Settings
from sweep_tasks.errors import NodetoolFailed
from sweep_tasks.model import LEAST_TOKEN
from sweep_tasks.opening import borrowed_store
from sweep_tasks.store.cassandra.options import PhysicalTable
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.deletions import Deletions, Left
from sweep_tasks.sweep.ranges import DeletedRange

MOST_TOLD = 20
"""Ranges of a table that are told one by one, those with the most tombstones."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What sweeps have left in a table on a node."""

    table: PhysicalTable
    left: Left
    dense: tuple[DeletedRange, ...]
    """Of all, where there is much."""
    droppable: tuple[DeletedRange, ...]
    """Of what is older than gc_grace."""

    @property
    def stretch(self) -> tuple[int, int]:
        """The first and the last token of what may go, both included."""
        return self.droppable[0].first_token, self.droppable[-1].last_token

    @property
    def tombstones(self) -> int:
        return sum(each.deleted for each in self.droppable)

    @property
    def waiting(self) -> int:
        return max(0, self.left.tally.tombstones - self.left.droppable.tombstones)

    @property
    def waits_until_s(self) -> int | None:
        """When gc_grace will have passed for all of it; none if it has."""
        return self.left.all_from_ms // 1_000 if self.waiting else None


def swept_of(store: Store, table: PhysicalTable, node: str | None, now_ms: int, at_least: int) -> Swept | None:
    """By the table's own gc_grace; None where nothing is known to be left."""
    left = Deletions(store).left(table.table, table.gc_grace_s, now_ms, node) if table.table else None
    if left is None:
        return None
    dense, droppable = (each.tombstone_histogram().dense_ranges(at_least) for each in (left.tally, left.droppable))
    return Swept(table, left, tuple(dense), tuple(droppable))


def told_of_all(settings: Settings, node: str | None = None) -> list[Document]:
    """The ranges of all tables with most tombstones, those with most first; also where `run_warn` is off, as this
    only shows them."""
    now_ms, at_least = SystemClock().now_ms(), max(1, settings.compaction_run_warn)
    with borrowed_store(settings) as store:
        found = [swept_of(store, table, node, now_ms, at_least) for table in tables_of(settings).values()]
    told = [each for swept in found if swept for each in described(swept)]
    return sorted(told, key=lambda each: -each["tombstones"])[:MOST_TOLD]


def command_for(table: PhysicalTable, first_token: int, last_token: int) -> str:
    """As it has to be typed on the node; the start is not part of what nodetool takes."""
    return " ".join(["nodetool", *_arguments(table, first_token, last_token)])


def described(swept: Swept, most: int = MOST_TOLD) -> list[Document]:
    """Its ranges with most tombstones, each with the command that compacts it."""
    histogram = swept.left.droppable.tombstone_histogram()
    worst = sorted(swept.dense, key=lambda each: (-each.deleted, each.first_token))[:most]
    return [
        {
            "table": swept.table.qualified,
            "first_token": each.first_token,
            "last_token": each.last_token,
            "tombstones": each.deleted,
            "droppable": min(each.deleted, histogram.deleted_between(each.first_token, each.last_token)),
            "command": command_for(swept.table, each.first_token, each.last_token),
        }
        for each in worst
    ]


def measured(order: Order, settings: Settings) -> Document:
    """In the shape of a measurement of files; counts are those of the sweeps, and of runs nothing is known."""
    summary = summary_for(order, settings)
    for name, each in _swept(order, settings).items():
        counts = {"files": 0, "bytes": 0, "droppable": each.left.droppable.tombstones, "waiting": each.waiting}
        summary.count(name, {**counts, "droppable_from_s": each.waits_until_s})
    return summary.document(None)


@dataclass(frozen=True, slots=True)
class Look:
    """All that is known of a node at one moment."""

    server: Server
    swept: Mapping[str, Swept]
    plan: Plan

    def told(self, stopped: Stopped) -> Document:
        """With the command that an operator may give all the same; for time windows one that keeps them apart."""
        document, swept = of_stopped(stopped), self.swept[stopped.table]
        if stopped.by.blocker is Blocker.TIME_WINDOWS:
            document["command"] = f"nodetool garbagecollect {swept.table.keyspace} {swept.table.name}"
        elif document["command"] is None and swept.droppable:
            document["command"] = command_for(swept.table, *swept.stretch)
        return document


def plan(order: Order, settings: Settings, budget: int) -> Document:
    look = _look(order, settings, budget)
    ranges = [told for each in look.swept.values() for told in described(each)]
    return {"statistics": None, "files": [], **of_plan(look.plan, look.server, look.told), "ranges": ranges}


def carry_out(order: Order, settings: Settings, budget: int, before: Document) -> Document:
    """Plans anew when the server has nothing to do of its own; what was in memory is in files by then."""

    def ready() -> Ready:
        awaited(order.node, settings.compaction_wait_s)
        look = _look(order, settings, budget)
        return Ready(look.plan, look.server, partial(_compacted, order, settings, look.swept), look.told)

    return in_turn(order, settings.compaction_wait_s, before, ready)


def planned(
    swept: Mapping[str, Swept],
    states: Mapping[str, TableState],
    thresholds: Mapping[str, Thresholds],
    budget: int,
    declined: Collection[str] = (),
) -> Plan:
    """Tables with most to drop first; those left out that the server failed to compact of late. Pure."""
    compactions: list[Compaction] = []
    stopped: list[Stopped] = []
    for each in sorted(swept.values(), key=lambda one: (-one.tombstones, one.table.qualified)):
        name = each.table.qualified
        if thresholds[name].off or not each.dense:
            continue
        left = budget - sum(one.bytes for one in compactions)
        found = Blocked(Blocker.DECLINED) if name in declined else _judged(each, states[name], left, budget)
        candidate = "{} … {}".format(*each.stretch) if each.droppable else "all of it"
        if isinstance(found, Blocked):
            stopped.append(Stopped(candidate, name, Reason.SWEPT, found, each.tombstones, each.waiting))
        else:
            rank = len(compactions) + 1
            compactions.append(Compaction(candidate, name, Reason.SWEPT, rank, (), found, each.tombstones, 0))
    return Plan(tuple(compactions), tuple(stopped))


def _judged(swept: Swept, state: TableState, left: int, budget: int) -> int | Blocked:
    """Bytes that it may cost, or what it is kept from being compacted by."""
    strategy = strategy_of(swept.table.compaction)
    if strategy is None:
        return Blocked(Blocker.STRATEGY)
    if blocked := by_the_table(strategy, state.compacting):
        return blocked
    if strategy.kind is Kind.TIME_WINDOWS:
        return Blocked(Blocker.TIME_WINDOWS)
    if not swept.droppable:
        return Blocked(Blocker.GC_GRACE, until_s=swept.waits_until_s)
    cost = strategy.cost(state.size, 2)
    if cost > budget:
        return Blocked(Blocker.TOO_LARGE)
    return cost if cost <= left else Blocked(Blocker.BUDGET)


def _look(order: Order, settings: Settings, budget: int) -> Look:
    swept, server = _swept(order, settings), look_at(order.node, order.tables)
    thresholds = thresholds_in(settings, order.tables.values())
    declined = _declined(order, swept)
    found = planned(swept, server.tables, {name: thresholds.of(name) for name in swept}, budget, declined)
    blocker = blocker_in(server.work, server.repairing)
    return Look(server, swept, all_stopped(found, blocker) if blocker else found)


def _swept(order: Order, settings: Settings) -> dict[str, Swept]:
    """By Cassandra's name of the table. Where `run_warn` is off, no range has enough to be compacted."""
    thresholds = thresholds_in(settings, order.tables.values())
    found: dict[str, Swept] = {}
    with borrowed_store(settings) as store:
        for table in order.tables.values():
            at_least = thresholds.of(table.qualified).run_warn
            swept = swept_of(store, table, order.node.name, 1_000 * order.now_s, at_least)
            if swept is not None:
                found[table.qualified] = swept
    return found


def _compacted(order: Order, settings: Settings, swept: Mapping[str, Swept], compaction: Compaction) -> Result:
    table, (first, last) = swept[compaction.table].table, swept[compaction.table].stretch
    try:
        order.node.nodetool(*_arguments(table, first, last), changes=True)
    except NodetoolFailed:
        remembered(order, DECLINED).add({table.qualified: _cause(table, order.now_s)})
        raise
    if table.table:
        with borrowed_store(settings) as store:
            at_ms = 1_000 * order.now_s
            Deletions(store).compacted(table.table, order.node.name, table.gc_grace_s, at_ms, first, last)
    return Result(compaction, Outcome.UNKNOWN, before=None, after=None)


def _declined(order: Order, swept: Mapping[str, Swept]) -> set[str]:
    causes = remembered(order, DECLINED).causes()
    return {name for name, each in swept.items() if causes.get(name) == _cause(each.table, order.now_s)}


def _cause(table: PhysicalTable, now_s: int) -> str:
    """The same for a week at most, as with files."""
    return f"{table.gc_grace_s} {sorted(table.compaction.items())} {week_of(now_s)}"


def _arguments(table: PhysicalTable, first_token: int, last_token: int) -> list[str]:
    before = max(LEAST_TOKEN, first_token - 1)
    return ["compact", "-st", str(before), "-et", str(last_token), table.keyspace, table.name]
