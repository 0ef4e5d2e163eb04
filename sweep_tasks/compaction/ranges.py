"""Planning and compacting a node whose files can't be read from here, by what sweeps have counted.

Every sweep keeps how many tombstones it wrote in which range of the ring (`tables/deletions.py`). Where gc_grace has
passed for many of them, Cassandra is asked to compact that range of the ring: all files that overlap it, together.
As most files reach all around the ring, one compaction serves all ranges of a table, and may cost as much as the table
has on the node. What it drops can't be measured: the ranges are marked as compacted, and are candidates again when
sweeps add to them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sweep_tasks.clock import SystemClock
from sweep_tasks.compaction.documents import (
    BlockedCompaction,
    CompactionOutcome,
    Measurement,
    RoundPlan,
    TableFigures,
    TombstoneRange,
)
from sweep_tasks.compaction.execution import ExecutedCompaction
from sweep_tasks.compaction.node_files import DECLINED, RoundContext, failed_attempts, summary_for, tables_of
from sweep_tasks.compaction.nodetool import NodeTableState, ServerActivity, blocker_in, inspect_server
from sweep_tasks.compaction.planning import BlockedCandidate, Compaction, CompactionPlan, week_of, with_all_blocked
from sweep_tasks.compaction.proof import Blocked, Blocker, StrategyKind, by_the_table, strategy_of
from sweep_tasks.compaction.reports import blocked_compaction, planned_compaction, server_state
from sweep_tasks.compaction.rules import CandidateReason
from sweep_tasks.config import Settings
from sweep_tasks.connections import borrow_store
from sweep_tasks.errors import NodetoolFailed
from sweep_tasks.model import LEAST_TOKEN
from sweep_tasks.sstables.statistics import FileThresholds, thresholds_in
from sweep_tasks.store.contract import PhysicalTable, Store
from sweep_tasks.tables.deletions import DeletedRange, Deletions, Left

MOST_SHOWN = 20
"""Ranges of a table that are listed, those with the most tombstones."""


@dataclass(frozen=True, slots=True)
class SweptRanges:
    """The tombstones that sweeps have left in a table on a node."""

    table: PhysicalTable
    left: Left
    dense: tuple[DeletedRange, ...]
    """Ranges with many tombstones, whatever their age."""
    droppable: tuple[DeletedRange, ...]
    """Ranges with many tombstones that are older than gc_grace."""

    @property
    def token_range(self) -> tuple[int, int]:
        """The first and the last token of what may be dropped, both included."""
        return self.droppable[0].first_token, self.droppable[-1].last_token

    @property
    def tombstones(self) -> int:
        return sum(each.deleted for each in self.droppable)

    @property
    def waiting(self) -> int:
        return max(0, self.left.tally.tombstones - self.left.droppable.tombstones)

    @property
    def waits_until_s(self) -> int | None:
        """When gc_grace will have passed for all of it; None if it has."""
        return self.left.all_from_ms // 1_000 if self.waiting else None


def swept_of(store: Store, table: PhysicalTable, node: str | None, now_ms: int, at_least: int) -> SweptRanges | None:
    """Return the tombstones that are left in a table, split by its own gc_grace; None if none are known."""
    left = Deletions(store).left(table.table, table.gc_grace_s, now_ms, node) if table.table else None
    if left is None:
        return None
    dense, droppable = (each.tombstone_histogram().dense_ranges(at_least) for each in (left.tally, left.droppable))
    return SweptRanges(table, left, tuple(dense), tuple(droppable))


def densest_ranges(settings: Settings, node: str | None = None) -> list[TombstoneRange]:
    """The ranges of all tables with the most tombstones, the worst first; also where `run_warn` is off, as this only
    shows them."""
    now_ms, at_least = SystemClock().now_ms(), max(1, settings.compaction_run_warn)
    with borrow_store(settings) as store:
        found = [swept_of(store, table, node, now_ms, at_least) for table in tables_of(settings).values()]
    ranges = [each for swept in found if swept for each in described(swept)]
    return sorted(ranges, key=lambda each: -each.tombstones)[:MOST_SHOWN]


def command_for(table: PhysicalTable, first_token: int, last_token: int) -> str:
    """The command to run on the node; nodetool excludes the start of a range."""
    return " ".join(["nodetool", *_arguments(table, first_token, last_token)])


def described(swept: SweptRanges, most: int = MOST_SHOWN) -> list[TombstoneRange]:
    """The ranges with the most tombstones, each with the command that compacts it."""
    histogram = swept.left.droppable.tombstone_histogram()
    worst = sorted(swept.dense, key=lambda each: (-each.deleted, each.first_token))[:most]
    return [
        TombstoneRange(
            table=swept.table.qualified,
            first_token=each.first_token,
            last_token=each.last_token,
            tombstones=each.deleted,
            droppable=min(each.deleted, histogram.deleted_between(each.first_token, each.last_token)),
            command=command_for(swept.table, each.first_token, each.last_token),
        )
        for each in worst
    ]


def measure(context: RoundContext, settings: Settings) -> Measurement:
    """A measurement without files: the counts are those of the sweeps, and runs of dead cells are not known."""
    summary = summary_for(context, settings)
    for name, each in _swept_ranges(context, settings).items():
        summary.count(
            name,
            TableFigures(
                droppable=each.left.droppable.tombstones,
                waiting=each.waiting,
                droppable_from_s=each.waits_until_s,
                gc_grace_s=each.table.gc_grace_s,
            ),
        )
    return summary.measurement(None)


@dataclass(frozen=True, slots=True)
class SweptState:
    """The state of a node at one moment, with the plan for it."""

    server: ServerActivity
    swept: Mapping[str, SweptRanges]
    plan: CompactionPlan

    def describe_blocked(self, candidate: BlockedCandidate) -> BlockedCompaction:
        """With a command that an operator may run all the same; for time windows one that keeps them apart."""
        document, swept = blocked_compaction(candidate), self.swept[candidate.table]
        if candidate.by.blocker is Blocker.TIME_WINDOWS:
            command = f"nodetool garbagecollect {swept.table.keyspace} {swept.table.name}"
        elif document.command is None and swept.droppable:
            command = command_for(swept.table, *swept.token_range)
        else:
            return document
        return document.model_copy(update={"command": command})


def plan(context: RoundContext, settings: Settings, budget: int) -> RoundPlan:
    state = inspect_and_plan(context, settings, budget)
    return RoundPlan(
        node=context.node.name,
        at_s=context.now_s,
        budget_bytes=budget,
        server=server_state(state.server),
        compactions=tuple(planned_compaction(each, state.server) for each in state.plan.compactions),
        blocked=tuple(map(state.describe_blocked, state.plan.blocked)),
        ranges=tuple(each for swept in state.swept.values() for each in described(swept)),
    )


def planned(
    swept: Mapping[str, SweptRanges],
    states: Mapping[str, NodeTableState],
    thresholds: Mapping[str, FileThresholds],
    budget: int,
    declined: Collection[str] = (),
) -> CompactionPlan:
    """The plan: tables with the most to drop first, without those that the server recently failed to compact. Pure."""
    compactions: list[Compaction] = []
    blocked: list[BlockedCandidate] = []
    for each in sorted(swept.values(), key=lambda one: (-one.tombstones, one.table.qualified)):
        name = each.table.qualified
        if thresholds[name].off or not each.dense:
            continue
        left = budget - sum(one.bytes for one in compactions)
        found = Blocked(Blocker.DECLINED) if name in declined else _judged(each, states[name], left, budget)
        candidate = "{} … {}".format(*each.token_range) if each.droppable else "all of it"
        if isinstance(found, Blocked):
            blocked.append(
                BlockedCandidate(candidate, name, CandidateReason.SWEPT, found, each.tombstones, each.waiting)
            )
        else:
            rank = len(compactions) + 1
            compactions.append(Compaction(candidate, name, CandidateReason.SWEPT, rank, (), found, each.tombstones, 0))
    return CompactionPlan(tuple(compactions), tuple(blocked))


def _judged(swept: SweptRanges, state: NodeTableState, left: int, budget: int) -> int | Blocked:
    """The bytes that it may cost, or what blocks it."""
    strategy = strategy_of(swept.table.compaction)
    if strategy is None:
        return Blocked(Blocker.STRATEGY)
    if blocked := by_the_table(strategy, state.compacting):
        return blocked
    if strategy.kind is StrategyKind.TIME_WINDOWS:
        return Blocked(Blocker.TIME_WINDOWS)
    if not swept.droppable:
        return Blocked(Blocker.GC_GRACE, until_s=swept.waits_until_s)
    cost = strategy.cost(state.size, 2)
    if cost > budget:
        return Blocked(Blocker.TOO_LARGE)
    return cost if cost <= left else Blocked(Blocker.BUDGET)


def inspect_and_plan(context: RoundContext, settings: Settings, budget: int) -> SweptState:
    swept, server = _swept_ranges(context, settings), inspect_server(context.node, context.tables)
    thresholds = thresholds_in(settings, context.tables.values())
    declined = _declined(context, swept)
    found = planned(swept, server.tables, {name: thresholds.of(name) for name in swept}, budget, declined)
    blocker = blocker_in(server.work, server.repairing)
    return SweptState(server, swept, with_all_blocked(found, blocker) if blocker else found)


def _swept_ranges(context: RoundContext, settings: Settings) -> dict[str, SweptRanges]:
    """Return the swept ranges of each table, by Cassandra's name of the table. Without `run_warn` no range is dense."""
    thresholds = thresholds_in(settings, context.tables.values())
    found: dict[str, SweptRanges] = {}
    with borrow_store(settings) as store:
        for table in context.tables.values():
            at_least = thresholds.of(table.qualified).run_warn
            swept = swept_of(store, table, context.node.name, 1_000 * context.now_s, at_least)
            if swept is not None:
                found[table.qualified] = swept
    return found


