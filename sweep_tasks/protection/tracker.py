"""What is known of the records, and as of when; read again only if something has changed.

Whoever may go by what was true a while ago asks what is *known*. Whoever must know what is true now asks for a
*refresh*: one that begins after the question. However many ask at once, one of them reads and the others wait for it.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.metrics import counted
from sweep_tasks.protection.records import Protections, Record

REFRESH_S = 300.0


class Known(NamedTuple):
    version: int
    records: tuple[Record, ...]
    protections: Protections
    as_of_ms: int


class Tracker:
    def __init__(self, catalog: ProtectionCatalog, clock: Clock | None = None, refresh_s: float = REFRESH_S) -> None:
        self._catalog = catalog
        self._clock = clock or SystemClock()
        self._refresh_ms = refresh_s * 1000
        self._turn = threading.Condition()
        self._known: Known | None = None
        self._begun = 0
        self._succeeded = 0
        self._reading = False
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """Callers of `refresh` that wait for another one's read to end."""
        return self._waiting

    def known(self) -> Known:
        """No older than the refresh interval."""
        known = self._known
        if known is None or self._clock.now_ms() - known.as_of_ms >= self._refresh_ms:
            return self.refresh()
        return known

    def refresh(self) -> Known:
        with self._turn:
            wanted = self._begun + 1
            while self._reading:
                self._waiting += 1
                self._turn.wait()
                self._waiting -= 1
            if self._known and self._succeeded >= wanted:
                return self._known
            self._reading = True
            self._begun += 1
            number = self._begun
        try:
            known = self._read()
            with self._turn:
                self._known, self._succeeded = known, number
            return known
        finally:
            with self._turn:
                self._reading = False
                self._turn.notify_all()

    def _read(self) -> Known:
        """The version first: a list that is read after it is at least as new."""
        with counted("refresh"):
            as_of_ms = self._clock.now_ms()
            version = self._catalog.metadata().version
            if self._known and self._known.version == version:
                return self._known._replace(as_of_ms=as_of_ms)
            meta, records = self._catalog.state()
            return Known(meta.version, tuple(records), Protections(records), as_of_ms)
