"""What a sweep of one shard did, as a document that a person or a program reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sweep_tasks.model import Cell, SweepStrategy, TableRef
from sweep_tasks.sweep.activity import NONE, Written
from sweep_tasks.sweep.tally import Tally


@dataclass(slots=True)
class Summary:
    strategy: SweepStrategy
    shard: int
    sweep_ts: int
    dry_run: bool = False
    progress_before: int = -1
    progress: int = -1
    entries: int = 0
    range_deletes: int = 0
    sentinels: int = 0
    aborted_deletes: int = 0
    parked: int = 0
    unparked: int = 0
    blocked: int = 0
    quarantined: int = 0
    cleaned_partitions: int = 0
    batches: int = 0
    stopped: str | None = None
    """Why it ended before everything was swept: blocked, entries, seconds, tombstones or paused."""
    workers: int = 0
    """Processes of Spark that read and deleted; none where one process did everything."""
    tombstones: dict[str, int] = field(default_factory=dict)
    """By table, each one that was written; none in a store that has no tombstones."""
    seconds: dict[str, float] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return asdict(self) | {"seconds": {phase: round(took, 3) for phase, took in self.seconds.items()}}


class DistinctCells:
    """Counts cells, each once however many batches touch it."""

    def __init__(self) -> None:
        self._seen: dict[TableRef, set[Cell]] = {}

    def add(self, by_table: dict[TableRef, set[Cell]]) -> None:
        for table, cells in by_table.items():
            self._seen.setdefault(table, set()).update(cells)

    def __len__(self) -> int:
        return sum(map(len, self._seen.values()))

    def __iter__(self) -> Iterator[tuple[TableRef, Cell]]:
        return ((table, cell) for table, cells in self._seen.items() for cell in cells)


@dataclass(slots=True)
class Counted:
    """Cells counted once over all shards of one operation; how much of each table was judged; and what was written to
    the store, every time."""

    ranged: DistinctCells = field(default_factory=DistinctCells)
    sentinels: DistinctCells = field(default_factory=DistinctCells)
    written: dict[TableRef, Written] = field(default_factory=dict)
    deleted: Tally = field(default_factory=Tally)

    def add_written(self, found: Mapping[TableRef, Written]) -> None:
        for table, more in found.items():
            self.written[table] = self.written.get(table, NONE).plus(more)
