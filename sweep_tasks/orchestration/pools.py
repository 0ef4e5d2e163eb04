"""One pool with one slot for every shard of every strategy: a second run on the same shard waits for its turn.

A pool saves work, it is no lock: Airflow frees the slot of a task that it marks failed before the Spark driver is dead.
The order of a sweep alone keeps two of one shard from doing harm. Airflow waits for ever, and says nothing, for a pool
that does not exist, and no task may create one: an operator does, with `sweepflow airflow pools`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweep_tasks.model import SweepStrategy

SWEPT = tuple(strategy for strategy in SweepStrategy if strategy is not SweepStrategy.NOTHING)
PREFIX = "sweep_"
MAKE_POOLS = "sweepflow airflow pools"


def pool_name(strategy: SweepStrategy, shard: int) -> str:
    return f"{PREFIX}{strategy}_{shard}"


def pool_names(shards: int) -> list[str]:
    return [pool_name(strategy, shard) for strategy in SWEPT for shard in range(shards)]


def pools_document(shards: int) -> dict[str, dict[str, Any]]:
    """What `airflow pools import` takes."""
    return {
        pool_name(strategy, shard): {
            "slots": 1,
            "description": f"one sweep at a time of {strategy} shard {shard}",
            "include_deferred": True,
        }
        for strategy in SWEPT
        for shard in range(shards)
    }


def pool_problem(shards: int, slots: Mapping[str, int]) -> str | None:
    """What is wrong with the pools that Airflow has, in one sentence."""
    missing = [name for name in pool_names(shards) if name not in slots]
    if missing:
        return f"pools: {_some(missing)} missing; run '{MAKE_POOLS}' where Airflow runs, then clear this task"
    wide = [name for name in pool_names(shards) if slots[name] != 1]
    if wide:
        return f"pools: {_some(wide)} not of one slot; run '{MAKE_POOLS}' to set that right, then clear this task"
    return None


def _some(names: list[str]) -> str:
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{listed} {'is' if len(names) == 1 else 'are'}"
