"""The status of a store: the document that the page, the command and the metrics show.

It contains tables, records, owners and numbers, and never a row, a column or a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweep_tasks.clock import Clock, from_ms
from sweep_tasks.config import Settings
from sweep_tasks.coordination.leases import Lease
from sweep_tasks.diagnosis.documents import as_document
from sweep_tasks.diagnosis.lag import ShardLag, SweptUpTo, estimated_entries, objectives, queue_name
from sweep_tasks.diagnosis.problems import Health, diagnose
from sweep_tasks.diagnosis.state import StoreState, read_state
from sweep_tasks.metrics.samples import MOST, QueueSample
from sweep_tasks.metrics.tally import LastSweep, Series
from sweep_tasks.model import EVERYTHING
from sweep_tasks.protection.reconciliation import age_s, expired
from sweep_tasks.protection.records import Record
from sweep_tasks.store.contract import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockStatus:
    last: str | None
    """The last clock sample."""
    last_ms: int | None
    problems: list[dict[str, str | int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    timestamps: int
    """Timestamps that are not swept yet."""
    entries_estimated: int | None
    """Estimated from past sweeps; before the first sweep, as many as were counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardBacklog(Backlog):
    at_least: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStatus:
    strategy: str
    shard: int
    progress: int
    lag_s: int | None
    lag_at_least: bool
    behind: bool
    """The lag is greater than the objective."""
    backlog: ShardBacklog
    parked: int | None
    last_run: LastSweep | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyStatus:
    """All shards of a strategy together."""

    shards: int
    behind: int
    lag_s: int | None
    """The greatest of its shards."""
    backlog: Backlog


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransactionStatus:
    lease: int
    owner: str
    start: int | None
    since: str | None
    age_s: int | None
    age_at_least: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectionStatus:
    id: str
    owner: str
    meta: dict[str, str]
    ts: int
    mode: str
    state: str
    moving_to: int | None
    tables: list[str]
    some_rows_only: bool
    created: str | None
    age_s: int | None
    expires: str | None
    expired: bool
    version: int
    entries_held: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    used: int
    limit: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectionLimits:
    records: Usage
    spans: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedStatus:
    total: int
    by_reason: dict[str, int]
    at_least: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedStatus:
    total: int
    by_shard: dict[str, int]
    by_reason: dict[str, int]
    at_least: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseStatus:
    what: str
    by: str
    reason: str
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    now: str
    now_ms: int
    health: Health
    timestamp: int
    clock: ClockStatus
    thresholds: dict[str, int]
    """By strategy, like `objectives` and `strategies`."""
    objectives: dict[str, int]
    shards: list[ShardStatus]
    strategies: dict[str, StrategyStatus]
    open_transactions: int
    oldest_open_transaction: OpenTransactionStatus | None
    protections: int
    protection_records: list[ProtectionStatus]
    protection_limits: ProtectionLimits
    parked: ParkedStatus | None
    quarantined: QuarantinedStatus | None
    paused: list[PauseStatus]
    counted: str | None
    """When parked and quarantined entries were counted; None if they never were."""

    def document(self) -> dict[str, Any]:
        """Return the JSON document of `sweepflow status --json`."""
        return as_document(self)


def status(store: Store, settings: Settings, clock: Clock) -> Status:
    """Read the status in a fixed number of store calls."""
    return status_of(read_state(store, settings, clock), settings)


def status_of(state: StoreState, settings: Settings) -> Status:
    allowed = {strategy.value: seconds for strategy, seconds in objectives(settings).items()}
    shards = _shards(state, allowed)
    records = sorted(state.records, key=lambda record: (record.created_ms, record.id))
    return Status(
        now=str(from_ms(state.now_ms)),
        now_ms=state.now_ms,
        health=diagnose(state, settings),
        timestamp=state.timestamp,
        clock=_clock(state, settings),
        thresholds={strategy.value: ts for strategy, ts in state.thresholds.items()},
        objectives=allowed,
        shards=shards,
        strategies={
            strategy: _strategy([each for each in shards if each.strategy == strategy]) for strategy in allowed
        },
        open_transactions=len(state.leases),
        oldest_open_transaction=_transaction(state.leases[0], state) if state.leases else None,
        protections=len(state.records),
        protection_records=[_protection(record, state) for record in records],
        protection_limits=ProtectionLimits(
            records=Usage(used=state.meta.records, limit=settings.max_protection_records or None),
            spans=Usage(used=state.meta.spans, limit=settings.max_protection_spans or None),
        ),
        parked=_parked(state.sample) if state.sample else None,
        quarantined=_quarantined(state.sample) if state.sample else None,
        paused=[PauseStatus(what=what, **pause._asdict()) for what, pause in state.paused.listed()],
        counted=str(from_ms(state.sample.at_ms)) if state.sample else None,
    )


