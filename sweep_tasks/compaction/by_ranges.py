"""A round on a node whose files nobody can read from here: by what sweeps have counted, range by range of the ring.

Every sweep keeps how many tombstones it wrote where on the ring (`sweep/deletions.py`). Where gc_grace has passed for
many of them, Cassandra is told to compact that stretch of the ring: all files that reach into it, together. As most
files reach all around the ring, one compaction serves all ranges of a table, and may cost as much as the table has on
the node. What it drops can't be measured: the ranges are marked as compacted, and come again when sweeps add to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sweep_tasks.clock import SystemClock
from sweep_tasks.compaction.documents import Document, in_the_way, of_compaction, of_server, of_stopped, stopped_by
from sweep_tasks.compaction.execution import Outcome
from sweep_tasks.compaction.node_files import Order, tables_of
from sweep_tasks.compaction.planning import Compaction, Plan, Stopped, all_stopped
from sweep_tasks.compaction.proof import Blocked, Blocker
from sweep_tasks.compaction.rules import Reason
from sweep_tasks.compaction.server import TableState, awaited, blocker_in, look_at
from sweep_tasks.compaction.strategies import Kind, strategy_of
from sweep_tasks.compaction.thresholds import Thresholds, thresholds_in
from sweep_tasks.config import Settings
from sweep_tasks.errors import SweepflowError
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


def swept_of(store: Store, table: PhysicalTable, node: str | None, now_ms: int, at_least: int) -> Swept | None:
    """By the table's own gc_grace; None where nothing is known to be left."""
    left = Deletions(store).left(table.table, table.gc_grace_s, now_ms, node) if table.table else None
    if left is None:
        return None
    dense, droppable = (each.tombstone_histogram().dense_ranges(at_least) for each in (left.tally, left.droppable))
    return Swept(table, left, tuple(dense), tuple(droppable))


def told_of_all(settings: Settings, node: str | None = None) -> list[Document]:
    """The ranges of all tables with most tombstones, those with most first."""
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
    tables = {
        name: {
            "files": 0,
            "bytes": 0,
            "droppable": each.left.droppable.tombstones,
            "waiting": each.waiting,
            "droppable_from_s": None,
            "gc_grace_s": each.table.gc_grace_s,
        }
        for name, each in _swept(order, settings).items()
    }
    counts = ("files", "bytes", "droppable", "waiting")
    return {
        "node": order.node.name,
        "at_s": order.now_s,
        **{name: sum(int(table[name] or 0) for table in tables.values()) for name in counts},
        "droppable_from_s": None,
        "gone": [],
        "unreadable": [],
        "statistics": None,
        "tables": tables,
        "longest_runs": [],
        "near_failing": 0,
    }


def plan(order: Order, settings: Settings, budget: int) -> Document:
    return _plan(order, settings, budget, _swept(order, settings))


def _plan(order: Order, settings: Settings, budget: int, swept: Mapping[str, Swept]) -> Document:
    server = look_at(order.node, order.tables)
    thresholds = thresholds_in(settings, order.tables.values())
    found = planned(swept, server.tables, {name: thresholds.of(name) for name in swept}, budget)
    if blocker := blocker_in(server.work, server.repairing):
        found = all_stopped(found, blocker)
    return {
        "statistics": None,
        "server": of_server(server),
        "files": [],
        "compactions": [_planned(each, server.tables[each.table]) for each in found.compactions],
        "blocked": [_stopped(each, swept[each.table]) for each in found.stopped],
        "ranges": [told for each in swept.values() for told in described(each)],
    }


def planned(
    swept: Mapping[str, Swept], states: Mapping[str, TableState], thresholds: Mapping[str, Thresholds], budget: int
) -> Plan:
    """Tables with most to drop first. Pure."""
    compactions: list[Compaction] = []
    stopped: list[Stopped] = []
    for each in sorted(swept.values(), key=lambda one: (-one.tombstones, one.table.qualified)):
        name = each.table.qualified
        if thresholds[name].off or not each.dense:
            continue
        found = _judged(each, states[name], budget - sum(one.bytes for one in compactions), budget)
        candidate = "{} … {}".format(*each.stretch) if each.droppable else "all of it"
        if isinstance(found, Blocked):
            waiting = each.waiting
            stopped.append(Stopped(candidate, name, Reason.SWEPT, found, each.tombstones, waiting))
        else:
            rank = len(compactions) + 1
            compactions.append(Compaction(candidate, name, Reason.SWEPT, rank, (), found, each.tombstones, 0))
    return Plan(tuple(compactions), tuple(stopped))


