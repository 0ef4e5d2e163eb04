"""A store in memory whose rows have tokens on Cassandra's ring, for what is counted by ranges."""

from __future__ import annotations

from collections.abc import Iterable

from sweep_tasks.store.cassandra.ring import token_of
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.store.schema import SYSTEM_TABLES
from tests.support.clock import ManualClock


class RingStore(MemoryStore):
    def tokens(self, rows: Iterable[bytes]) -> list[int]:
        return [token_of(row) for row in rows]


def ring_store(clock: ManualClock) -> RingStore:
    created = RingStore(clock)
    for table, metadata in SYSTEM_TABLES.items():
        created.create_table(table, metadata)
    return created