def compact_range(
    context: RoundContext, settings: Settings, swept: Mapping[str, SweptRanges], compaction: Compaction
) -> ExecutedCompaction:
    table, (first, last) = swept[compaction.table].table, swept[compaction.table].token_range
    try:
        context.node.nodetool(*_arguments(table, first, last), changes=True)
    except NodetoolFailed:
        failed_attempts(context, DECLINED).add({table.qualified: _cause(table, context.now_s)})
        raise
    if table.table:
        with borrow_store(settings) as store:
            at_ms = 1_000 * context.now_s
            Deletions(store).record_compaction(table.table, context.node.name, table.gc_grace_s, at_ms, first, last)
    return ExecutedCompaction(compaction, CompactionOutcome.UNKNOWN, before=None, after=None)


def _declined(context: RoundContext, swept: Mapping[str, SweptRanges]) -> set[str]:
    causes = failed_attempts(context, DECLINED).causes()
    return {name for name, each in swept.items() if causes.get(name) == _cause(each.table, context.now_s)}


def _cause(table: PhysicalTable, now_s: int) -> str:
    """Return a fingerprint of what decides the outcome of an attempt. It changes every week, so that a range which the
    server declined is retried (see `planning.declined_cause`)."""
    return f"{table.gc_grace_s} {sorted(table.compaction.items())} {week_of(now_s)}"


def _arguments(table: PhysicalTable, first_token: int, last_token: int) -> list[str]:
    before = max(LEAST_TOKEN, first_token - 1)
    return ["compact", "-st", str(before), "-et", str(last_token), table.keyspace, table.name]
