"""A round on one node: measure its files, plan, compact, measure again, report. Each step stands for itself.

What goes from one step to the next are plain documents, so that each can be a task of its own, on any machine that sees
the same `cache_folder`. Every step opens the store for itself; what it finds there may have changed since the step
before, so a plan is made anew, and proven anew, before anything is rewritten. A node whose files nobody can read from
here has its rounds by what sweeps have counted (`by_ranges.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sweep_tasks.clock import SystemClock
from sweep_tasks.compaction import by_ranges
from sweep_tasks.compaction.documents import Document, expected, in_the_way, of_plan, of_verdict, stopped_by
from sweep_tasks.compaction.execution import PATIENT, Patience, carried_out
from sweep_tasks.compaction.looking import Look, look_and_plan
from sweep_tasks.compaction.node_files import Order, in_threads, measure_files, tables_of
from sweep_tasks.compaction.nodes import Node
from sweep_tasks.compaction.proof import Blocker
from sweep_tasks.compaction.reporting import report
from sweep_tasks.compaction.rules import ELIGIBLE, Reason
from sweep_tasks.compaction.server import awaited
from sweep_tasks.compaction.thresholds import thresholds_in
from sweep_tasks.compaction.turns import Ready, in_turn
from sweep_tasks.config import Settings

__all__ = ["compact", "measure", "nodes", "order_for", "plan", "report"]

_OF_THE_BUDGET = frozenset({Blocker.OVERLAP_TOO_LARGE, Blocker.TOO_LARGE, Blocker.BUDGET})


def nodes(settings: Settings) -> list[str]:
    return list(settings.compaction_nodes)


def order_for(settings: Settings, node: str, tables: Sequence[str] = ()) -> Order:
    """Some tables of a node, by the name of the store or of Cassandra; all if none is named."""
    found = Node.named(settings, node)
    wanted = tables_of(settings, tables)
    cache = settings.cache_folder.expanduser()
    (cache / "compaction").mkdir(parents=True, exist_ok=True)
    return Order(found, wanted, _now_s(), cache, cache / "compaction" / f"{node}.jsonl")


def measure(settings: Settings, node: str, tables: Sequence[str] = ()) -> Document:
    """In this process; a Spark job does the same for many files at once."""
    order = order_for(settings, node, tables)
    return _measured(order, settings) if order.node.data else by_ranges.measured(order, settings)


def plan(
    settings: Settings, node: str, measured: Document, tables: Sequence[str] = (), budget_bytes: int | None = None
) -> Document:
    """Changes nothing."""
    order = order_for(settings, node, tables or list(measured["tables"]))
    budget = settings.compaction_budget_bytes if budget_bytes is None else budget_bytes
    planned = plan_files(order, settings, budget) if order.node.data else by_ranges.plan(order, settings, budget)
    return {"node": node, "at_s": order.now_s, "budget_bytes": budget, **planned}


def plan_files(order: Order, settings: Settings, budget: int) -> Document:
    look = look_and_plan(order, thresholds_in(settings, order.tables.values()), budget)
    return {
        "statistics": str(order.statistics),
        "files": [of_verdict(each) for each in look.verdicts if each.reason in ELIGIBLE | {Reason.PENDING}],
        **of_plan(look.plan, look.server),
    }


def compact(
    settings: Settings, node: str, planned: Document, budget_bytes: int | None = None, dry_run: bool = False
) -> Document:
    """Flushes, looks again, and compacts what is still worth it. A dry run changes nothing: it says what would be.
    Without a budget of its own it has that of the plan."""
    budget = planned["budget_bytes"] if budget_bytes is None else budget_bytes
    tables = worth_another_look(planned, budget)
    done: Document = {
        "node": node,
        "at_s": _now_s(),
        "dry_run": dry_run,
        "flushed": [],
        "stopped": None,
        "compactions": [],
        "blocked": planned["blocked"],
    }
    if dry_run:
        done |= _would_do(planned, budget)
    elif tables:
        order = order_for(settings, node, tables)
        carry_out = carry_out_files if order.node.data else by_ranges.carry_out
        done |= carry_out(order, settings, budget, planned)
        elsewhere = [each for each in planned["blocked"] if each["table"] not in tables]
        done["blocked"] = [*done["blocked"], *elsewhere]
    for name in ("bytes_read", "bytes_written"):
        done[name] = sum(each[name] or 0 for each in done["compactions"])
    return done


def worth_another_look(planned: Document, budget: int) -> list[str]:
    """Tables with something to compact, or with something that is kept from it by what may be over by then."""
    passing = {in_the_way(planned), *(_OF_THE_BUDGET if budget > planned["budget_bytes"] else ())}
    blocked = (each["table"] for each in planned["blocked"] if each["blocker"] in passing)
    return sorted({*blocked, *(each["table"] for each in planned["compactions"])})


def carry_out_files(
    order: Order, settings: Settings, budget: int, planned: Document, patience: Patience = PATIENT
) -> Document:
    """Measured anew before the plan is: a flush has made files, and the server may have."""
    order = replace(order, statistics=order.statistics.with_suffix(".run.jsonl"))

    def ready() -> Ready:
        _measured(order, settings)
        look = _look_when_idle(order, settings, budget)
        return Ready(look.plan, look.server, lambda each: carried_out(order, each, look.tables[each.table], patience))

    return in_turn(order, settings.compaction_wait_s, planned, ready)


def _look_when_idle(order: Order, settings: Settings, budget: int) -> Look:
    thresholds = thresholds_in(settings, order.tables.values())
    look = look_and_plan(order, thresholds, budget)
    if look.server.work.busy and awaited(order.node, settings.compaction_wait_s) is None:
        return look_and_plan(order, thresholds, budget)
    return look


def _would_do(planned: Document, budget: int) -> Document:
    """As much of the plan as the budget allows; it may be less than the plan was made for."""
    taken: list[Document] = []
    left: list[Document] = []
    for each in planned["compactions"]:
        fits = each["bytes"] <= budget
        budget -= each["bytes"] if fits else 0
        (taken if fits else left).append(each)
    return {
        "stopped": in_the_way(planned),
        "compactions": [expected(each) for each in taken],
        "blocked": [*(stopped_by(Blocker.BUDGET, each) for each in left), *planned["blocked"]],
    }


def _measured(order: Order, settings: Settings) -> Document:
    return measure_files(order, settings, in_threads(settings.compaction_files_at_once))


def _now_s() -> int:
    return SystemClock().now_ms() // 1_000
