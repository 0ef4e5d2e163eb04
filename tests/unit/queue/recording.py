"""Records the calls that a piece of code makes to a store."""

from __future__ import annotations

from typing import Any

from sweep_tasks.model import TableRef
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore, StoreCall

_CHANGES = {
    "put", "add_sentinels", "delete_versions", "delete_ranges", "delete_everywhere", "delete_rows", "put_if_absent",
    "compare_and_set", "update", "remove", "truncate", "create_table", "alter_table", "remove_table",
}  # fmt: skip


class Recorder:
    """A store that records each change."""

    def __init__(self, inner: Store) -> None:
        self.store = FaultyStore(inner, before=self._record)
        self.calls: list[StoreCall] = []

    def _record(self, call: StoreCall) -> None:
        if call.name in _CHANGES:
            self.calls.append(call)

    @property
    def steps(self) -> list[tuple[str, str]]:
        """Each change and its table."""
        return [(call.name, _table_of(call)) for call in self.calls]

    def last_argument(self, number: int) -> Any:
        return self.calls[number].arguments[-1]


def _table_of(call: StoreCall) -> str:
    if call.name == "put":
        return " ".join(str(table) for table in call.arguments[1])
    table: TableRef = call.arguments[0]
    return str(table)
