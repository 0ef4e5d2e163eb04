"""Creates protection records from plain arguments: until they are released, or for the duration of some work.

    with protect_during(store, settings, ["shop.*"]) as ts:
        snapshot = manager.read_at(ts)

The record is released when the block ends, also after an error. A script that may be killed gives its record an expiry,
so that reconciliation releases it.
"""

from __future__ import annotations

import os
import secrets
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from sweep_tasks import retries
from sweep_tasks.clock import Clock, SystemClock, from_ms
from sweep_tasks.config import Settings
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import AlreadyExists, BadValue, NotFound, StoreBusy
from sweep_tasks.model import TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog, record_exists
from sweep_tasks.protection.owners import EXPIRY, MANUAL
from sweep_tasks.protection.records import Mode, Record, State, Target
from sweep_tasks.store.contract import Store

"""A concurrent sweep may pass a timestamp that was just taken, but hardly five times in a row."""

AnyTarget = Target | TableRef | str
"""A table, or what `Target.parse` understands."""


def new_record(
    targets: Iterable[AnyTarget],
    *,
    record_id: str | None = None,
    ts: int = 0,
    mode: Mode | str = Mode.AT,
    owner: str | None = None,
    meta: Mapping[str, str] | None = None,
    expires_at: datetime | None = None,
) -> Record:
    """Return a record that is not stored yet. Its owner is its expiry if it has one, otherwise an operator."""
    described = (("meta", each) for pair in (meta or {}).items() for each in pair)
    for field, text in (("id", record_id or ""), ("owner", owner or ""), *described):
        if not isinstance(text, str):
            raise BadValue(field, f"expected text, got {type(text).__name__}", reason="wrong_type")
    expires_ms = None if expires_at is None else _moment_ms(expires_at)
    kind = owner or (MANUAL if expires_ms is None else EXPIRY)
    if kind == EXPIRY and expires_ms is None:
        raise BadValue("expires", f"is missing; owner {EXPIRY!r} needs it", reason="missing")
    return Record(
        record_id or f"{kind}-{secrets.token_hex(4)}",
        ts,
        _checked_mode(mode),
        parsed(targets),
        meta_type=kind,
        meta=dict(meta or {}),
        expires_ms=expires_ms,
    )


def create_record(
    catalog: ProtectionCatalog, wanted: Record, fresh: Callable[[], int], ts: int | None = None
) -> Record:
    """Store a record at `ts`, or at the first fresh timestamp that no sweep has passed, and return it accepted.

    Raises `AlreadySwept` if the timestamp can no longer be protected, and `AlreadyExists` for a known id.
    """
    for left in reversed(range(1 if ts is not None else retries.PROTECTED_NOW.attempts)):
        record = replace(wanted, ts=fresh() if ts is None else ts)
        verdict = catalog.protect(record)
        if verdict.accepted:
            break
        if not left:
            verdict.raise_if_refused(record.ts)
    return catalog.get(wanted.id)


def _moment_ms(moment: datetime) -> int:
    if not isinstance(moment, datetime):
        raise BadValue("expires", f"expected a datetime, got {type(moment).__name__}", reason="wrong_type")
    if moment.tzinfo is None:
        raise BadValue("expires", "has no time zone; give a time with one, such as datetime.now(UTC)", reason="no_zone")
    return round(moment.timestamp() * 1000)


def _checked_mode(mode: Mode | str) -> Mode:
    try:
        return Mode(mode)
    except ValueError:
        raise BadValue("mode", f"must be {' or '.join(Mode)}", reason="unknown") from None


@contextmanager
def protect_during(
    store: Store,
    settings: Settings,
    targets: Iterable[AnyTarget],
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
    wanted = new_record(
        targets,
        record_id=f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}",
        mode=mode,
        meta=meta,
        expires_at=None if expires_s is None else from_ms((clock or SystemClock()).now_ms() + round(expires_s * 1000)),
    )
    held = hold(catalog, wanted, TimestampService(store).fresh, ts)
    try:
        yield held
    finally:
        release_if_exists(catalog, wanted.id)


def parsed(targets: Iterable[AnyTarget]) -> tuple[Target, ...]:
    """Return the targets, parsing those that are text."""
    return tuple(_parsed(each) for each in targets)


def _parsed(target: AnyTarget) -> Target:
    if isinstance(target, str):
        return Target.parse(target)
    if isinstance(target, TableRef):
        return Target(target)
    if not isinstance(target, Target):
        problem = f"expected a table, a pattern or a Target, got {type(target).__name__}"
        raise BadValue("targets", problem, reason="wrong_type")
    return target


def hold(catalog: ProtectionCatalog, wanted: Record, fresh: Callable[[], int], ts: int | None = None) -> int:
    """Create the record `wanted`, at `ts` or at a fresh timestamp, and return the timestamp that is held.

    A caller that repeats this under the same id, because its first attempt died or got no answer, takes over the
    existing record. A fresh timestamp is refused only if a table was emptied at the same moment; a fresher one is then
    attempted.
    """
    for _ in range(retries.PROTECTED_NOW.attempts):
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
            verdict.raise_if_refused(ts)
    raise StoreBusy(
        f"protection: {wanted.id!r} was not created: its tables were emptied during "
        f"{retries.PROTECTED_NOW.attempts} attempts; retry later",
        reason="truncated",
    )


def release_if_exists(catalog: ProtectionCatalog, record_id: str) -> bool:
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
        existing = found if found.state is State.ACCEPTED else catalog.resolve(found, lambda _: {})
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
