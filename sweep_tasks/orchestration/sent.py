"""Which runs have been alerted about, so that each is once.

A callback may run twice (after a lost heartbeat), and the failure and the missed deadline of one run are told by
different processes. So whoever wants to send claims the run first, in the store, where one of them wins. The claim
holds for two minutes, more than sending can take: a process that dies while it sends does not silence the run for
good. Once a message is out the claim becomes a memory; if none got out, it is dropped.
"""

from __future__ import annotations

import uuid

from sweep_tasks.encoding import sized
from sweep_tasks.model import Cell
from sweep_tasks.orchestration.alert import Alert
from sweep_tasks.store.contract import Change, Store
from sweep_tasks.store.system import ALERTS

CLAIM_MS = 120_000
_SENT = b"sent"


class Claim:
    """The right to send one alert."""

    def __init__(self, alert: Alert) -> None:
        self._cell = Cell(sized(alert.dag_id.encode()) + sized(alert.run_id.encode()), b"%d" % alert.attempt)
        self._mark = uuid.uuid4().bytes

    def take(self, store: Store) -> bool:
        """False if somebody else sends it or has sent it."""
        return store.put_if_absent(ALERTS, {self._cell: self._mark}, CLAIM_MS)[self._cell] == self._mark

    def remember(self, store: Store, seconds: int) -> None:
        self._become(store, _SENT, seconds * 1000)

    def drop(self, store: Store) -> None:
        self._become(store, None)

    def _become(self, store: Store, value: bytes | None, ttl_ms: int | None = None) -> None:
        """Nothing happens to a claim that ran out: somebody else may have it."""
        store.compare_and_set(ALERTS, self._cell.row, {self._cell.column: Change(self._mark, value)}, ttl_ms)
