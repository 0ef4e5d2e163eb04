"""A round on one node: measure its files, plan, compact, measure again, report. Each step can run on its own.

The steps hand `documents` to each other, so that each can be a task of its own, on any machine that sees the same
`cache_folder`. Every step opens the store itself. The node may have changed since the previous step, so a plan is made
and proven again before anything is rewritten. On a node whose files can't be read from here a round relies on what
sweeps have counted (`ranges.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from sweep_tasks.clock import SystemClock
from sweep_tasks.compaction import ranges as by_ranges
from sweep_tasks.compaction.documents import (
    BlockedCompaction,
    CompactionOutcome,
    Measurement,
    PlannedCompaction,
    RoundPlan,
    RoundResult,
)
from sweep_tasks.compaction.execution import (
    PATIENT,
    ExecutedCompaction,
    NodeState,
    Patience,
    ReadyPlan,
    compact_files,
    inspect_and_plan,
)
from sweep_tasks.compaction.node_files import RoundContext, in_threads, measure_files, tables_of
from sweep_tasks.compaction.nodetool import blocker_in, wait_until_idle
from sweep_tasks.compaction.planning import blocked_by
from sweep_tasks.compaction.proof import Blocker
from sweep_tasks.compaction.reports import (
    block_planned,
    blocked_compaction,
    expected_result,
    node_file_verdict,
    planned_compaction,
    report,
    server_state,
)
from sweep_tasks.compaction.rules import ELIGIBLE, CandidateReason
from sweep_tasks.config import Settings
from sweep_tasks.errors import SweepflowError
from sweep_tasks.files import make_private_folder
from sweep_tasks.sstables.nodes import Node
from sweep_tasks.sstables.statistics import thresholds_in

__all__ = ["compact", "create_context", "measure", "plan", "report"]

_BUDGET_BLOCKERS = frozenset({Blocker.OVERLAP_TOO_LARGE, Blocker.TOO_LARGE, Blocker.BUDGET})


def create_context(settings: Settings, node: str, tables: Sequence[str] = ()) -> RoundContext:
    """Return the context of a round for some tables of a node, by their names in the store or in Cassandra; for all
    tables if none is named. Creates the folder of the cache."""
    found = Node.named(settings, node)
    wanted = tables_of(settings, tables)
    cache = settings.cache_folder.expanduser()
    make_private_folder(cache / "compaction")
    return RoundContext(found, wanted, _now_s(), cache, cache / "compaction" / f"{node}.jsonl")


# --- measure and plan -----------------------------------------------------------------------------------------------


def measure(settings: Settings, node: str, tables: Sequence[str] = ()) -> Measurement:
    """Measure in this process; a Spark job does the same for many files at once."""
    context = create_context(settings, node, tables)
    return _measure_in_threads(context, settings) if context.node.data else by_ranges.measure(context, settings)


def plan(
    settings: Settings, node: str, measured: Measurement, tables: Sequence[str] = (), budget_bytes: int | None = None
) -> RoundPlan:
    """Plan the compactions of a node. Changes nothing there."""
    context = create_context(settings, node, tables or list(measured.tables))
    budget = settings.compaction_budget_bytes if budget_bytes is None else budget_bytes
    return plan_files(context, settings, budget) if context.node.data else by_ranges.plan(context, settings, budget)


def plan_files(context: RoundContext, settings: Settings, budget: int) -> RoundPlan:
    state = inspect_and_plan(context, thresholds_in(settings, context.tables.values()), budget)
    return RoundPlan(
        node=context.node.name,
        at_s=context.now_s,
        budget_bytes=budget,
        statistics=str(context.statistics),
        files=tuple(
            node_file_verdict(each) for each in state.verdicts if each.reason in ELIGIBLE | {CandidateReason.PENDING}
        ),
        server=server_state(state.server),
        compactions=tuple(planned_compaction(each, state.server) for each in state.plan.compactions),
        blocked=tuple(map(blocked_compaction, state.plan.blocked)),
    )


# --- compact --------------------------------------------------------------------------------------------------------


def compact(
    settings: Settings, node: str, planned: RoundPlan, budget_bytes: int | None = None, dry_run: bool = False
) -> RoundResult:
    """Flush, inspect the node again, and compact what still deserves it. A dry run changes nothing and returns what
    would be done. Without a budget the budget of the plan applies."""
    budget = planned.budget_bytes if budget_bytes is None else budget_bytes
    result = RoundResult(node=node, at_s=_now_s(), dry_run=dry_run, blocked=planned.blocked)
    tables = tables_to_recheck(planned, budget)
    if dry_run:
        result = _simulate(planned, budget, result)
    elif tables:
        context = create_context(settings, node, tables)
        compact_planned = compact_planned_files if context.node.data else compact_planned_ranges
        done = compact_planned(context, settings, budget, planned)
        elsewhere = (each for each in planned.blocked if each.table not in tables)
        result = done.model_copy(update={"at_s": result.at_s, "blocked": (*done.blocked, *elsewhere)})
    return result.model_copy(
        update={
            "bytes_read": sum(each.bytes_read for each in result.compactions),
            "bytes_written": sum(each.bytes_written or 0 for each in result.compactions),
        }
    )


def tables_to_recheck(planned: RoundPlan, budget: int) -> list[str]:
    """Tables with something to compact, or with a candidate whose blocker may be over by now."""
    temporary = {planned.server.blocker, *(_BUDGET_BLOCKERS if budget > planned.budget_bytes else ())}
    blocked = (each.table for each in planned.blocked if each.blocker in temporary)
    return sorted({*blocked, *(each.table for each in planned.compactions)})


def compact_planned_files(
    context: RoundContext, settings: Settings, budget: int, planned: RoundPlan, patience: Patience = PATIENT
) -> RoundResult:
    """Measure again, then plan again: a flush has written files, and the server may have."""
    context = replace(context, statistics=context.statistics.with_suffix(".run.jsonl"))

    def plan_again() -> ReadyPlan:
        _measure_in_threads(context, settings)
        state = _inspect_when_idle(context, settings, budget)
        return ReadyPlan(
            state.plan, state.server, lambda each: compact_files(context, each, state.tables[each.table], patience)
        )

    return compact_in_order(context, settings.compaction_wait_s, planned, plan_again)


def compact_planned_ranges(context: RoundContext, settings: Settings, budget: int, planned: RoundPlan) -> RoundResult:
    """Plan again when the server is idle; what was in memory is in files by then."""

    def plan_again() -> ReadyPlan:
        wait_until_idle(context.node, settings.compaction_wait_s)
        state = by_ranges.inspect_and_plan(context, settings, budget)
        compact_range = partial(by_ranges.compact_range, context, settings, state.swept)
        return ReadyPlan(state.plan, state.server, compact_range, state.describe_blocked)

    return compact_in_order(context, settings.compaction_wait_s, planned, plan_again)


def compact_in_order(
    context: RoundContext, wait_s: float, planned: RoundPlan, plan_again: Callable[[], ReadyPlan]
) -> RoundResult:
    """Flush, plan again, and compact one candidate after the other while the server has no work of its own.

    The flush comes first because cells in memory could keep tombstones and can't be inspected. A flush may cause work
    for the server: `plan_again` waits for that once more.
    """
    if blocker := wait_until_idle(context.node, wait_s):
        return RoundResult(
            node=context.node.name, at_s=context.now_s, stopped=blocker, blocked=_block_all(blocker, context, planned)
        )
    context.flush()
    ready = plan_again()
    results, stopped = _compact_until_stopped(context, ready, wait_s)
    stopped = stopped or blocker_in(ready.server.work, ready.server.repairing)
    left = ready.plan.compactions[len(results) :]
    return RoundResult(
        node=context.node.name,
        at_s=context.now_s,
        flushed=tuple(sorted(context.tables)),
        stopped=stopped,
        compactions=tuple(each.document() for each in results),
        blocked=(
            *(ready.describe_blocked(blocked_by(stopped, each)) for each in left if stopped),
            *map(ready.describe_blocked, ready.plan.blocked),
        ),
    )


def _compact_until_stopped(
    context: RoundContext, ready: ReadyPlan, wait_s: float
) -> tuple[list[ExecutedCompaction], Blocker | None]:
    """Stop when the server has work of its own that does not end in time, or when a compaction fails. The results so
    far are returned in any case."""
    results: list[ExecutedCompaction] = []
    for compaction in ready.plan.compactions:
        if results and (blocker := wait_until_idle(context.node, wait_s)):
            return results, blocker
        try:
            results.append(ready.compact(compaction))
        except SweepflowError as error:
            results.append(ExecutedCompaction(compaction, CompactionOutcome.FAILED, problem=str(error)))
            return results, Blocker.FAILED
    return results, None


def _block_all(blocker: Blocker, context: RoundContext, planned: RoundPlan) -> tuple[BlockedCompaction, ...]:
    blocked = (each for each in planned.blocked if each.table in context.tables)
    return (*(block_planned(blocker, each) for each in planned.compactions), *blocked)


def _inspect_when_idle(context: RoundContext, settings: Settings, budget: int) -> NodeState:
    thresholds = thresholds_in(settings, context.tables.values())
    state = inspect_and_plan(context, thresholds, budget)
    if state.server.work.busy and wait_until_idle(context.node, settings.compaction_wait_s) is None:
        return inspect_and_plan(context, thresholds, budget)
    return state


def _simulate(planned: RoundPlan, budget: int, result: RoundResult) -> RoundResult:
    """As much of the plan as fits the budget, which may be less than the plan was made for."""
    taken: list[PlannedCompaction] = []
    left: list[PlannedCompaction] = []
    for each in planned.compactions:
        fits = each.bytes <= budget
        budget -= each.bytes if fits else 0
        (taken if fits else left).append(each)
    return result.model_copy(
        update={
            "stopped": planned.server.blocker,
            "compactions": tuple(map(expected_result, taken)),
            "blocked": (*(block_planned(Blocker.BUDGET, each) for each in left), *planned.blocked),
        }
    )


def _measure_in_threads(context: RoundContext, settings: Settings) -> Measurement:
    return measure_files(context, settings, in_threads(settings.compaction_files_at_once))


def _now_s() -> int:
    return SystemClock().now_ms() // 1_000
