"""Settings of targeted sweeps and of table scans (legacy sweeps)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
)
from pydantic_settings import NoDecode

from sweep_tasks.config.values import MAX_PAGE_VERSIONS, CommaSeparated, refused
from sweep_tasks.model import SweepStrategy


class TasksAtOnce(BaseModel, defer_build=True):
    """How many shards of each strategy are swept at the same time."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    conservative: int = Field(ge=1)
    thorough: int = Field(ge=1)

    def __getitem__(self, strategy: SweepStrategy) -> int:
        number: int = getattr(self, strategy.value)
        return number

    @property
    def total(self) -> int:
        return self.conservative + self.thorough

    def __str__(self) -> str:
        """Return the form that `_at_once` reads."""
        if self.conservative == self.thorough:
            return str(self.conservative)
        return f"conservative:{self.conservative},thorough:{self.thorough}"


def _at_once(given: Any) -> Any:
    """Accept one number for both strategies, and the text of an environment variable."""
    if isinstance(given, str) and not given.strip().isdecimal():
        pairs = [part.partition(":") for part in given.split(",")]
        named = {name.strip(): number.strip() for name, _, number in pairs}
        if set(named) != set(TasksAtOnce.model_fields) or len(named) != len(pairs):
            raise refused("malformed", "must be a number for both strategies, or like conservative:4,thorough:2")
        return named
    if isinstance(given, str | int) and not isinstance(given, bool):
        return dict.fromkeys(TasksAtOnce.model_fields, given)
    return given


AtOnce = Annotated[TasksAtOnce, NoDecode, BeforeValidator(_at_once)]


class SweepSettings(BaseModel, defer_build=True):
    grace_s: int = Field(default=3_600, ge=0, description="how long sweeps watch aborted transactions for late writes")
    sweep_batch_entries: int = Field(default=100_000, gt=0, description="queue entries in one batch of a sweep")
    max_tombstones_per_partition: int = Field(
        default=50_000, ge=0, description="maximum number of tombstones that one run writes to one row; 0: no limit"
    )
    parked_per_run: int = Field(
        default=500_000, ge=0, description="parked entries that one run of a shard judges again; 0: no limit"
    )
    retention_s: int = Field(default=3_600, ge=0, description="how long conservative tables keep overwritten versions")
    clock_step_max_s: int = Field(
        default=900,
        ge=0,
        description="the most that a clock sample may be ahead of the last one plus the measured time; 0: no limit",
    )
    shards: int = Field(
        default=4, ge=1, le=256, description="shards of the queue for each strategy, one task each; can only be raised"
    )
    sweep_tasks_at_once: AtOnce = Field(
        default=TasksAtOnce(conservative=2, thorough=2),
        description="shards that are swept at the same time: one number for each strategy, such as "
        "`conservative:4,thorough:1`, or one for both",
    )
    spark_batch_entries: int = Field(default=500_000, gt=0, description="queue entries in one batch of a Spark job")
    catch_up_from: AwareDatetime | None = Field(
        default=None,
        description="first hour of the schedule; every missed hour since then is run; none: only the latest hour",
    )
    runs_at_once: int | None = Field(
        default=None, ge=1, description="concurrent sweep runs; none: one while missed hours are run, otherwise four"
    )
    lag_objective_conservative_s: int = Field(
        default=14_400, gt=0, description="lag of a conservative shard above which an alert is sent"
    )
    lag_objective_thorough_s: int = Field(
        default=10_800, gt=0, description="lag of a thorough shard above which an alert is sent"
    )


class LegacySettings(BaseModel, defer_build=True):
    legacy_ranges: int = Field(default=64, ge=1, le=10_000, description="ranges into which a table scan is split")
    legacy_batch_versions: int = Field(
        default=5_000, gt=0, le=MAX_PAGE_VERSIONS, description="versions that a table scan fetches at once"
    )
    legacy_versions_per_s: int = Field(
        default=100_000, ge=0, description="versions that a table scan examines per second; 0: no limit"
    )
    legacy_silent_s: int = Field(
        default=600,
        gt=0,
        description="a table scan without a heartbeat for this long counts as dead, and another process resumes it",
    )
    legacy_schedule: str | None = Field(
        default="30 * * * *",
        description="cron schedule of rotating table scans; none: scans only run on request",
    )
    legacy_budget_s: int = Field(
        default=1_200, ge=0, description="time for scheduled table scans in one run, for each worker slot; 0: no scans"
    )
    legacy_slots: int = Field(
        default=2,
        ge=1,
        le=64,
        description="worker slots, that is tables that are scanned at the same time; each has its own pool",
    )
    legacy_tables_per_slot: int = Field(
        default=4, ge=1, description="tables that share the time of one worker slot, if that many are waiting"
    )
    legacy_pause_s: int = Field(default=604_800, ge=0, description="minimum time between two complete scans of a table")
    legacy_first: CommaSeparated = Field(
        default=(), description="tables and patterns that are scanned before all others, separated by commas"
    )
    legacy_never: CommaSeparated = Field(
        default=(), description="tables and patterns that the schedule never scans, separated by commas"
    )
