"""Facts about files that do not exist on disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sweep_tasks.compaction.proof import KnownFile, TableFiles
from sweep_tasks.sstables.files import Identity
from sweep_tasks.sstables.nodes import FileMetadata
from sweep_tasks.sstables.tombstones import FileFacts, Places, TokenCounts, join_write_times
from sweep_tasks.tables.deletions import TokenHistogram

STCS = {"class": "org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy"}
TABLE = "ks.t"


def path(name: str, folder: str = "/data") -> str:
    return f"{folder}/ks/t-1/{name}-Data.db"


def places(tokens: Iterable[int], most: int = 256) -> Places:
    histogram = TokenHistogram(most)
    for token in tokens:
        histogram.add(token)
    return TokenCounts.of(histogram).places


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
) -> FileFacts:
    return FileFacts(
        identity=Identity(name, "1", size, 7),
        keys=10,
        droppable=join_write_times(written or {}),
        waiting=waiting,
        first_from_s=until_s - 500 if waiting else None,
        all_from_s=until_s if waiting else None,
        longest_run=longest_run,
        run_token=None,
        holds=places(partitions_at),
        buries=places(tombstones_at),
    )


def known(name: str, metadata: FileMetadata, **reported: Any) -> KnownFile:
    found = facts(name, **reported)
    return KnownFile(found.identity, metadata, found)


def unmeasured(name: str, metadata: FileMetadata) -> KnownFile:
    return KnownFile(Identity(name, "1", 10, 7), metadata, None)


def table(
    files: Mapping[str, KnownFile],
    compaction: Mapping[str, str] | None = None,
    compacting: bool = True,
    gc_grace_s: int = 10,
) -> TableFiles:
    return TableFiles(TABLE, gc_grace_s, {**STCS, **(compaction or {})}, compacting, files)
