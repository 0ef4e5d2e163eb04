"""Measures reads of the head of a queue after a tombstone-density compaction, and without one for the same time.

Values have several sizes. A rule that only considers the share of tombstone bytes misses the sizes in between, where
values lie beside the tombstones. Every ratio is to the same read of a table that never held the deleted items. The goal
is met if reads of both compacted tables, size-tiered and unified, take at most 1.2 times as long.

All tables have the same two files: one with the values, and one with the deletes of most of them, which in production
are flushed hours apart. The tables without our compaction get copies of them, with Cassandra's own compaction enabled
with its defaults while ours runs and until they are read. `left_alone` reports for how long, that it was enabled all
the time, and how many files there are at the end. Both strategies wait for four files of a size.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.shared.goals import Goal, at_most, documents
from benchmarks.shared.queue import ITEMS, LEFT, QUEUES, STCS, UCS, Workload
from sweep_tasks.compaction import rounds
from sweep_tasks.compaction.documents import RoundReport
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.connections import open_store
from sweep_tasks.local.cassandra import LocalCluster
from sweep_tasks.model import TableRef
from sweep_tasks.store import initialise_store
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.tables.catalog import Catalog

SIZES = (16, 256, 320, 512, 1_024)
FEW_ROUNDS, ROUNDS = 5, 40
GOAL = 1.2
NEVER, OURS, OURS_UCS, LEFT_STCS, LEFT_UCS = "never", "stcs_compacted", "ucs_compacted", "stcs_left", "ucs_left"


def measure() -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(Path(folder, "cluster"), dies_with_parent=True) as cluster,
    ):
        sizes = {str(size): _of(cluster, Path(folder), size) for size in SIZES}
    goals = [_goal(size, name, each["ratio"][name]) for size, each in sizes.items() for name in (OURS, OURS_UCS)]
    return {
        "items": QUEUES * ITEMS,
        "deleted": QUEUES * (ITEMS - LEFT),
        "value_bytes": sizes,
        "goals": documents(goals),
    }


def _goal(size: str, name: str, ratio: float) -> Goal:
    kind = {OURS: "size-tiered", OURS_UCS: "unified"}[name]
    what = f"reads of a compacted queue ({kind}, values of {size} bytes), relative to one that was never filled"
    return at_most(what, ratio, GOAL)


def _of(cluster: LocalCluster, folder: Path, size: int) -> dict[str, Any]:
    url = cluster.url(f"values{size}")
    settings = load_settings(store=url, cache_folder=folder, compaction_nodes=cluster.compaction_nodes())
    initialise_store(url, settings)
    with open_store(url, settings) as store:
        assert isinstance(store, CassandraStore)  # noqa: S101
        workload = Workload(cluster, store, size)
        tables = _filled(workload)
        began = time.monotonic()
        contents = workload.contents(tables[OURS])
        assert contents == workload.contents(tables[NEVER])  # noqa: S101
        report = _compacted(settings, [tables[OURS], tables[OURS_UCS]])
        for name in (OURS, OURS_UCS):
            assert workload.contents(tables[name]) == contents  # noqa: S101
        done = {"dropped": report.dropped, "bytes_rewritten": report.bytes_rewritten}
        left = {name: workload.left_alone(tables[name]) for name in (LEFT_STCS, LEFT_UCS)}
        answer = _read(workload, tables) | done | {"left_alone": {"seconds": round(time.monotonic() - began), **left}}
        for table in tables.values():
            Catalog(store).drop(table, force=True)
    return answer


def _filled(workload: Workload) -> dict[str, TableRef]:
    strategies = {NEVER: STCS, OURS: STCS, OURS_UCS: UCS, LEFT_STCS: STCS, LEFT_UCS: UCS}
    tables = {name: workload.table(name, strategy) for name, strategy in strategies.items()}
    workload.fill_with_what_is_left(tables[NEVER])
    workload.fill(tables[OURS])
    for name in (OURS_UCS, LEFT_STCS, LEFT_UCS):
        workload.copy(tables[OURS], tables[name])
    return tables


def _compacted(settings: Settings, tables: list[TableRef]) -> RoundReport:
    (node,) = settings.compaction_nodes
    before = rounds.measure(settings, node, [str(table) for table in tables])
    planned = rounds.plan(settings, node, before)
    done = rounds.compact(settings, node, planned)
    after = rounds.measure(settings, node, [str(table) for table in tables])
    return rounds.report(before, planned, done, after)


def _read(workload: Workload, tables: dict[str, TableRef]) -> dict[str, Any]:
    """Reads of the uncompacted tables take so long that a few rounds are enough. The others need more."""
    everywhere = workload.read_heads(list(tables.values()), FEW_ROUNDS)
    closely = workload.read_heads([tables[name] for name in (NEVER, OURS, OURS_UCS)], ROUNDS)
    never = closely[tables[NEVER]]
    ratios = {name: round(closely[tables[name]] / never, 3) for name in (OURS, OURS_UCS)}
    ratios |= {name: round(everywhere[tables[name]] / everywhere[tables[NEVER]], 2) for name in (LEFT_STCS, LEFT_UCS)}
    read = {name: workload.tombstones_read(table) for name, table in tables.items()}
    return {"never_ms": round(1_000 * never, 2), "ratio": ratios, "tombstones_read": read}
