"""Reading the head of a queue after a compaction by density, and where Cassandra was left alone for as long.

For values of several sizes; a rule that looks at how many bytes are tombstones, in files where values lie beside them,
misses those in between. Every ratio is to the same read of a table that never held what was deleted; the goal is met
where reads of both compacted tables, size-tiered and unified, take at most 1.2 times as long.

All tables have the same two files, one with the values and one with what deletes most of them, flushed hours apart in
real life. The tables that are left alone get copies of them with Cassandra's own compaction switched on, by its
defaults, and keep it so for as long as ours takes and until they are read: `left_alone` says for how long, that it was
switched on all that time, and how many files there are in the end. Both strategies wait for four files of a size.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.shared.queue import ITEMS, LEFT, QUEUES, STCS, UCS, Workload
from sweep_tasks.compaction import rounds
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.dev.cassandra import LocalCluster
from sweep_tasks.model import TableRef
from sweep_tasks.opening import open_store
from sweep_tasks.store import initialise_store
from sweep_tasks.store.cassandra.store import CassandraStore

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
    met = all(each["met"] for each in sizes.values())
    return {"items": QUEUES * ITEMS, "deleted": QUEUES * (ITEMS - LEFT), "goal": GOAL, "met": met, "value_bytes": sizes}


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
        done = {"dropped": report["dropped"], "bytes_rewritten": report["bytes_rewritten"]}
        left = {name: workload.left_alone(tables[name]) for name in (LEFT_STCS, LEFT_UCS)}
        answer = _read(workload, tables) | done | {"left_alone": {"seconds": round(time.monotonic() - began), **left}}
        for table in tables.values():
            store.drop_table(table)
    return answer


def _filled(workload: Workload) -> dict[str, TableRef]:
    strategies = {NEVER: STCS, OURS: STCS, OURS_UCS: UCS, LEFT_STCS: STCS, LEFT_UCS: UCS}
    tables = {name: workload.table(name, strategy) for name, strategy in strategies.items()}
    workload.fill_with_what_is_left(tables[NEVER])
    workload.fill(tables[OURS])
    for name in (OURS_UCS, LEFT_STCS, LEFT_UCS):
        workload.copy(tables[OURS], tables[name])
    return tables


def _compacted(settings: Settings, tables: list[TableRef]) -> dict[str, Any]:
    (node,) = rounds.nodes(settings)
    before = rounds.measure(settings, node, [str(table) for table in tables])
    planned = rounds.plan(settings, node, before)
    done = rounds.compact(settings, node, planned)
    after = rounds.measure(settings, node, [str(table) for table in tables])
    return rounds.report(before, planned, done, after)


def _read(workload: Workload, tables: dict[str, TableRef]) -> dict[str, Any]:
    """What was left alone takes so long to read that a few rounds tell; the others are compared more closely."""
    everywhere = workload.read_heads(list(tables.values()), FEW_ROUNDS)
    closely = workload.read_heads([tables[name] for name in (NEVER, OURS, OURS_UCS)], ROUNDS)
    never = closely[tables[NEVER]]
    ratios = {name: round(closely[tables[name]] / never, 2) for name in (OURS, OURS_UCS)}
    ratios |= {name: round(everywhere[tables[name]] / everywhere[tables[NEVER]], 2) for name in (LEFT_STCS, LEFT_UCS)}
    met = all(closely[tables[name]] <= GOAL * never for name in (OURS, OURS_UCS))
    read = {name: workload.tombstones_read(table) for name, table in tables.items()}
    told = {"never_ms": round(1_000 * never, 2), "ratio": ratios, "goal": GOAL, "met": met}
    return told | {"tombstones_read": read}
