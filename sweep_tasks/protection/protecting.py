"""Keep what a timestamp shows for as long as some work takes.

    with protecting(store, settings, ["shop.*"]) as ts:
        snapshot = manager.read_at(ts)

The record is released when the block ends, however it ends. A script that may be killed gives its record an expiry, so
that somebody else releases it.
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
from sweep_tasks.errors import AlreadyExists, AlreadySwept, NotFound, RecordExists, StoreBusy
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.owners import EXPIRY, MANUAL
from sweep_tasks.protection.records import Mode, Record, State
from sweep_tasks.protection.targets import Target
from sweep_tasks.store.contract import Store
from sweep_tasks.timestamps.service import TimestampService

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
    """The timestamp that is protected: a fresh one, unless one is given. `AlreadySwept` if that is too old."""
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
    return tuple(Target.parse(each) if isinstance(each, str) else each for each in targets)


def hold(catalog: ProtectionCatalog, wanted: Record, fresh: Callable[[], int], ts: int | None = None) -> int:
    """Protect what `wanted` says, at `ts` or at a fresh timestamp; the timestamp that is held.

    Whoever does this a second time under the same id, because its first try died or was not answered, goes on with what
    stands. A fresh timestamp can be too old only if a table was emptied in the same moment: then a fresher one is not.
    """
    for _ in range(_ATTEMPTS):
        record = replace(wanted, ts=fresh() if ts is None else ts)
        try:
            verdict = catalog.protect(record)
        except AlreadyExists:
            taken_up = _taken_up(catalog, record, ts)
            if taken_up is None:
                continue
            return taken_up.ts
        if verdict.accepted:
            return record.ts
        if ts is not None:
            raise AlreadySwept(ts, verdict.earliest or 0)
    raise StoreBusy(
        f"protection: {wanted.id!r} could not be made, its tables are emptied all the time; try again",
        reason="truncated",
    )


def let_go(catalog: ProtectionCatalog, record_id: str) -> bool:
    """False if there was nothing to release."""
    try:
        catalog.release(record_id)
    except NotFound:
        return False
    return True


def _taken_up(catalog: ProtectionCatalog, wanted: Record, ts: int | None) -> Record | None:
    """Renewed, so that whoever was about to release it, because its run had ended, must look again. None if it is
    gone."""
    try:
        found = catalog.get(wanted.id)
        standing = found if found.state is State.ACCEPTED else catalog.settle(found, lambda _: {})
        return catalog.renew(_same(standing, wanted, ts)) if standing else None
    except NotFound:
        return None


def _same(standing: Record, wanted: Record, ts: int | None) -> Record:
    holds_enough = standing.mode in (wanted.mode, Mode.AFTER) and standing.targets == wanted.targets
    if holds_enough and ts in (None, standing.ts):
        return standing
    raise RecordExists(
        wanted.id, "stands with other tables or at another timestamp; release it, then try again", reason="different"
    )
