"""Facts about files that nobody has to write to disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sweep_tasks.compaction.facts import Facts, Places, later_joined
from sweep_tasks.compaction.metadata import Metadata
from sweep_tasks.compaction.proof import Known, TableFacts
from sweep_tasks.compaction.sstables import Identity
from sweep_tasks.sweep.ranges import TokenHistogram

STCS = {"class": "org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy"}
TABLE = "ks.t"


def path(name: str, folder: str = "/data") -> str:
    return f"{folder}/ks/t-1/{name}-Data.db"


def places(tokens: Iterable[int], most: int = 256) -> Places:
    histogram = TokenHistogram(most)
    for token in tokens:
        histogram.add(token)
    return Places.in_histogram(histogram.document())


def facts(
    name: str,
    *,
    size: int = 100,
    written: Mapping[int, int] | None = None,
    waiting: int = 0,
    until_s: int = 2_000,
    longest_run: int = 0,
    tombstones_at: Iterable[int] = (1,),
    partitions_at: Iterable[int] = (1,),
) -> Facts:
    return Facts(
        identity=Identity(name, "1", size, 7),
        keys=10,
        droppable=later_joined(written or {}),
        waiting=waiting,
        first_from_s=until_s - 500 if waiting else None,
        all_from_s=until_s if waiting else None,
        longest_run=longest_run,
        run_token=None,
        holds=places(partitions_at),
        buries=places(tombstones_at),
    )


def known(name: str, metadata: Metadata, **told: Any) -> Known:
    found = facts(name, **told)
    return Known(found.identity, metadata, found)


def unmeasured(name: str, metadata: Metadata) -> Known:
    return Known(Identity(name, "1", 10, 7), metadata, None)


def table(
    files: Mapping[str, Known],
    compaction: Mapping[str, str] | None = None,
    compacting: bool = True,
    gc_grace_s: int = 10,
) -> TableFacts:
    return TableFacts(TABLE, gc_grace_s, {**STCS, **(compaction or {})}, compacting, files)
