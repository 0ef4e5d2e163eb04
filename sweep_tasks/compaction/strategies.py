"""What a user-defined compaction does under each compaction strategy of Cassandra 5.0.

Found out on a real one, not read in a manual:

- size-tiered and unified: the files named become as many as the strategy would make of them, all of them together;
- leveled: one file alone keeps its level; several become one file of level 0, which the server has to write a second
  time into the levels above;
- time windows: all files named are merged, whatever window they belong to. What the strategy keeps apart would be
  together for ever, so files of different windows are never put into one compaction here.

Whatever the strategy, files that a repair has marked are compacted apart from those it has not, and those of each data
folder apart from the others'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from sweep_tasks.compaction.metadata import Metadata

_UNITS_S = {"MINUTES": 60, "HOURS": 3_600, "DAYS": 86_400}
_A_SECOND = {"SECONDS": 1, "MILLISECONDS": 10**3, "MICROSECONDS": 10**6, "NANOSECONDS": 10**9}
_TABLE_FOLDERS = 3
"""Keyspace, table and file below the data folder."""


class Kind(StrEnum):
    SIZE_TIERED = "SizeTieredCompactionStrategy"
    LEVELED = "LeveledCompactionStrategy"
    TIME_WINDOWS = "TimeWindowCompactionStrategy"
    UNIFIED = "UnifiedCompactionStrategy"


class Apart(NamedTuple):
    """Files in which this differs are never compacted together."""

    folder: Path
    repaired: bool
    window: int | None


@dataclass(frozen=True, slots=True)
class Strategy:
    kind: Kind
    options: Mapping[str, str]

    @property
    def enabled(self) -> bool:
        return self.options.get("enabled", "true").lower() != "false"

    @property
    def only_purges_repaired(self) -> bool:
        return self.options.get("only_purge_repaired_tombstones", "false").lower() == "true"

    def cost(self, size: int, files: int) -> int:
        """Bytes that are rewritten in the end."""
        return 2 * size if self.kind is Kind.LEVELED and files > 1 else size

    def apart(self, file: Path, metadata: Metadata) -> Apart:
        return Apart(file.parents[_TABLE_FOLDERS - 1], metadata.repaired, self._window(metadata.max_timestamp))

    def _window(self, timestamp: int) -> int | None:
        """The number of the time window that the latest write of a file belongs to."""
        if self.kind is not Kind.TIME_WINDOWS:
            return None
        unit = _UNITS_S[self.options.get("compaction_window_unit", "DAYS").upper()]
        size = unit * int(self.options.get("compaction_window_size", "1"))
        return timestamp // _A_SECOND[self.options.get("timestamp_resolution", "MICROSECONDS").upper()] // size


def strategy_of(options: Mapping[str, str]) -> Strategy | None:
    """None: one that is not known here, and might do anything with files that it is given."""
    name = options.get("class", "").rpartition(".")[2]
    return Strategy(Kind(name), options) if name in set(Kind) else None
