"""Somebody who looks before it does what others are to see, instead of afterwards: the order that does harm.

Whoever publishes and then looks is seen by all who publish later. With this in the way it goes by what stood there
before it published, whatever the code asks for and when; the code itself is the real one.
"""

from __future__ import annotations

from typing import Any

from sweep_tasks.model import TableRef
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore
from tests.interleavings.processes import Actor


class OldNews(FaultyStore):
    """The registers of one table, or all tables' metadata, as they stood when this was made."""

    def __init__(self, store: Store, of: TableRef | None) -> None:
        super().__init__(store)
        self._of = of
        self._metadata = store.tables() if of is None else {}
        self._registers = {} if of is None else dict(store.scan_registers(of).items)

    def call(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if name == "tables" and self._of is None:
            only = arguments[0] if arguments else None
            return {table: found for table, found in self._metadata.items() if only is None or table in only}
        if name == "read" and arguments[0] == self._of:
            return {cell: self._registers[cell] for cell in arguments[1] if cell in self._registers}
        if name == "read_rows" and arguments[0] == self._of:
            return {cell: value for cell, value in self._registers.items() if cell.row in arguments[1]}
        return super().call(name, arguments, named)


def looking_first(at: TableRef | None, actor: Actor) -> Actor:
    """The same, but what it knows of these registers is from before it began; None is the tables' metadata."""
    return actor._replace(name=f"{actor.name}, looking first", work=lambda store: actor.work(OldNews(store, at)))
