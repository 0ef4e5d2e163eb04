"""Catalog rows in a state that a test needs."""

from __future__ import annotations

from dataclasses import replace

from sweep_tasks.model import TableRef
from sweep_tasks.store import Store


def set_mark(store: Store, table: TableRef, mark: int) -> None:
    """The row after a truncation at this timestamp that has removed nothing yet."""
    existing = store.tables([table])[table]
    assert store.alter_table(table, existing, replace(existing, mark=mark))
