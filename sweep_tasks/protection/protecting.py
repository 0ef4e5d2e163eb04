"""Protects a timestamp for the duration of some work.

    with protecting(store, settings, ["shop.*"]) as ts:
        snapshot = manager.read_at(ts)

The record is released when the block ends, also after an error. A script that may be killed gives its record an expiry,
so that reconciliation releases it.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import AlreadyExists, AlreadySwept, NotFound, StoreBusy
from sweep_tasks.protection.catalog import ProtectionCatalog, record_exists
from sweep_tasks.protection.owners import EXPIRY, MANUAL
from sweep_tasks.protection.records import Mode, Record, State, Target
from sweep_tasks.store.contract import Store

_ATTEMPTS = 5


@contextmanager
def protecting(
    store: Store,
    settings: Settings,
    targets: Iterable[Target | str],
    *,
    mode: Mode = Mode.AT,
    ts: int | None = None,
    expires_s: float | None = None,
    meta: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> Iterator[int]:
    """Protect a timestamp for the block and return it: a fresh one, unless `ts` is given. Raises `AlreadySwept` if that
    is too old."""
    catalog = ProtectionCatalog(store, settings, clock)
    now_ms = (clock or SystemClock()).now_ms()
    wanted = Record(
        f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}",
        0,
        mode,
        parsed(targets),
        meta_type=MANUAL if expires_s is None else EXPIRY,
        meta=meta or {},
        expires_ms=None if expires_s is None else now_ms + round(expires_s * 1000),
    )
    held = hold(catalog, wanted, TimestampService(store).fresh, ts)
    try:
        yield held
    finally:
        let_go(catalog, wanted.id)


def parsed(targets: Iterable[Target | str]) -> tuple[Target, ...]:
    """Return the targets, parsing those that are text."""
    return tuple(Target.parse(each) if isinstance(each, str) else each for each in targets)


def hold(catalog: ProtectionCatalog, wanted: Record, fresh: Callable[[], int], ts: int | None = None) -> int:
    """Create the record `wanted`, at `ts` or at a fresh timestamp, and return the timestamp that is held.

    A caller that repeats this under the same id, because its first attempt died or got no answer, takes over the
    existing record. A fresh timestamp is refused only if a table was emptied at the same moment; a fresher one is then
    attempted.
    """
    for _ in range(_ATTEMPTS):
        record = replace(wanted, ts=fresh() if ts is None else ts)
        try:
            verdict = catalog.protect(record)
        except AlreadyExists:
            existing = _take_over(catalog, record, ts)
            if existing is None:
                continue
            return existing.ts
        if verdict.accepted:
            return record.ts
        if ts is not None:
            raise AlreadySwept(ts, verdict.earliest or 0)
    raise StoreBusy(
        f"protection: {wanted.id!r} was not created: its tables were emptied during {_ATTEMPTS} attempts; retry later",
        reason="truncated",
    )


def let_go(catalog: ProtectionCatalog, record_id: str) -> bool:
    """Release a record. Returns False if it does not exist."""
    try:
        catalog.release(record_id)
    except NotFound:
        return False
    return True


def _take_over(catalog: ProtectionCatalog, wanted: Record, ts: int | None) -> Record | None:
    """Renew the existing record and return it, or None if it is gone. Renewing makes a release fail that was decided
    before, because its earlier run had ended."""
    try:
        found = catalog.get(wanted.id)
        existing = found if found.state is State.ACCEPTED else catalog.settle(found, lambda _: {})
        return catalog.renew(_compatible(existing, wanted, ts)) if existing else None
    except NotFound:
        return None


def _compatible(existing: Record, wanted: Record, ts: int | None) -> Record:
    holds_enough = existing.mode in (wanted.mode, Mode.AFTER) and existing.targets == wanted.targets
    if holds_enough and ts in (None, existing.ts):
        return existing
    raise record_exists(
        wanted.id, "exists with other tables or at another timestamp; release it, then retry", reason="different"
    )
