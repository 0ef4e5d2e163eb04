"""The work of each of many concurrent processes; a separate module, so that they start without the other tests."""

from __future__ import annotations

from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.model import TableRef
from sweep_tasks.queue.ids import TableIds


def give_many(number: int, url: str) -> dict[str, int]:
    """Each process begins with a name of its own, and then uses names that all share."""
    shared = [TableRef.parse(f"app.shared{n}") for n in range(6)]
    tables = [TableRef.parse(f"app.own{number}"), *shared[number % 6 :], *shared[: number % 6]]
    with open_store(url, Settings()) as store:
        ids = TableIds(store)
        return {str(table): ids.id_of(table) for table in tables}
