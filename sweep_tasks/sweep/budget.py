"""How much one run may do. What it leaves, the next run goes on with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.model import TableRef
from sweep_tasks.sweep.rules import Entry


class Budget(NamedTuple):
    """0 is no limit."""

    entries: int = 0
    seconds: float = 0
    tombstones_per_partition: int = 0
    """A Cassandra read fails at 100 000 tombstones in a partition; a run must not write as many into one."""
    parked: int = 0
    """Entries that a protection or a retention has let go: after weeks there may be very many at once."""

    @classmethod
    def of(cls, settings: Settings, entries: int, seconds: float) -> Budget:
        """What was asked for, and what the settings allow any run."""
        return cls(entries, seconds, settings.max_tombstones_per_partition, settings.parked_per_run)


UNLIMITED = Budget()


class Spending:
    def __init__(self, budget: Budget, clock: Clock) -> None:
        self._budget = budget
        self._clock = clock
        self._began_ms = clock.now_ms()
        self._entries = 0
        self._rows: Counter[tuple[TableRef, bytes]] = Counter()
        self._first: int | None = None

    def batch_size(self, wanted: int) -> int:
        return min(wanted, self._budget.entries) if self._budget.entries else wanted

    def spend(self, entries: int) -> None:
        self._entries += entries

    def exhausted(self) -> str | None:
        if self._budget.entries and self._entries >= self._budget.entries:
            return "entries"
        elapsed = (self._clock.now_ms() - self._began_ms) / 1000
        return "seconds" if self._budget.seconds and elapsed >= self._budget.seconds else None

    def first_over_cap(self, entries: Iterable[Entry]) -> int | None:
        """The start timestamp that would put too many tombstones into one row. The first of a run never does:
        otherwise a large transaction would stand in the way for ever."""
        cap = self._budget.tombstones_per_partition
        if not cap:
            return None
        for entry in entries:
            self._first = entry.start if self._first is None else self._first
            row = (entry.table, entry.cell.row)
            self._rows[row] += 1
            if self._rows[row] > cap and entry.start != self._first:
                return entry.start
        return None
