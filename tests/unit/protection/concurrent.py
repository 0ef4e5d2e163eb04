"""The work of each of many concurrent processes; a separate module, so that they start without the other tests."""

from __future__ import annotations

from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.model import Span, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target

TABLE = TableRef.parse("app.items")
SPANS = tuple(Target(TABLE, Span(start, end)) for start, end in ((b"a", b"b"), (b"c", b"d"), (b"e", b"")))


def protect_and_release(number: int, url: str) -> None:
    """Four records each, two of them released again, concurrently with all others."""
    with open_store(url, Settings()) as store:
        catalog = ProtectionCatalog(store)
        for index in range(4):
            given = Record(f"p{number}-{index}", 50, Mode.AT, SPANS[: 1 + index % 3])
            assert catalog.protect(given).accepted
            if index % 2:
                catalog.release(given.id)
