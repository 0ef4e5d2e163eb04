"""What one run is asked to sweep, with which options, and how much work it may do.

The same order drives the in-process sweep, the Spark job (as a JSON document) and an Airflow task (from a form). A run
that has used up its budget leaves the rest to the next run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, NamedTuple

import pendulum
from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field
from pydantic.dataclasses import dataclass as model

from sweep_tasks.clock import Clock, to_ms
from sweep_tasks.config import Settings
from sweep_tasks.errors import BadValue
from sweep_tasks.model import SweepStrategy, checked_timestamp
from sweep_tasks.orders import ORDER_CONFIG, Order
from sweep_tasks.queue.encoding import checked_shard, row_of
from sweep_tasks.queue.progress import QUEUES, Progress
from sweep_tasks.queue.reader import DEFAULT_BATCH, RawEntry
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.horizon import Horizon, horizon_now
from sweep_tasks.sweep.summary import ProgressListener, ignore_progress


class Budget(NamedTuple):
    """How much one run may do. 0 means no limit."""

    entries: int = 0
    seconds: float = 0
    tombstones_per_partition: int = 0
    """A Cassandra read fails at 100 000 tombstones in a partition; a run must not write that many into one."""
    parked: int = 0
    """Entries that became due because a protection or a retention ended: after weeks there may be very many at once."""

    @classmethod
    def of(cls, settings: Settings, entries: int, seconds: float) -> Budget:
        """Return what was asked for, within what the settings allow for every run."""
        return cls(entries, seconds, settings.max_tombstones_per_partition, settings.parked_per_run)


UNLIMITED = Budget()


class Spending:
    """How much of a budget a run has used."""

    def __init__(self, budget: Budget, clock: Clock) -> None:
        self._budget = budget
        self._clock = clock
        self._began_ms = clock.now_ms()
        self._entries = 0
        self._read = 0
        self._uncounted: list[Sequence[RawEntry]] = []
        self._rows: Counter[tuple[int | str, bytes]] = Counter()
        self._first: int | None = None

    def batch_size(self, wanted: int) -> int:
        return min(wanted, self._budget.entries) if self._budget.entries else wanted

    def spend(self, entries: int) -> None:
        self._entries += entries

    def exhausted(self) -> str | None:
        """Return the limit that is reached, or None."""
        if self._budget.entries and self._entries >= self._budget.entries:
            return "entries"
        elapsed = (self._clock.now_ms() - self._began_ms) / 1000
        return "seconds" if self._budget.seconds and elapsed >= self._budget.seconds else None

    def first_over_cap(self, entries: Sequence[RawEntry]) -> int | None:
        """Return the start timestamp that would put too many tombstones into one row. The first transaction of a run
        never does: otherwise one large transaction would block its shard for ever.

        Rows are counted only once a run has read more entries than the limit; before that, no row can have too many.
        """
        cap = self._budget.tombstones_per_partition
        if not cap:
            return None
        self._read += len(entries)
        self._uncounted.append(entries)
        if self._read <= cap:
            return None
        uncounted, self._uncounted = self._uncounted, []
        for start, row in _rows_of(chain.from_iterable(uncounted)):
            self._first = start if self._first is None else self._first
            self._rows[row] += 1
            if self._rows[row] > cap and start != self._first:
                return start
        return None


def _rows_of(entries: Iterable[RawEntry]) -> Iterator[tuple[int, tuple[int | str, bytes]]]:
    """Yield the start and the row of each entry that can be read. The others are quarantined and delete nothing."""
    for start, _, value in entries:
        if start is not None:
            with suppress(BadValue):
                yield start, row_of(value)


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """How a shard is swept, with the defaults of the settings filled in."""

    batch: int = DEFAULT_BATCH
    grace_s: int = 3_600
    budget: Budget = UNLIMITED
    dry_run: bool = False
    listener: ProgressListener = ignore_progress
    """Called many times with the current progress."""

    @classmethod
    def of(
        cls,
        settings: Settings,
        *,
        max_entries: int = 0,
        max_seconds: float = 0,
        dry_run: bool = False,
        listener: ProgressListener = ignore_progress,
    ) -> SweepOptions:
        """Return what was asked for, with the settings for everything else. An order, the command and the library call
        this, so that an option means the same in all of them."""
        for field, most in (("max_entries", max_entries), ("max_seconds", max_seconds)):
            if most < 0:
                raise BadValue(field, f"{most} is negative; give at least 0, which is no limit", reason="negative")
        budget = Budget.of(settings, max_entries, max_seconds)
        return cls(settings.sweep_batch_entries, settings.grace_s, budget, dry_run, listener)


def checked_swept(strategy: SweepStrategy) -> SweepStrategy:
    if strategy not in QUEUES:
        raise BadValue("strategy", f"{strategy} is never swept; give {' or '.join(QUEUES)}")
    return strategy


def _timestamp(ts: int | None) -> int | None:
    return None if ts is None else checked_timestamp(ts, "stop_at")


def _moment_ms(given: Any) -> Any:
    """Accept a time in ISO 8601 as well as milliseconds: a person writes the former."""
    if not isinstance(given, str):
        return given
    try:
        moment = pendulum.parse(given)
    except ValueError:
        moment = None
    if not isinstance(moment, pendulum.DateTime):
        raise BadValue("until", f"{given[:40]!r} is not a time; write it like 2026-01-31T10:00:00+00:00")
    return to_ms(moment)


@model(frozen=True, config=ORDER_CONFIG)
class SweepOrder(Order):
    """Sweep one shard of one strategy."""

    strategy: Annotated[SweepStrategy, AfterValidator(checked_swept)]
    shard: Annotated[int, AfterValidator(checked_shard)]
    until_ms: Annotated[int | None, BeforeValidator(_moment_ms)] = Field(
        default=None, validation_alias=AliasChoices("until_ms", "until")
    )
    """The end of the run's data interval; None is now."""
    stop_at: Annotated[int | None, AfterValidator(_timestamp)] = None
    """A sweep timestamp given by a person. It can only lower the one that is computed."""
    max_entries: int = Field(default=0, ge=0)
    max_seconds: float = Field(default=0, ge=0)
    dry_run: bool = False

    def options(self, settings: Settings) -> SweepOptions:
        return SweepOptions.of(
            settings, max_entries=self.max_entries, max_seconds=self.max_seconds, dry_run=self.dry_run
        )

    def horizon(self, store: Store, settings: Settings, clock: Clock) -> Horizon:
        """Return the greatest timestamp that this order may sweep now.

        A dry run does not raise the number of shards, so it may name a shard that the next run is going to create.
        """
        if not self.dry_run:
            Progress(store).check([self.shard])
        found = self.measure(store, settings, clock)
        return found if self.stop_at is None else found._replace(sweep_ts=min(found.sweep_ts, self.stop_at))

    def measure(self, store: Store, settings: Settings, clock: Clock) -> Horizon:
        """Compute the horizon of the strategy, up to the end of the interval."""
        return horizon_now(self.strategy, store, settings, clock, self.until_ms, dry_run=self.dry_run)
