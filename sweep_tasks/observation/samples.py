"""What can't be told without counting: entries that wait, are parked or set aside, by reason, shard and record.

Counting takes a read for each shard at least, so whoever looks at a page must not wait for it. A run that ends takes a
sample; whoever looks later reads that, with the time it was taken. Counting is bounded: under each hold so many, and
where there were more the figures are the least that it can be.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby, islice
from typing import Any

from sweep_tasks.clock import Clock
from sweep_tasks.encoding import read_var_long, var_long
from sweep_tasks.model import Cell, SweepStrategy
from sweep_tasks.observation.backlog import counted_backlog
from sweep_tasks.observation.tally import KEPT_MS, STEP_MS, Tally
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Protections
from sweep_tasks.queue.parking import Hold, ParkedEntry, Parking, Why
from sweep_tasks.queue.progress import Progress
from sweep_tasks.queue.quarantine import Quarantine, Quarantined
from sweep_tasks.store.contract import Store
from sweep_tasks.store.system import OBSERVATIONS
from sweep_tasks.sweep.lag import lags_at, swept_up_to
from sweep_tasks.timestamps.puncher import Puncher
from sweep_tasks.timestamps.service import TimestampService

MOST = 10_000
_PAGE = 1_000
_REASONS = 5
_LATEST = Cell(b"sample", b"latest")
_POINTS = b"samples"

DUE = "due"
"""Parked under a record that is gone or has moved on: the next sweep takes it up."""

Document = dict[str, Any]


def take_sample(store: Store, clock: Clock, most: int = MOST) -> Document:
    """Counts, and keeps what was counted."""
    sample = counted(store, clock, most)
    store.update(OBSERVATIONS, _LATEST, lambda _: json.dumps(sample).encode())
    keep_point(store, sample)
    return sample


def latest_sample(store: Store) -> Document | None:
    found = store.read(OBSERVATIONS, [_LATEST]).get(_LATEST)
    return json.loads(found) if found else None


def points(store: Store) -> dict[int, Document]:
    """What was counted in the last days, by the beginning of each step in milliseconds."""
    found = store.read_rows(OBSERVATIONS, [_POINTS])
    return {read_var_long(cell.column)[0] * STEP_MS: json.loads(value) for cell, value in found.items()}


def counted(store: Store, clock: Clock, most: int = MOST) -> Document:
    """Of each queue its parked entries, then what is set aside."""
    protections = ProtectionCatalog(store).protections()
    reasons: Counter[str] = Counter()
    shards: Counter[str] = Counter()
    records: Counter[str] = Counter()
    full = False
    for strategy, shard in Progress(store).all():
        for hold, number in _under_each_hold(store, strategy, shard, protections, most).items():
            full = full or number >= most
            reason, record = hold
            reasons[reason] += number
            shards[f"{strategy}/{shard}"] += number
            if record:
                records[record] += number
    aside = list(_set_aside(store, most))
    return {
        "at_ms": clock.now_ms(),
        "lag_s": _greatest_lags(store, clock),
        "parked": {"by_reason": dict(reasons), "by_shard": dict(shards), "by_record": dict(records), "at_least": full},
        "quarantined": {
            "by_shard": dict(Counter(f"{each.strategy}/{each.shard}" for each in aside)),
            "by_reason": dict(Counter(each.reason for each in aside).most_common(_REASONS)),
            "at_least": len(aside) >= most,
        },
        "backlog": counted_backlog(store, Tally(store).read(), most),
    }


def _under_each_hold(
    store: Store, strategy: SweepStrategy, shard: int, protections: Protections, most: int
) -> Counter[tuple[str, str]]:
    """By reason and record; a hold that has enough is passed over."""
    parking = Parking(store, TimestampService(store), strategy, shard)
    found: Counter[tuple[str, str]] = Counter()
    by_hold: Counter[Hold] = Counter()
    after = b""
    while entries := parking.page(after, min(_PAGE, most)).entries:
        for hold, under in groupby(entries, key=lambda entry: entry.hold):
            these = list(under)
            by_hold[hold] += len(these)
            found.update(_reason(entry, protections) for entry in these)
        last = entries[-1]
        after = parking.behind(last.hold) if by_hold[last.hold] >= most else last.column()
    return found


def _reason(entry: ParkedEntry, protections: Protections) -> tuple[str, str]:
    hold = entry.hold
    if hold.why is not Why.PROTECTED:
        return hold.why.name.lower(), ""
    held = entry.commit >= protections.frees_below(hold.record, hold.record_ts)
    return (hold.why.name.lower(), hold.record) if held else (DUE, "")


def _greatest_lags(store: Store, clock: Clock) -> dict[str, int]:
    """Of each strategy that of the shard which is furthest behind."""
    first = Puncher(store).first()
    lags = lags_at(clock.now_ms(), swept_up_to(store), first.wall_ms if first else clock.now_ms())
    by_strategy: dict[str, int] = {}
    for each in lags:
        by_strategy[each.strategy.value] = max(each.lag_s, by_strategy.get(each.strategy.value, 0))
    return by_strategy


def _by_strategy(by_shard: Mapping[str, int]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for queue, number in by_shard.items():
        found[queue.partition("/")[0]] += number
    return dict(found)


def _set_aside(store: Store, most: int) -> Iterator[Quarantined]:
    return islice(Quarantine(store, TimestampService(store)).all(), most)


def keep_point(store: Store, sample: Mapping[str, Any]) -> None:
    """Of each step of the time line the last sample, for a week."""
    point = {
        "at_ms": sample["at_ms"],
        "lag_s": sample["lag_s"],
        "parked": sum(sample["parked"]["by_reason"].values()),
        "quarantined": sum(sample["quarantined"]["by_shard"].values()),
        "backlog": _by_strategy(sample["backlog"]["by_shard"]),
    }
    step = sample["at_ms"] // STEP_MS
    store.update(OBSERVATIONS, Cell(_POINTS, var_long(step)), lambda _: json.dumps(point).encode())
    oldest = var_long(max(0, sample["at_ms"] - KEPT_MS) // STEP_MS)
    store.remove(OBSERVATIONS, [cell for cell in store.read_rows(OBSERVATIONS, [_POINTS]) if cell.column < oldest])
