"""A process that reads before it publishes, instead of afterwards, which breaks an invariant.

A process that publishes and then reads is seen by all that publish later. This wrapper makes it use what was stored
before it published, whenever the code reads. The code itself is the real one.
"""

from __future__ import annotations

from typing import Any

from sweep_tasks.model import TableRef
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore
from tests.interleavings.processes import Actor


class StaleReads(FaultyStore):
    """The registers of one table, or the metadata of all tables, as they were when this was created."""

    def __init__(self, store: Store, of: TableRef | None) -> None:
        super().__init__(store)
        self._of = of
        self._metadata = store.catalog_rows() if of is None else {}
        self._registers = {} if of is None else dict(store.scan_registers(of).items)

    def call(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if name in ("tables", "catalog_rows") and self._of is None:
            only = arguments[0] if arguments else None
            rows = {table: found for table, found in self._metadata.items() if only is None or table in only}
            return {table: found for table, found in rows.items() if name == "catalog_rows" or not found.is_gone}
        if name == "read" and arguments[0] == self._of:
            return {cell: self._registers[cell] for cell in arguments[1] if cell in self._registers}
        if name == "read_rows" and arguments[0] == self._of:
            return {cell: value for cell, value in self._registers.items() if cell.row in arguments[1]}
        return super().call(name, arguments, named)


def reading_first(at: TableRef | None, actor: Actor) -> Actor:
    """The same process, but what it reads of these registers is from before it began; None means the metadata of
    tables."""
    return actor._replace(name=f"{actor.name}, reading first", work=lambda store: actor.work(StaleReads(store, at)))
