"""A round on one node: measure its files, plan, compact, measure again, report. Each step stands for itself.

What goes from one step to the next are plain documents, so that each can be a task of its own, on any machine that sees
the same `cache_folder`. Every step opens the store for itself; what it finds there may have changed since the step
before, so a plan is made anew, and proven anew, before anything is rewritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sweep_tasks.clock import SystemClock
from sweep_tasks.compaction.execution import Outcome, Result, carried_out
from sweep_tasks.compaction.looking import Look, look_and_plan
from sweep_tasks.compaction.node_files import Order, in_threads, measure_files, tables_of
from sweep_tasks.compaction.nodes import Node
from sweep_tasks.compaction.planning import Compaction, Stopped
from sweep_tasks.compaction.proof import Blocked, Blocker
from sweep_tasks.compaction.reporting import report
from sweep_tasks.compaction.rules import ELIGIBLE, Reason, Verdict
from sweep_tasks.compaction.sentences import command, sentence
from sweep_tasks.compaction.server import Server, work_of
from sweep_tasks.compaction.summary import Document
from sweep_tasks.compaction.thresholds import thresholds_in
from sweep_tasks.config import Settings

__all__ = ["compact", "measure", "nodes", "order_for", "plan", "report"]


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
    return _measured(order_for(settings, node, tables), settings)


def plan(settings: Settings, node: str, measured: Document, tables: Sequence[str] = ()) -> Document:
    """Changes nothing."""
    order = order_for(settings, node, tables or list(measured["tables"]))
    look = look_and_plan(order, thresholds_in(settings), settings.compaction_budget_bytes)
    return {
        "node": node,
        "at_s": order.now_s,
        "statistics": str(order.statistics),
        "server": _server(look.server),
        "files": [_verdict(each) for each in look.verdicts if each.reason in ELIGIBLE | {Reason.PENDING}],
        "compactions": [_compaction(each, look.server) for each in look.plan.compactions],
        "blocked": [_stopped(each) for each in look.plan.stopped],
    }


def compact(
    settings: Settings, node: str, planned: Document, budget_bytes: int | None = None, dry_run: bool = False
) -> Document:
    """Flushes, looks again, and compacts what is still worth it. A dry run changes nothing: it says what would be."""
    budget = settings.compaction_budget_bytes if budget_bytes is None else budget_bytes
    tables = sorted({each["table"] for each in planned["compactions"]})
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
        done["compactions"] = _affordable(planned["compactions"], budget)
    elif tables:
        order = order_for(settings, node, tables)
        order = replace(order, statistics=order.statistics.with_suffix(".run.jsonl"))
        done |= _carry_out(order, settings, budget, planned["compactions"])
        elsewhere = [each for each in planned["blocked"] if each["table"] not in tables]
        done["blocked"] = [*done["blocked"], *elsewhere]
    for name in ("bytes_read", "bytes_written"):
        done[name] = sum(each[name] for each in done["compactions"])
    return done


def _carry_out(order: Order, settings: Settings, budget: int, planned: Sequence[Document]) -> Document:
    """What is in memory is flushed first: it could keep tombstones, and nobody can look into it."""
    if work_of(order.node).busy:
        return {"stopped": Blocker.SERVER_BUSY.value, "blocked": [_left_to_the_server(each) for each in planned]}
    (keyspace,) = {table.keyspace for table in order.tables.values()}
    order.node.nodetool("flush", keyspace, *(table.name for table in order.tables.values()), changes=True)
    _measured(order, settings)
    look = look_and_plan(order, thresholds_in(settings), budget)
    results = _one_after_the_other(order, look)
    left = [_left_to_the_server(_compaction(each, look.server)) for each in look.plan.compactions[len(results) :]]
    return {
        "flushed": sorted(order.tables),
        "stopped": Blocker.SERVER_BUSY.value if left or look.server.work.busy else None,
        "compactions": [each.document() for each in results],
        "blocked": [*left, *(_stopped(each) for each in look.plan.stopped)],
    }


def _one_after_the_other(order: Order, look: Look) -> list[Result]:
    """Until the server has something to do of its own."""
    results: list[Result] = []
    for compaction in look.plan.compactions:
        if results and work_of(order.node).busy:
            break
        results.append(carried_out(order, compaction, look.tables[compaction.table]))
    return results


def _left_to_the_server(planned: Document) -> Document:
    by = Blocked(Blocker.SERVER_BUSY)
    reason = Reason(planned["reason"])
    return _stopped(Stopped(planned["candidate"], planned["table"], reason, by, planned["tombstones"]))


def _measured(order: Order, settings: Settings) -> Document:
    return measure_files(order, settings, in_threads(settings.compaction_files_at_once))


def _affordable(compactions: Sequence[Document], budget: int) -> list[Document]:
    """What a run would do, with its figures as they are expected."""
    found: list[Document] = []
    for each in compactions:
        if each["bytes"] <= budget:
            budget -= each["bytes"]
            found.append(_expected(each))
    return found


def _expected(planned: Document) -> Document:
    kept = {name: planned[name] for name in ("candidate", "table", "reason", "files")}
    unknown = dict.fromkeys(("bytes_read", "bytes_written", "dropped", "points_before", "points_after"), 0)
    expected = {"bytes_expected": planned["bytes"], "tombstones_expected": planned["tombstones"]}
    return {**kept, **unknown, **expected, "outcome": Outcome.PLANNED.value, "kept": {}, "made": []}


def _server(server: Server) -> Document:
    return {"pending": server.work.pending, "running": server.work.running, "repairing": server.repairing}


def _verdict(verdict: Verdict) -> Document:
    return {
        "file": verdict.file,
        "table": verdict.table,
        "ratio": float(verdict.density.ratio),
        "eligible": verdict.eligible,
        "reason": verdict.reason.value,
        "rank": verdict.rank,
    }


def _compaction(compaction: Compaction, server: Server) -> Document:
    return {
        "candidate": compaction.candidate,
        "table": compaction.table,
        "reason": compaction.reason.value,
        "rank": compaction.rank,
        "files": list(compaction.files),
        "bytes": compaction.bytes,
        "tombstones": compaction.tombstones,
        "points": compaction.points,
        "flush": server.tables[compaction.table].memtable_cells > 0,
    }


def _stopped(stopped: Stopped) -> Document:
    return {
        "candidate": stopped.candidate,
        "table": stopped.table,
        "reason": stopped.reason.value,
        "blocker": stopped.by.blocker.value,
        "until_s": stopped.by.until_s,
        "sentence": sentence(stopped),
        "files": list(stopped.by.files),
        "command": command(stopped),
        "tombstones": stopped.tombstones,
        "waiting": stopped.waiting,
    }


def _now_s() -> int:
    return SystemClock().now_ms() // 1_000