def carry_out(order: Order, settings: Settings, budget: int, before: Document) -> Document:
    """Plans anew when the server has nothing to do of its own; what was in memory is in files by then."""
    if blocker := awaited(order.node, settings.compaction_wait_s):
        blocked = [each for each in before["blocked"] if each["table"] in order.tables]
        return {
            "stopped": blocker.value,
            "blocked": [*(stopped_by(blocker, each) for each in before["compactions"]), *blocked],
        }
    (keyspace,) = {table.keyspace for table in order.tables.values()}
    order.node.nodetool("flush", keyspace, *(table.name for table in order.tables.values()), changes=True)
    awaited(order.node, settings.compaction_wait_s)
    swept = _swept(order, settings)
    now = _plan(order, settings, budget, swept)
    done: list[Document] = []
    stopped: Blocker | None = None
    for each in now["compactions"]:
        stopped = awaited(order.node, settings.compaction_wait_s) if done else None
        if stopped:
            break
        done.append(_compacted(order, settings, each, swept[each["table"]]))
        if done[-1]["outcome"] == Outcome.FAILED:
            stopped = Blocker.FAILED
            break
    left = [stopped_by(stopped, each) for each in now["compactions"][len(done) :]] if stopped else []
    return {
        "flushed": sorted(order.tables),
        "stopped": stopped.value if stopped else in_the_way(now),
        "compactions": done,
        "blocked": [*left, *now["blocked"]],
    }


def _compacted(order: Order, settings: Settings, planned: Document, swept: Swept) -> Document:
    first, last = swept.stretch
    told = {name: planned[name] for name in ("candidate", "table", "reason", "files")}
    figures = {f"{name}_expected": planned[name] for name in ("bytes", "tombstones", "points")}
    unknown = dict.fromkeys(("bytes_written", "dropped", "points_before", "points_after"))
    done = {**told, **figures, **unknown, "kept": {}, "made": [], "problem": None}
    try:
        order.node.nodetool(*_arguments(swept.table, first, last), changes=True)
    except SweepflowError as error:
        return {**done, "outcome": Outcome.FAILED.value, "problem": str(error), "bytes_read": 0, "dropped": 0}
    if swept.table.table:
        with borrowed_store(settings) as store:
            at_ms = 1_000 * order.now_s
            Deletions(store).compacted(swept.table.table, order.node.name, swept.table.gc_grace_s, at_ms, first, last)
    return {**done, "outcome": Outcome.UNKNOWN.value, "bytes_read": planned["bytes"]}


def _judged(swept: Swept, state: TableState, left: int, budget: int) -> int | Blocked:
    """Bytes that it may cost, or what it is kept from being compacted by."""
    strategy = strategy_of(swept.table.compaction)
    if strategy is None:
        return Blocked(Blocker.STRATEGY)
    if not (strategy.enabled and state.compacting):
        return Blocked(Blocker.COMPACTION_DISABLED)
    if strategy.kind is Kind.TIME_WINDOWS:
        return Blocked(Blocker.TIME_WINDOWS)
    if strategy.only_purges_repaired:
        return Blocked(Blocker.ONLY_PURGE_REPAIRED)
    if not swept.droppable:
        return Blocked(Blocker.GC_GRACE)
    cost = strategy.cost(state.size, 2)
    if cost > budget:
        return Blocked(Blocker.TOO_LARGE)
    return cost if cost <= left else Blocked(Blocker.BUDGET)


def _swept(order: Order, settings: Settings) -> dict[str, Swept]:
    """By Cassandra's name of the table."""
    thresholds = thresholds_in(settings, order.tables.values())
    found: dict[str, Swept] = {}
    with borrowed_store(settings) as store:
        for table in order.tables.values():
            at_least = max(1, thresholds.of(table.qualified).run_warn)
            swept = swept_of(store, table, order.node.name, 1_000 * order.now_s, at_least)
            if swept is not None:
                found[table.qualified] = swept
    return found


def _planned(compaction: Compaction, state: TableState) -> Document:
    return of_compaction(compaction, flush=state.memtable_cells > 0)


def _stopped(stopped: Stopped, swept: Swept) -> Document:
    """With the command that an operator may give all the same; for time windows one that keeps them apart."""
    document = of_stopped(stopped)
    if stopped.by.blocker is Blocker.TIME_WINDOWS:
        document["command"] = f"nodetool garbagecollect {swept.table.keyspace} {swept.table.name}"
    elif document["command"] is None and swept.droppable:
        document["command"] = command_for(swept.table, *swept.stretch)
    return document


def _arguments(table: PhysicalTable, first_token: int, last_token: int) -> list[str]:
    before = max(LEAST_TOKEN, first_token - 1)
    return ["compact", "-st", str(before), "-et", str(last_token), table.keyspace, table.name]
