"""Sweeps in this process that judge as Spark's workers do: many entries at a time, in Arrow batches."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from itertools import groupby

import pyarrow as pa
import pytest

from spark_jobs import blocks
from spark_jobs.blocks import Starts, blocks_of, chosen_bounds, divided, entries_in, newest_by_segment
from spark_jobs.decoding import QueuePage, dedicated_page, scalar_page
from spark_jobs.planning import plan_many, writes_by_table
from spark_jobs.workers import entries_of_page
from sweep_tasks.model import Version
from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.reader import RawEntry
from sweep_tasks.sweep.engine import InProcess, SettledBatch

_TASKS = 2


def judge_in_batches(patch: pytest.MonkeyPatch) -> None:
    """Let every sweep in this process judge its batches as the workers of Spark do, in very small blocks."""
    patch.setattr(blocks, "_BLOCK_ENTRIES", 3)
    patch.setattr(blocks, "_SAMPLED", 1)
    patch.setattr(InProcess, "judge_apply_park", _judge_apply_park)


def _judge_apply_park(self: InProcess, settled: SettledBatch, below: int | None, protections: Protections) -> int:
    work = self._work
    starts = Starts(before=below)
    read: list[pa.RecordBatch] = []
    for page in _pages(settled.batch.entries):
        entries, unreadable = entries_of_page(page, work.view, settled.outcomes, work.strategy, work.shard, protections)
        read += entries
        work.quarantine([each for each in unreadable if below is None or (each.start or 0) < below])
    judged = 0
    for parts in _by_task(read):
        chosen = [found for block in parts if len(found := starts.select(entries_in(block)))]
        if chosen:
            judged += sum(map(len, chosen))
            newest = newest_by_segment(chosen)
            plan = partial(work.judge.plan, protections=protections)
            work.judge.carry_out(plan_many(plan, newest, work.strategy, work.view.tables))
            work.counted.add_written(writes_by_table(newest))
    return judged


def _pages(found: Collection[RawEntry]) -> list[QueuePage]:
    """Return a page for each transaction: the entries of one start are decoded like those of a dedicated row."""
    by_start = groupby(sorted(found, key=lambda each: (each.start is not None, each.start)), lambda each: each.start)
    return [
        scalar_page(list(members), [])
        if start is None
        else dedicated_page([(each.place, Version(start, each.value)) for each in members], start)
        for start, members in by_start
    ]


def _by_task(batches: list[pa.RecordBatch]) -> Collection[list[bytes]]:
    made, sample = blocks_of(batches) if batches else ([], [])
    bounds = chosen_bounds(sample, _TASKS)
    tasks: dict[int, list[bytes]] = {}
    for each in made:
        for task, block in divided(each["block"], each["first_cell"], each["last_cell"], bounds):
            tasks.setdefault(task, []).append(block)
    return tasks.values()