def _clock(state: StoreState, settings: Settings) -> ClockStatus:
    return ClockStatus(
        last=str(from_ms(state.clock.wall_ms)) if state.clock else None,
        last_ms=state.clock.wall_ms if state.clock else None,
        problems=[each.document() for each in state.clock_problems(settings)],
    )


def _shards(state: StoreState, allowed: Mapping[str, int]) -> list[ShardStatus]:
    sweeps = {(each.labels["strategy"], each.labels["shard"]): (each, last) for each, last in state.sweeps()}
    return [
        _shard(state, swept, lag, allowed, *sweeps.get((swept.strategy.value, str(swept.shard)), (None, None)))
        for swept, lag in zip(state.swept, state.lags(), strict=True)
    ]


def _shard(
    state: StoreState,
    swept: SweptUpTo,
    lag: ShardLag,
    allowed: Mapping[str, int],
    series: Series | None,
    last_run: LastSweep | None,
) -> ShardStatus:
    queue = queue_name(swept.strategy, swept.shard)
    counted = state.sample.backlog.by_shard.get(queue) if state.sample else None
    return ShardStatus(
        strategy=swept.strategy.value,
        shard=swept.shard,
        progress=swept.progress,
        lag_s=lag.lag_s if state.first else None,
        lag_at_least=swept.moment_ms is None,
        behind=lag.lag_s > allowed[swept.strategy.value],
        backlog=_backlog(max(0, state.timestamp - swept.progress), series, counted),
        parked=state.sample.parked.by_shard.get(queue, 0) if state.sample else None,
        last_run=last_run,
    )


def _backlog(timestamps: int, series: Series | None, counted: int | None) -> ShardBacklog:
    estimated = estimated_entries(timestamps, series.sums if series else None)
    if estimated is None and counted is not None:
        return ShardBacklog(timestamps=timestamps, entries_estimated=counted, at_least=counted >= MOST)
    return ShardBacklog(timestamps=timestamps, entries_estimated=estimated, at_least=False)


def _strategy(shards: list[ShardStatus]) -> StrategyStatus:
    estimates = [each.backlog.entries_estimated for each in shards if each.backlog.entries_estimated is not None]
    return StrategyStatus(
        shards=len(shards),
        behind=sum(each.behind for each in shards),
        lag_s=max((each.lag_s for each in shards if each.lag_s is not None), default=None),
        backlog=Backlog(
            timestamps=max((each.backlog.timestamps for each in shards), default=0),
            entries_estimated=sum(estimates) if estimates else None,
        ),
    )


def _transaction(lease: Lease, state: StoreState) -> OpenTransactionStatus:
    since_ms, at_least = state.open_since_ms(lease)
    return OpenTransactionStatus(
        lease=lease.ts,
        owner=lease.owner,
        start=lease.start,
        since=None if since_ms is None else str(from_ms(since_ms)),
        age_s=None if since_ms is None else max(0, state.now_ms - since_ms) // 1000,
        age_at_least=at_least,
    )


def _protection(record: Record, state: StoreState) -> ProtectionStatus:
    return ProtectionStatus(
        id=record.id,
        owner=record.meta_type,
        meta=dict(record.meta),
        ts=record.ts,
        mode=record.mode.value,
        state=record.state.value,
        moving_to=record.held_ts,
        tables=sorted({str(target.table) for target in record.targets}),
        some_rows_only=any(target.rows != EVERYTHING for target in record.targets),
        created=str(from_ms(record.created_ms)) if record.created_ms else None,
        age_s=age_s(record, state.now_ms),
        expires=str(from_ms(record.expires_ms)) if record.expires_ms is not None else None,
        expired=expired(record, state.now_ms),
        version=record.version,
        entries_held=state.sample.parked.by_record.get(record.id, 0) if state.sample else None,
    )


def _parked(sample: QueueSample) -> ParkedStatus:
    by_reason = sample.parked.by_reason
    return ParkedStatus(total=sum(by_reason.values()), by_reason=by_reason, at_least=sample.parked.at_least)


def _quarantined(sample: QueueSample) -> QuarantinedStatus:
    found = sample.quarantined
    return QuarantinedStatus(
        total=sum(found.by_shard.values()),
        by_shard=found.by_shard,
        by_reason=found.by_reason,
        at_least=found.at_least,
    )
