"""The Airflow pools, all of size one: for every shard of every strategy, every worker slot of scans, and every node.

A second task on the same shard, worker slot or node waits. Tables are not known when a DAG file is read, so they share
worker slots. A pool saves work, it is no lock: Airflow frees the pool of a task that it marks failed before the Spark
driver is dead. The order of the steps of a sweep makes two concurrent sweeps of one shard safe. A task waits silently
and forever for a pool that does not exist, and no task may create one: an operator does, with `sweepflow airflow
pools`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, TypedDict

from sweep_tasks.model import SweepStrategy

SWEPT = tuple(strategy for strategy in SweepStrategy if strategy is not SweepStrategy.NOTHING)
PREFIXES = SWEEPS, SCANS, COMPACTIONS = "sweep_", "legacy_", "compact_"
MAKE_POOLS = "sweepflow airflow pools"


def pool_name(strategy: SweepStrategy, shard: int) -> str:
    return f"{SWEEPS}{strategy}_{shard}"


def pool_names(shards: int) -> list[str]:
    return [pool_name(strategy, shard) for strategy in SWEPT for shard in range(shards)]


def scan_pools(scan_slots: int) -> list[str]:
    return [f"{SCANS}{slot}" for slot in range(scan_slots)]


def compaction_pool(node: str) -> str:
    return f"{COMPACTIONS}{node}"


class PoolProperties(TypedDict):
    """A pool without its name, as `airflow pools import` reads it."""

    slots: int
    description: str
    include_deferred: bool


def pools_document(shards: int, scan_slots: int = 0, nodes: Iterable[str] = ()) -> dict[str, PoolProperties]:
    """Return the document for `airflow pools import`."""
    sweeps = {
        pool_name(strategy, shard): f"one sweep at a time of {strategy} shard {shard}"
        for strategy in SWEPT
        for shard in range(shards)
    }
    scans = {
        name: f"one scan at a time of the tables in worker slot {slot}"
        for slot, name in enumerate(scan_pools(scan_slots))
    }
    compactions = {compaction_pool(node): f"one compaction at a time on node {node}" for node in nodes}
    return {
        name: {"slots": 1, "description": described, "include_deferred": True}
        for name, described in (sweeps | scans | compactions).items()
    }


class PoolProblem(NamedTuple):
    reason: str
    pools: list[str]
    sentence: str


def pool_problem(names: Collection[str], slots: Mapping[str, int]) -> PoolProblem | None:
    """Return the first problem with these pools, or None."""
    missing = [name for name in names if name not in slots]
    if missing:
        sentence = f"pools: {_some(missing)} missing; run '{MAKE_POOLS}' where Airflow runs, then clear this task"
        return PoolProblem("missing", missing, sentence)
    wide = [name for name in names if slots[name] != 1]
    if wide:
        sentence = f"pools: {_some(wide)} not of one slot; run '{MAKE_POOLS}' to correct that, then clear this task"
        return PoolProblem("not_one_slot", wide, sentence)
    return None


def _some(names: list[str]) -> str:
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{listed} {'is' if len(names) == 1 else 'are'}"
