"""The documents that go from one step of a round to the next: plain, so that a task can hand them to another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sweep_tasks.compaction.execution import Outcome
from sweep_tasks.compaction.planning import Compaction, Plan, Stopped
from sweep_tasks.compaction.proof import Blocked, Blocker
from sweep_tasks.compaction.rules import Reason, Verdict
from sweep_tasks.compaction.sentences import command, sentence
from sweep_tasks.compaction.server import Server

Document = dict[str, Any]


def of_server(server: Server) -> Document:
    return {"pending": server.work.pending, "running": server.work.running, "repairing": server.repairing}


def in_the_way(planned: Document) -> str | None:
    """What the server was busy with when a plan was made; it may be over when it comes to compacting."""
    server = planned["server"]
    if server["pending"] + server["running"] > 0:
        return Blocker.SERVER_BUSY.value
    return Blocker.REPAIR.value if server["repairing"] else None


def of_verdict(verdict: Verdict) -> Document:
    return {**verdict.document(), "table": verdict.table}


def of_plan(plan: Plan, server: Server, told: Callable[[Stopped], Document] | None = None) -> Document:
    return {
        "server": of_server(server),
        "compactions": [of_compaction(each, server) for each in plan.compactions],
        "blocked": [*map(told or of_stopped, plan.stopped)],
    }


def of_compaction(compaction: Compaction, server: Server) -> Document:
    """`flush`: something of its table is in memory, and is written to a file before."""
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


def of_stopped(stopped: Stopped) -> Document:
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


def stopped_by(blocker: Blocker, planned: Document) -> Document:
    """What was to be compacted, and is not."""
    reason = Reason(planned["reason"])
    return of_stopped(Stopped(planned["candidate"], planned["table"], reason, Blocked(blocker), planned["tombstones"]))


def expected(planned: Document) -> Document:
    """What a dry run says of a compaction: its figures as they are expected."""
    kept = {name: planned[name] for name in ("candidate", "table", "reason", "files")}
    counted = [f"{what}_{when}" for what in ("tombstones", "points") for when in ("before", "after")]
    unknown = dict.fromkeys(("bytes_read", "bytes_written", "dropped", *counted), 0)
    figures = {f"{name}_expected": planned[name] for name in ("bytes", "tombstones", "points")}
    return {**kept, **unknown, **figures, "outcome": Outcome.PLANNED.value, "problem": None, "kept": {}, "made": []}
