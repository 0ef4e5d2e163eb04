"""Pauses as they may be stored."""

from __future__ import annotations

import json

from sweep_tasks.model import Cell, TableRef
from sweep_tasks.store import Store
from sweep_tasks.store.schema import PAUSES
from sweep_tasks.tables.pauses import Pause


def put_pause(store: Store, table: TableRef, by: str, reason: str) -> None:
    """A pause with texts that are refused today, as an earlier version or another program may have stored it."""
    store.put_if_absent(PAUSES, {Cell(b"pauses", str(table).encode()): json.dumps(Pause(by, reason, 0)).encode()})
