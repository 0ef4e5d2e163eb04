"""The form of a sweep in the Airflow UI, and what its answers mean.

The form itself is checked by Airflow when a run is triggered. What it can not check (shards that do not exist) the
first task of the run refuses, before anything is swept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.sdk import Param

from sweep_tasks.errors import BadValue
from sweep_tasks.model import MAX_TS, SweepStrategy
from sweep_tasks.orchestration.pools import SWEPT

if TYPE_CHECKING:
    from sweep_tasks.sweep.order import SweepOrder

SHARDS = r"^\s*(\d+\s*(-\s*\d+\s*)?(,\s*\d+\s*(-\s*\d+\s*)?)*)?$"
_WHAT, _HOW_MUCH = "What to sweep", "How much"


class ShardTask(NamedTuple):
    """One task of a run, in the task group of its strategy."""

    strategy: SweepStrategy
    shard: int

    @property
    def task_id(self) -> str:
        return f"{self.strategy}.shard_{self.shard}"


def sweep_form(shards: int) -> dict[str, Param]:
    names = [strategy.value for strategy in SWEPT]
    return {
        "strategies": Param(
            names,
            type="array",
            items={"type": "string", "enum": names},
            examples=names,
            minItems=1,
            title="Strategies",
            section=_WHAT,
        ),
        "shards": Param(
            "",
            type=["string", "null"],
            pattern=SHARDS,
            title="Shards",
            description=f"For example 0,2-{max(3, shards - 1)}; there are {shards}, from 0. Empty: all of them.",
            section=_WHAT,
        ),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Count what would go; remove nothing, publish nothing, move no progress.",
            section=_WHAT,
        ),
        "max_entries": Param(
            0,
            type="integer",
            minimum=0,
            title="Entries at most",
            description="A shard stops after so many queue entries, the next run goes on from there. 0: no limit.",
            section=_HOW_MUCH,
        ),
        "max_seconds": Param(
            0,
            type="number",
            minimum=0,
            title="Seconds at most",
            description="A shard stops after so many seconds, the next run goes on from there. 0: no limit.",
            section=_HOW_MUCH,
        ),
        "stop_at": Param(
            None,
            type=["integer", "null"],
            minimum=0,
            maximum=MAX_TS,
            title="Stop at timestamp",
            description="Go no further than this sweep timestamp. It can only lower the one the run finds.",
            section=_HOW_MUCH,
        ),
    }


def chosen(params: Mapping[str, Any], shards: int) -> list[ShardTask]:
    """The tasks a run was asked for, of the `shards` that there are."""
    numbers = sorted(set(_numbers(params["shards"] or "", shards)))
    return [ShardTask(strategy, shard) for strategy in SWEPT if strategy in params["strategies"] for shard in numbers]


def _numbers(text: str, shards: int) -> Iterator[int]:
    for part in text.split(",") if text.strip() else [f"0-{shards - 1}"]:
        first, dash, last = (each.strip() for each in part.partition("-"))
        begin, end = int(first), int(last) if dash else int(first)
        if begin > end:
            raise BadValue("shards", f"{part.strip()} begins above its end; write {end}-{begin}", reason="reversed")
        if end >= shards:
            known = f"there are {shards}, from 0 to {shards - 1}"
            raise BadValue("shards", f"{end} does not exist; {known}", reason="out_of_range")
        yield from range(begin, end + 1)


def order_of(params: Mapping[str, Any], task: ShardTask, until_ms: int) -> SweepOrder:
    from sweep_tasks.sweep.order import SweepOrder

    return SweepOrder(
        task.strategy,
        task.shard,
        until_ms=until_ms,
        stop_at=params["stop_at"],
        max_entries=params["max_entries"],
        max_seconds=params["max_seconds"],
        dry_run=params["dry_run"],
    )
