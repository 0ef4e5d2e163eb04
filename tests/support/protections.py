"""The definition of which protection applies to an entry, without an index; and many protections at once, without
verifying each one."""

from __future__ import annotations

from collections.abc import Iterable

from sweep_tasks.clock import SystemClock
from sweep_tasks.model import TableRef
from sweep_tasks.protection.ledger import Ledger
from sweep_tasks.protection.records import Mode, Protection, Record, State, Target
from sweep_tasks.store import Store


def protect_often(store: Store, table: TableRef, times: int) -> None:
    ledger, now_ms = Ledger(store), SystemClock().now_ms()
    for number in range(times):
        created = Record(f"backup-{number}", 5, Mode.AT, (Target(table),), State.ACCEPTED, created_ms=now_ms)
        ledger.change(created.id, lambda _, created=created: created)  # type: ignore[misc]


def covering(records: Iterable[Record], table: TableRef, row: bytes) -> list[Protection]:
    """Every timestamp that a record holds in this row."""
    return [
        Protection(ts, record.mode, record.id)
        for record in records
        for target in record.targets
        if target.covers(table) and row in target.rows
        for ts in record.timestamps
    ]


def holding(protections: Iterable[Protection], commit: int) -> Protection | None:
    """Any *after* at or below the commit, else the greatest *at*."""
    below = [protection for protection in protections if protection.ts <= commit]
    return max((p for p in below if p.mode is Mode.AFTER), default=None) or max(below, default=None)
