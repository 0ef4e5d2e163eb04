"""What tables are called in Cassandra: `ns.table` becomes `ns__table`, as AtlasDB has it, so that both find the queue.

A table that is created anew after it was dropped gets another physical table, with a number behind its name: whoever
still writes to the old one can't reach the new.
"""

from __future__ import annotations

import uuid

from sweep_tasks.model import TableRef

_OURS = uuid.UUID("5c1e0f0a-7a0f-5d64-9f0f-6c9b6f2f6b1d")


def quoted(identifier: str) -> str:
    """The only way a name gets into a statement."""
    return '"' + identifier.replace('"', '""') + '"'


def physical_name(table: TableRef, generation: int) -> str:
    name = f"{table.namespace}__{table.name}" if table.namespace else table.name
    return name if generation == 1 else f"{name}__{generation}"


def identity(keyspace: str, physical: str) -> uuid.UUID:
    """The same for everybody who creates this table at the same time."""
    return uuid.uuid5(_OURS, f"{keyspace}.{physical}")
