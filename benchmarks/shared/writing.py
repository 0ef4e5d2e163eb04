"""What the queue costs a writer: transactions with it and without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.shared.goals import Goal, at_most

GOAL = 1.5


@dataclass(frozen=True)
class QueueCost:
    """Transactions with the queue and without."""

    store: str
    writes: int
    commits: int
    with_queue_s: float
    without_s: float

    @property
    def goal(self) -> Goal:
        what = f"a transaction on {self.store} with the queue, relative to one without (writes: {self.writes})"
        return at_most(what, self._ratio, GOAL)

    @property
    def _ratio(self) -> float:
        return self.with_queue_s / self.without_s

    def document(self) -> dict[str, Any]:
        return {
            "writes": self.writes,
            "with_queue_per_s": round(self.commits / self.with_queue_s, 1),
            "without_per_s": round(self.commits / self.without_s, 1),
            "ratio": round(self._ratio, 2),
        }
