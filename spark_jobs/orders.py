"""The orders of the Spark jobs: one JSON document travels from the task that submits a job to the job, one comes back.

A job order is the order of the work itself and what the job records about it: the attempt that the figures are counted
under, and the actor that the journal names. Light to import: the Airflow tasks need no PySpark.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter
from pydantic.dataclasses import dataclass

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.errors import BadValue
from sweep_tasks.export.files import as_folder
from sweep_tasks.journal.actors import checked_reason
from sweep_tasks.legacy.order import LegacyOrder
from sweep_tasks.metrics.tally import TaskAttempt
from sweep_tasks.orders import ORDER, ORDER_CONFIG, Order
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.order import SweepOrder

SUBMITTED = "spark-submit"
"""Stands in the place of a DAG for a job that no task has submitted."""


def _reason(given: str) -> str:
    return given and checked_reason(given)


JobReason = Annotated[str, AfterValidator(_reason)]
"""Why it is done, for the journal; empty if no reason was given."""


@dataclass(frozen=True, config=ORDER_CONFIG)
class SweepJob(SweepOrder):
    attempt: TaskAttempt | None = Field(default=None, kw_only=True)
    """The task attempt whose figures these are; counted once for each. A run of its own if not given."""
    actor: str | None = Field(default=None, kw_only=True)
    """The name in the journal; the user of the process if not given."""
    reason: JobReason = Field(default="", kw_only=True)
    journal_entry: int | None = Field(default=None, kw_only=True)
    """The entry of the run that this sweep is part of. The sweep records an entry of its own if there is none, or if
    that one does not say what the sweep does."""
    measured: Horizon | None = Field(default=None, kw_only=True)
    """The horizon, if the task has already computed and published it."""

    def measure(self, store: Store, settings: Settings, clock: Clock) -> Horizon:
        """Return the measured horizon, so that it is not computed twice, or compute it.

        A document may say anything, so a measured horizon counts only up to the published threshold, which a sweep
        computed; and its moment only up to the last clock sample, as that of every horizon that was just computed.
        """
        if self.measured is None or self.measured.sweep_ts > Thresholds(store).of_strategy(self.strategy):
            return super().measure(store, settings, clock)
        wall_ms = self.measured.wall_ms if self.until_ms is None else min(self.measured.wall_ms, self.until_ms)
        return Horizon(self.measured.sweep_ts, wall_ms, sampled=True)

    @property
    def counted_under(self) -> TaskAttempt:
        return self.attempt or TaskAttempt(SUBMITTED, uuid.uuid4().hex, f"{self.strategy}.shard_{self.shard}")


class Start(StrEnum):
    """How a scan starts if the table has an unfinished run."""

    RESUME_OR_START = "resume_or_start"
    """Resume a run of the same rows; refuse if another process works on it."""
    RESTART = "restart"
    """Start from the beginning; refuse if another process works on the run."""
    RESUME = "resume"
    """Resume the run, even if another process works on it."""
    TAKE_OVER = "take_over"
    """Start from the beginning, even if another process works on the run."""


@dataclass(frozen=True, config=ORDER_CONFIG)
class ScanJob(LegacyOrder):
    start: Start = Field(default=Start.RESUME_OR_START, kw_only=True)
    scheduled: bool = Field(default=False, kw_only=True)
    """The scan is part of the rotation: drop a run of other rows, and skip a table whose run was cancelled."""
    owner: str | None = Field(default=None, kw_only=True)
    """Shown to other processes that want to sweep the table."""
    run_id: str | None = Field(default=None, kw_only=True)
    """The id of a run that is started; random if not given."""
    attempt: TaskAttempt | None = Field(default=None, kw_only=True)
    actor: str | None = Field(default=None, kw_only=True)
    reason: JobReason = Field(default="", kw_only=True)

    @property
    def counted_under(self) -> TaskAttempt:
        return self.attempt or TaskAttempt(SUBMITTED, uuid.uuid4().hex, f"legacy-sweep {self.table}")


def _named(tables: tuple[str, ...]) -> tuple[str, ...]:
    if not tables:
        raise BadValue("tables", "names none; give a list of names or patterns", reason="empty")
    return tables


def _folder(field: str) -> BeforeValidator:
    def parse(given: Any) -> Any:
        return str(as_folder(given, field)) if isinstance(given, str) else given

    return BeforeValidator(parse)


@dataclass(frozen=True, config=ORDER_CONFIG)
class ExportOrder(Order):
    tables: Annotated[tuple[str, ...], AfterValidator(_named)]
    """Names, or patterns with `*`."""
    at: int
    """The timestamp; it must be protected, or not yet swept."""
    to: Annotated[Path, _folder("to")]
    """A new or empty folder."""
    since: Annotated[Path | None, _folder("since")] = None
    """An earlier export: then only what has changed since is written."""


@dataclass(frozen=True, config=ORDER_CONFIG)
class MeasureJob(Order):
    """Measure the SSTables of a node of the settings, or of the given folders."""

    node: str | None = None
    """A node of the setting compaction_nodes; then only tables may be given as well."""
    tables: tuple[str, ...] = ()
    """For a node the tables of the store, all if there are none; for folders `keyspace.table`."""
    data: tuple[Path, ...] = ()
    """A node's data folders."""
    gc_grace_s: int | None = None
    """`gc_grace_seconds` of these tables."""
    to: Path | None = None
    """The file to write the statistics to."""
    sstabledump: str = "sstabledump"
    """The command that starts sstabledump."""


@dataclass
class ExportSummary:
    """What the export job did."""

    kind: str
    ts: int
    folder: str
    since: str | None
    tables: dict[str, dict[str, int]]
    puts: int
    deletes: int
    files: int
    made: bool
    """False if the export existed already."""
    seconds: dict[str, float]

    def document(self) -> dict[str, Any]:
        """Return the summary as JSON types. `parse` is the inverse."""
        return asdict(self)

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> ExportSummary:
        return TypeAdapter(cls).validate_python(document)


def read_order(given: str) -> str:
    """Return the JSON document: the argument itself, or the content of the file that it names."""
    if given.lstrip().startswith("{"):
        return given
    try:
        return Path(given).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        problem = f"{given[:200]!r} is neither a JSON object nor a file that can be read ({type(error).__name__})"
        raise BadValue(ORDER, problem, reason="unreadable") from None
