"""Creates many protections at once, without verifying each one."""

from __future__ import annotations

from sweep_tasks.clock import SystemClock
from sweep_tasks.model import TableRef
from sweep_tasks.protection.ledger import Ledger
from sweep_tasks.protection.records import Mode, Record, State, Target
from sweep_tasks.store import Store


def protect_often(store: Store, table: TableRef, times: int) -> None:
    ledger, now_ms = Ledger(store), SystemClock().now_ms()
    for number in range(times):
        created = Record(f"backup-{number}", 5, Mode.AT, (Target(table),), State.ACCEPTED, created_ms=now_ms)
        ledger.change(created.id, lambda _, created=created: created)  # type: ignore[misc]
