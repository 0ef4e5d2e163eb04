"""What the measured files of a node come to, as one document: how many tombstones may go, how many wait, and the
partitions whose readers step over most.

Files are told one by one and forgotten; only the worst partitions are kept by name, which is their token.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from heapq import nsmallest
from pathlib import Path
from typing import Any

from sweep_tasks.compaction.runs import Reads, reads_over
from sweep_tasks.compaction.thresholds import ThresholdsByTable, reaches

Document = dict[str, Any]
WORST = 20
_COUNTS = ("files", "bytes", "droppable", "waiting")


class Summary:
    def __init__(self, node: str, now_s: int, thresholds: ThresholdsByTable, near_share: Fraction) -> None:
        """`near_share`: of the length at which reads fail, where a run is near it."""
        self._node = node
        self._now_s = now_s
        self._thresholds = thresholds
        self._near_share = near_share
        self._tables: dict[str, Document] = {}
        self._runs: list[Document] = []
        self._left_out: dict[str, list[str]] = {"gone": [], "unreadable": []}

    def table(self, name: str, gc_grace_s: int) -> None:
        self._tables[name] = dict.fromkeys(_COUNTS, 0) | {"droppable_from_s": None, "gc_grace_s": gc_grace_s}

    def add(self, brief: Mapping[str, Any]) -> None:
        """As `SSTableStatistics.brief` tells of a file."""
        table = self._tables[brief["table"]]
        for name, more in (("files", 1), *((name, brief[name]) for name in _COUNTS[1:])):
            table[name] += more
        table["droppable_from_s"] = _later(table["droppable_from_s"], brief["droppable_from_s"])
        self._add_run(brief)

    def leave_out(self, kind: str, problem: str) -> None:
        self._left_out[kind].append(problem)

    def document(self, statistics: Path) -> Document:
        moments = [each["droppable_from_s"] for each in self._tables.values() if each["droppable_from_s"]]
        return {
            "node": self._node,
            "at_s": self._now_s,
            **{name: sum(table[name] for table in self._tables.values()) for name in _COUNTS},
            "droppable_from_s": max(moments, default=None),
            **self._left_out,
            "statistics": str(statistics),
            "tables": self._tables,
            "longest_runs": self._runs,
        }

    def _add_run(self, brief: Mapping[str, Any]) -> None:
        """A server steps over all tombstones, and counts against its threshold those that gc_grace still holds."""
        thresholds = self._thresholds.of(brief["table"])
        reads = reads_over(brief["longest_run"], thresholds)
        if reads is Reads.FINE:
            return
        run = {name: brief[name] for name in ("table", "token", "longest_run", "file")}
        counted = min(brief["longest_run"], brief["waiting"])
        near = reaches(counted, thresholds.run_fail, self._near_share)
        more = {"reads": reads.value, "fails_at": thresholds.run_fail, "near_failing": near}
        known = [*self._runs, run | more]
        self._runs = nsmallest(WORST, known, key=lambda each: (-each["longest_run"], each["token"], each["file"]))


def _later(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)
