"""Compactions one after the other, for as long as the server has nothing to do of its own.

The same for a node whose files are read and for one that is out of reach: only how the plan is made anew, and how one
compaction is carried out, is different for each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sweep_tasks.compaction.documents import Document, of_stopped, stopped_by
from sweep_tasks.compaction.execution import Outcome, Result
from sweep_tasks.compaction.node_files import Order
from sweep_tasks.compaction.planning import Compaction, Plan, Stopped, kept_by
from sweep_tasks.compaction.proof import Blocker
from sweep_tasks.compaction.server import Server, awaited, blocker_in
from sweep_tasks.errors import SweepflowError


@dataclass(frozen=True, slots=True)
class Ready:
    """A plan that was made anew, and how it is carried out."""

    plan: Plan
    server: Server
    carry_out: Callable[[Compaction], Result]
    told: Callable[[Stopped], Document] = of_stopped


def in_turn(order: Order, wait_s: float, planned: Document, look: Callable[[], Ready]) -> Document:
    """What is in memory is flushed first: it could keep tombstones, and nobody can look into it. A flush may give the
    server something to do: `look` waits for that once more."""
    if blocker := awaited(order.node, wait_s):
        return _stopped_at_once(blocker, order, planned)
    order.flush()
    ready = look()
    results, stopped = _one_after_the_other(order, ready, wait_s)
    stopped = stopped or blocker_in(ready.server.work, ready.server.repairing)
    left = ready.plan.compactions[len(results) :]
    return {
        "flushed": sorted(order.tables),
        "stopped": stopped.value if stopped else None,
        "compactions": [each.document() for each in results],
        "blocked": [
            *(ready.told(kept_by(stopped, each)) for each in left if stopped),
            *map(ready.told, ready.plan.stopped),
        ],
    }


def _one_after_the_other(order: Order, ready: Ready, wait_s: float) -> tuple[list[Result], Blocker | None]:
    """Until the server has something to do of its own that does not end in time, or one fails. What was done before is
    told all the same."""
    results: list[Result] = []
    for compaction in ready.plan.compactions:
        if results and (blocker := awaited(order.node, wait_s)):
            return results, blocker
        try:
            results.append(ready.carry_out(compaction))
        except SweepflowError as error:
            results.append(Result(compaction, Outcome.FAILED, problem=str(error)))
            return results, Blocker.FAILED
    return results, None


def _stopped_at_once(blocker: Blocker, order: Order, planned: Document) -> Document:
    blocked = [each for each in planned["blocked"] if each["table"] in order.tables]
    return {
        "stopped": blocker.value,
        "blocked": [*(stopped_by(blocker, each) for each in planned["compactions"]), *blocked],
    }
