"""Compacting by tombstone density on a real Cassandra: what it drops, what it leaves, and that no data changes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks._queue import ITEMS, LEFT, QUEUES, UCS, Workload
from sweep_tasks.compaction import rounds
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.dev.cassandra import LocalCluster
from sweep_tasks.model import TableRef
from tests.cassandra.places import Place

VALUE_BYTES = 320
"""Where a rule that goes by the bytes of values alone would see too few tombstones in a block."""
NEVER, LEFT_STCS, LEFT_UCS, OURS, YOUNG = "never", "left_stcs", "left_ucs", "ours", "young"
LONG_S = 10 * 365 * 86_400
Document = dict[str, Any]


@dataclass
class Queue:
    """The same queue in several tables, before anything was compacted and after one run on some of them."""

    workload: Workload
    tables: dict[str, TableRef]
    contents: dict[str, list[Any]]
    files: dict[str, list[str]]
    dry: Document
    planned: Document
    done: Document
    report: Document
    settings: Settings


@pytest.fixture(scope="module")
def place(cassandra_cluster: LocalCluster) -> Place:
    return Place(cassandra_cluster, "compaction")


@pytest.fixture(scope="module")
def queue(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    settings = settings_for(place, tmp_path_factory.mktemp("compaction"))
    with place.opened() as store:
        workload = Workload(place.cluster, store, VALUE_BYTES)
        tables = {
            NEVER: workload.table(NEVER),
            LEFT_STCS: workload.table(LEFT_STCS),
            LEFT_UCS: workload.table(LEFT_UCS, UCS),
            OURS: workload.table(OURS),
            YOUNG: workload.table(YOUNG, gc_grace_s=LONG_S),
        }
        workload.fill_with_what_is_left(tables[NEVER])
        workload.fill(tables[OURS])
        for name in (LEFT_STCS, LEFT_UCS, YOUNG):
            workload.copy(tables[OURS], tables[name])
        yield after_a_run(workload, tables, settings)
        for table in tables.values():
            store.drop_table(table)


def after_a_run(workload: Workload, tables: dict[str, TableRef], settings: Settings) -> Queue:
    contents = {name: workload.contents(table) for name, table in tables.items()}
    files = {name: workload.files(table) for name, table in tables.items()}
    chosen = [str(tables[name]) for name in (OURS, YOUNG)]
    before = rounds.measure(settings, "node1", chosen)
    planned = rounds.plan(settings, "node1", before)
    dry = rounds.compact(settings, "node1", planned, dry_run=True)
    assert {name: workload.files(table) for name, table in tables.items()} == files, "a dry run changes nothing"
    done = rounds.compact(settings, "node1", planned)
    after = rounds.measure(settings, "node1", chosen)
    return Queue(
        workload, tables, contents, files, dry, planned, done, rounds.report(before, planned, done, after), settings
    )


def settings_for(place: Place, cache: Path, **more: Any) -> Settings:
    nodes = more.pop("compaction_nodes", None) or place.cluster.compaction_nodes()
    return load_settings(store=place.url, cache_folder=cache, compaction_nodes=nodes, **more)


class TestAQueueThatWasMostlyDeleted:
    DELETED = QUEUES * (ITEMS - LEFT)

    def test_loses_all_its_tombstones_and_what_they_hid(self, queue: Queue) -> None:
        (compaction,) = queue.done["compactions"]
        assert compaction["table"] == queue.workload.qualified(queue.tables[OURS])
        assert (compaction["outcome"], compaction["kept"]) == ("done", {})
        assert compaction["dropped"] == compaction["tombstones_expected"] == 2 * self.DELETED
        assert compaction["points_before"] - compaction["points_after"] == 3 * self.DELETED
        assert compaction["bytes_read"] == compaction["bytes_expected"]
        assert compaction["bytes_written"] < compaction["bytes_read"] / 20

    def test_takes_the_older_file_along_that_would_keep_its_tombstones(self, queue: Queue) -> None:
        (planned,) = queue.planned["compactions"]
        assert sorted(Path(file).name for file in planned["files"]) == queue.files[OURS]
        assert len(planned["files"]) == 2

    def test_holds_what_it_held_before_and_so_do_all_the_others(self, queue: Queue) -> None:
        for name, table in queue.tables.items():
            assert queue.workload.contents(table) == queue.contents[name], name
        assert queue.contents[OURS] == queue.contents[NEVER]

    def test_is_read_as_if_nothing_had_ever_been_deleted_where_cassandra_alone_leaves_it_slow(
        self, queue: Queue
    ) -> None:
        met = {name: queue.workload.tombstones_read(queue.tables[name]) for name in (NEVER, OURS, LEFT_STCS, LEFT_UCS)}
        assert met[NEVER] == met[OURS] == 0
        assert met[LEFT_STCS] == met[LEFT_UCS] >= ITEMS - LEFT
        names = (NEVER, OURS, LEFT_STCS, LEFT_UCS)
        seconds = queue.workload.read_heads([queue.tables[name] for name in names], rounds=7)
        never, ours, *left = (seconds[queue.tables[name]] for name in names)
        assert all(each > 10 * max(never, ours) for each in left)

    def test_a_dry_run_says_what_would_be_done(self, queue: Queue) -> None:
        (compaction,) = queue.dry["compactions"]
        assert compaction["outcome"] == "planned"
        assert compaction["tombstones_expected"] == 2 * self.DELETED

    def test_where_gc_grace_has_not_passed_nothing_is_rewritten_and_it_is_said_when_it_will_have(
        self, queue: Queue
    ) -> None:
        assert queue.workload.files(queue.tables[YOUNG]) == queue.files[YOUNG]
        name = queue.workload.qualified(queue.tables[YOUNG])
        (blocked,) = [each for each in queue.done["blocked"] if each["table"] == name]
        assert (blocked["reason"], blocked["blocker"]) == ("long_run", "gc_grace")
        assert time.time() + LONG_S - 3_600 < blocked["until_s"] <= time.time() + LONG_S + 1
        assert queue.report["kept"] == {"gc_grace": 2 * self.DELETED}
        assert queue.report["droppable_from_s"] == blocked["until_s"]

    def test_readers_near_failing_are_told_of(self, queue: Queue) -> None:
        near = queue.report["near_failing"]
        assert {each["table"] for each in near} == {queue.workload.qualified(queue.tables[YOUNG])}
        assert near[0]["longest_run"] == 2 * (ITEMS - LEFT)
