"""What the measured files of a node come to, as one document: how many tombstones may go, how many wait, and the
partitions whose readers step over most.

Files are told one by one and forgotten; of partitions only the runs of dead cells are kept, under their tokens, and
only the worst are told: those first that are nearest to failing their readers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction
from heapq import nsmallest
from pathlib import Path
from typing import Any

from sweep_tasks.compaction.runs import Combined, Held, PartitionRuns, Reads, reads_over
from sweep_tasks.compaction.thresholds import ThresholdsByTable, reaches

Document = dict[str, Any]
WORST = 20
"""Runs that are told although no read is about to fail."""
MOST_NEAR = 100
"""Runs near failing that are told one by one; all are counted."""
_COUNTS = ("files", "bytes", "droppable", "waiting")


class Summary:
    def __init__(self, node: str, now_s: int, thresholds: ThresholdsByTable, near_share: Fraction) -> None:
        """`near_share`: of the length at which reads fail, where a run is near it."""
        self._node = node
        self._now_s = now_s
        self._thresholds = thresholds
        self._near_share = near_share
        self._tables: dict[str, Document] = {}
        self._runs: defaultdict[str, PartitionRuns] = defaultdict(PartitionRuns)
        self._problems: dict[str, list[str]] = {"gone": [], "unreadable": []}
        self._left_out: list[Document] = []

    def table(self, name: str, gc_grace_s: int) -> None:
        self._tables[name] = dict.fromkeys(_COUNTS, 0) | {"droppable_from_s": None, "gc_grace_s": gc_grace_s}

    def add(self, brief: Mapping[str, Any]) -> None:
        """As `SSTableStatistics.brief` tells of a file."""
        self.count(brief["table"], {**brief, "files": 1})
        self._runs[brief["table"]].add(brief["file"], (Held(*each) for each in brief["runs"]))

    def count(self, table: str, more: Mapping[str, Any]) -> None:
        counts = self._tables[table]
        for name in _COUNTS:
            counts[name] += more[name]
        counts["droppable_from_s"] = _later(counts["droppable_from_s"], more["droppable_from_s"])

    def leave_out(self, kind: str, problem: str, file: str | None, reason: str | None) -> None:
        self._problems[kind].append(problem)
        self._left_out.append({"kind": kind, "file": file, "reason": reason})

    def document(self, statistics: Path | None) -> Document:
        """`statistics`: where the lines of the files are, if files were measured."""
        moments = [each["droppable_from_s"] for each in self._tables.values() if each["droppable_from_s"]]
        runs = list(self._worth_telling())
        near = [each for each in runs if each["near_failing"]]
        others = [each for each in runs if not each["near_failing"]]
        return {
            "node": self._node,
            "at_s": self._now_s,
            **{name: sum(table[name] for table in self._tables.values()) for name in _COUNTS},
            "droppable_from_s": max(moments, default=None),
            **self._problems,
            "left_out": self._left_out,
            "statistics": str(statistics) if statistics else None,
            "tables": self._tables,
            "longest_runs": [*nsmallest(MOST_NEAR, near, key=_place), *nsmallest(WORST, others, key=_place)],
            "near_failing": len(near),
        }

    def _worth_telling(self) -> Iterator[Document]:
        for table, runs in self._runs.items():
            for each in runs.found():
                told = self._told(table, each)
                if told["near_failing"] or told["reads"] != Reads.FINE:
                    yield told

    def _told(self, table: str, run: Combined) -> Document:
        """A server steps over all tombstones, and counts against its threshold those that gc_grace still holds."""
        thresholds = self._thresholds.of(table)
        fails_at = thresholds.run_fail
        return {
            "table": table,
            "token": run.token,
            "longest_run": run.longest,
            "held": run.held,
            "files": run.files,
            "file": run.file,
            "reads": reads_over(run.longest, thresholds).value,
            "fails_at": fails_at,
            "near_failing": fails_at > 0 and reaches(run.held, fails_at, self._near_share),
        }


def _place(run: Mapping[str, Any]) -> tuple[Fraction, int, str, int]:
    """The nearest to failing first, which with thresholds of a table's own need not be the longest."""
    near = Fraction(run["held"], run["fails_at"]) if run["fails_at"] > 0 else Fraction(0)
    return -near, -run["longest_run"], run["table"], run["token"]


def _later(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)
