"""The form of a sweep in the Airflow UI, and the order that it describes.

Airflow checks the form when a run is triggered. What it can't check (shards that do not exist), the first task of the
run refuses before anything is swept. A new option of a sweep is a field of `SweepOrder` and a field of this form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import pendulum
from airflow.sdk import Param

from sweep_tasks.clock import to_ms
from sweep_tasks.errors import BadValue
from sweep_tasks.model import MAX_TS, SweepStrategy
from sweep_tasks.orchestration.pools import SWEPT

if TYPE_CHECKING:
    from sweep_tasks.sweep.order import SweepOrder

_NUMBER = r"[0-9]{1,9}\s*"
_RANGE = rf"{_NUMBER}(-\s*{_NUMBER})?"
SHARDS = rf"^\s*({_RANGE}(,\s*{_RANGE})*)?$"
LONGEST_SHARDS = 2_000
"""In characters: twice what it takes to name each of at most 256 shards."""
_WHAT, _HOW_MUCH = "What to sweep", "How much"


class ShardTask(NamedTuple):
    """One task of a run, in the task group of its strategy."""

    strategy: SweepStrategy
    shard: int

    @property
    def task_id(self) -> str:
        return f"{self.strategy}.shard_{self.shard}"


def number_field(
    title: str, description: str, section: str, *, kind: str = "integer", maximum: int | None = None
) -> Param:
    """Return a field for a limit: a number from 0, where 0 is the default and means no limit or the setting."""
    limits: dict[str, Any] = {"minimum": 0} | ({} if maximum is None else {"maximum": maximum})
    return Param(0, type=kind, title=title, description=description, section=section, **limits)


def dry_run_field(description: str, section: str) -> Param:
    return Param(False, type="boolean", title="Dry run", description=description, section=section)


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
            maxLength=LONGEST_SHARDS,
            title="Shards",
            description=f"For example 0,2-{max(3, shards - 1)}; there are {shards}, from 0. Empty: all of them.",
            section=_WHAT,
        ),
        **order_fields(),
    }


def order_fields() -> dict[str, Param]:
    """Return the fields of the form that are fields of a `SweepOrder`, under the same names."""
    return {
        "dry_run": dry_run_field(
            "Count what would be removed; remove nothing, publish nothing, advance no progress.", _WHAT
        ),
        "max_entries": number_field(
            "Maximum entries",
            "A shard stops after this many queue entries, and the next run resumes there. 0: no limit.",
            _HOW_MUCH,
        ),
        "max_seconds": number_field(
            "Maximum seconds",
            "A shard stops after this many seconds, and the next run resumes there. 0: no limit.",
            _HOW_MUCH,
            kind="number",
        ),
        "stop_at": Param(
            None,
            type=["integer", "null"],
            minimum=0,
            maximum=MAX_TS,
            title="Stop at timestamp",
            description="Sweep up to this timestamp at most. It can only lower the one that the run computes.",
            section=_HOW_MUCH,
        ),
    }


def chosen(params: Mapping[str, Any], shards: int) -> list[ShardTask]:
    """Return the tasks that a run was asked for, of the existing `shards`."""
    numbers = sorted(set(_numbers(checked_shards(params["shards"] or ""), shards)))
    return [ShardTask(strategy, shard) for strategy in SWEPT if strategy in params["strategies"] for shard in numbers]


def checked_shards(text: str) -> str:
    """Return the text. Raise `BadValue` if it is not a list of shards, whether they exist or not."""
    if len(text) > LONGEST_SHARDS:
        raise BadValue(
            "shards", f"has {len(text)} characters, at most {LONGEST_SHARDS} are read; write ranges", reason="too_long"
        )
    if not re.match(SHARDS, text):
        raise BadValue(
            "shards",
            "can't be read; write numbers and ranges such as 0,2-5, or nothing for all",
            reason="malformed",
        )
    return text


def _numbers(text: str, shards: int) -> Iterator[int]:
    for part in text.split(",") if text.strip() else [f"0-{shards - 1}"]:
        first, dash, last = (each.strip() for each in part.partition("-"))
        begin, end = int(first), int(last) if dash else int(first)
        if begin > end:
            raise BadValue("shards", f"{part.strip()} is reversed; write {end}-{begin}", reason="reversed")
        if end >= shards:
            known = f"there are {shards}, from 0 to {shards - 1}"
            raise BadValue("shards", f"{end} does not exist; {known}", reason="out_of_range")
        yield from range(begin, end + 1)


INTERVAL_END = "{{ data_interval_end if data_interval_end is defined and data_interval_end else dag_run.run_after }}"
"""A run that was triggered without a logical date has no interval: it sweeps up to the moment of the trigger."""


def moment_ms(text: str) -> int:
    """Parse a time that a template has written."""
    moment = pendulum.parse(text)
    if not isinstance(moment, pendulum.DateTime):
        raise BadValue("until", f"{text} is not a date with a time of day")
    return to_ms(moment)


def order_of(params: Mapping[str, Any], task: ShardTask, until_ms: int) -> SweepOrder:
    from sweep_tasks.sweep.order import SweepOrder

    return SweepOrder(
        task.strategy,
        task.shard,
        until_ms=until_ms,
        **{name: params[name] for name in order_fields()},
    )
