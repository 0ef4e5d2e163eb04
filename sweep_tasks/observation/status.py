"""The state of a store as one document: what the page, the command and the metrics all show.

Plain values, as JSON takes them. It names tables, records, owners and numbers, never a row, a column or a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweep_tasks.clock import Clock, from_ms
from sweep_tasks.config import Settings
from sweep_tasks.model import EVERYTHING
from sweep_tasks.observation import health
from sweep_tasks.observation.backlog import estimated_entries
from sweep_tasks.observation.facts import Facts, read_facts
from sweep_tasks.observation.samples import MOST
from sweep_tasks.observation.tally import Series
from sweep_tasks.protection.reconcile import age_s, expired
from sweep_tasks.protection.records import Record
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.lag import objectives

Document = dict[str, Any]


def status(store: Store, settings: Settings, clock: Clock) -> Document:
    """In a fixed number of store calls, however many shards and protections there are."""
    return document(read_facts(store, settings, clock), settings)


def document(facts: Facts, settings: Settings) -> Document:
    allowed = {strategy.value: seconds for strategy, seconds in objectives(settings).items()}
    shards = _shards(facts, allowed)
    return {
        "now": str(from_ms(facts.now_ms)),
        "now_ms": facts.now_ms,
        "health": health.document(facts, settings),
        "timestamp": facts.timestamp,
        "thresholds": {strategy.value: ts for strategy, ts in facts.thresholds.items()},
        "objectives": allowed,
        "shards": shards,
        "strategies": _strategies(shards, allowed),
        "open_transactions": len(facts.leases),
        "oldest_open_transaction": _oldest(facts),
        "protections": len(facts.records),
        "protection_records": [_protection(record, facts) for record in sorted(facts.records, key=_by_age)],
        "protection_limits": {
            "records": {"used": facts.meta.records, "limit": settings.max_protection_records or None},
            "spans": {"used": facts.meta.spans, "limit": settings.max_protection_spans or None},
        },
        "parked": _parked(facts.sample),
        "quarantined": _quarantined(facts.sample),
        "paused": [{"what": what, **pause._asdict()} for what, pause in facts.paused.listed()],
        "counted": str(from_ms(facts.sample["at_ms"])) if facts.sample else None,
    }


def _shards(facts: Facts, allowed: Mapping[str, int]) -> list[Document]:
    series = {(each.labels["strategy"], each.labels["shard"]): each for each in _sweeps(facts)}
    parked = facts.sample["parked"]["by_shard"] if facts.sample else None
    counted = (facts.sample or {}).get("backlog", {}).get("by_shard", {})
    found = []
    for swept, lag in zip(facts.swept, facts.lags(), strict=True):
        strategy, shard = swept.strategy.value, str(swept.shard)
        sums = series.get((strategy, shard))
        found.append(
            {
                "strategy": strategy,
                "shard": swept.shard,
                "progress": swept.progress,
                "lag_s": lag.lag_s if facts.first else None,
                "lag_at_least": swept.moment_ms is None,
                "behind": lag.lag_s > allowed[strategy],
                "backlog": _backlog(facts.timestamp, swept.progress, sums, counted.get(f"{strategy}/{shard}")),
                "parked": parked.get(f"{strategy}/{shard}", 0) if parked is not None else None,
                "last_run": sums.last if sums else None,
            }
        )
    return found


def _sweeps(facts: Facts) -> list[Series]:
    return [each for each in facts.entered.series if each.job == "sweep"]


def _backlog(timestamp: int, progress: int, series: Series | None, counted: int | None) -> Document:
    """How many timestamps are not swept yet, and about how many entries that is, going by all sweeps before; before the
    first sweep, as many as were counted."""
    behind = max(0, timestamp - progress)
    about = estimated_entries(behind, series.sums if series else None)
    if about is None and counted is not None:
        return {"timestamps": behind, "entries_estimated": counted, "at_least": counted >= MOST}
    return {"timestamps": behind, "entries_estimated": about, "at_least": False}


def _strategies(shards: list[Document], allowed: Mapping[str, int]) -> Document:
    """All shards of a strategy as one."""
    found: Document = {}
    for strategy in allowed:
        ours = [each for each in shards if each["strategy"] == strategy]
        estimates = [each["backlog"]["entries_estimated"] for each in ours]
        known = [number for number in estimates if number is not None]
        found[strategy] = {
            "shards": len(ours),
            "behind": sum(each["behind"] for each in ours),
            "lag_s": max((each["lag_s"] for each in ours if each["lag_s"] is not None), default=None),
            "backlog": {
                "timestamps": max((each["backlog"]["timestamps"] for each in ours), default=0),
                "entries_estimated": sum(known) if known else None,
            },
        }
    return found


def _oldest(facts: Facts) -> Document | None:
    for lease in facts.leases[:1]:
        since_ms, at_least = facts.open_since_ms(lease)
        return {
            "lease": lease.ts,
            "owner": lease.owner,
            "start": lease.start,
            "since": None if since_ms is None else str(from_ms(since_ms)),
            "age_s": None if since_ms is None else max(0, facts.now_ms - since_ms) // 1000,
            "age_at_least": at_least,
        }
    return None


def _by_age(record: Record) -> tuple[int, str]:
    return record.created_ms, record.id


def _protection(record: Record, facts: Facts) -> Document:
    """Of what it covers the tables, and whether only some of their rows."""
    held = facts.sample["parked"]["by_record"].get(record.id, 0) if facts.sample else None
    return {
        "id": record.id,
        "owner": record.meta_type,
        "meta": dict(record.meta),
        "ts": record.ts,
        "mode": record.mode.value,
        "state": record.state.value,
        "moving_to": record.held_ts,
        "tables": sorted({str(target.table) for target in record.targets}),
        "some_rows_only": any(target.rows != EVERYTHING for target in record.targets),
        "created": str(from_ms(record.created_ms)) if record.created_ms else None,
        "age_s": age_s(record, facts.now_ms),
        "expires": str(from_ms(record.expires_ms)) if record.expires_ms is not None else None,
        "expired": expired(record, facts.now_ms),
        "version": record.version,
        "entries_held": held,
    }


def _parked(sample: Document | None) -> Document | None:
    if sample is None:
        return None
    by_reason = sample["parked"]["by_reason"]
    return {"total": sum(by_reason.values()), "by_reason": by_reason, "at_least": sample["parked"]["at_least"]}


def _quarantined(sample: Document | None) -> Document | None:
    if sample is None:
        return None
    by_shard = sample["quarantined"]["by_shard"]
    return {
        "total": sum(by_shard.values()),
        "by_shard": by_shard,
        "by_reason": sample["quarantined"].get("by_reason", {}),
        "at_least": sample["quarantined"]["at_least"],
    }
