"""Compacting by tombstone density on a real Cassandra: what it drops, what it leaves, and that no data changes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks._queue import ITEMS, LEFT, QUEUES, STCS, UCS, Workload
from sweep_tasks.compaction import rounds
from sweep_tasks.compaction.sstables import sstables_of
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.dev.cassandra import LocalCluster
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef, VersionRange
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.timestamps.service import TimestampService
from tests.cassandra.places import Place, full_name, physical_name, session_of
from tests.support.elsewhere import ELSEWHERE, Elsewhere

pytestmark = pytest.mark.timeout(900)  # the tables take a minute to fill, and several on a busy machine
VALUE_BYTES = 320
"""Where a rule that goes by the bytes of values alone would see too few tombstones in a block."""
NEVER, LEFT_STCS, LEFT_UCS, OURS = "never", "left_stcs", "left_ucs", "ours"
LONG_S = 10 * 365 * 86_400
Document = dict[str, Any]


@dataclass
class Queue:
    """The same queue in several tables, before anything was compacted and after one run on some of them."""

    workload: Workload
    tables: dict[str, TableRef]
    contents: dict[str, list[Any]]
    files: dict[str, list[str]]
    before: Document
    dry: Document
    planned: Document
    done: Document
    report: Document


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
        }
        workload.fill_with_what_is_left(tables[NEVER])
        workload.fill(tables[OURS])
        for name in (LEFT_STCS, LEFT_UCS):
            workload.copy(tables[OURS], tables[name])
        yield after_a_run(workload, tables, settings)
        for table in tables.values():
            store.drop_table(table)


def after_a_run(workload: Workload, tables: dict[str, TableRef], settings: Settings) -> Queue:
    contents = {name: workload.contents(table) for name, table in tables.items()}
    files = {name: workload.files(table) for name, table in tables.items()}
    chosen = [str(tables[OURS])]
    before = rounds.measure(settings, "node1", chosen)
    planned = rounds.plan(settings, "node1", before)
    dry = rounds.compact(settings, "node1", planned, dry_run=True)
    assert {name: workload.files(table) for name, table in tables.items()} == files, "a dry run changes nothing"
    done = rounds.compact(settings, "node1", planned)
    after = rounds.measure(settings, "node1", chosen)
    report = rounds.report(before, planned, done, after)
    return Queue(workload, tables, contents, files, before, dry, planned, done, report)


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

    def test_readers_near_failing_are_told_of_until_it_is_done(self, queue: Queue) -> None:
        (near, *_) = [each for each in queue.before["longest_runs"] if each["near_failing"]]
        assert near["table"] == queue.workload.qualified(queue.tables[OURS])
        assert near["longest_run"] == 2 * (ITEMS - LEFT)
        assert queue.report["near_failing"] == []
        assert (queue.report["dropped"], queue.report["kept"]) == (2 * self.DELETED, {})


# --- what blocks, on small tables -----------------------------------------------------------------------------------

LCS = "{'class': 'LeveledCompactionStrategy'}"
TWCS = (
    "{'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'MINUTES', 'compaction_window_size': 1,"
    " 'timestamp_resolution': 'SECONDS'}"
)
ONLY_REPAIRED = "{'class': 'SizeTieredCompactionStrategy', 'only_purge_repaired_tombstones': 'true'}"
OFF = "{'class': 'SizeTieredCompactionStrategy', 'enabled': 'false'}"
SMALL = {
    "levels": LCS, "unified": UCS, "windows": TWCS, "repaired": ONLY_REPAIRED, "off": OFF, "tiers": STCS, "young": STCS
}  # fmt: skip
ROW, COLUMNS = b"row", 2_000


@dataclass
class Small:
    """A table of each kind, after one run through a command that sees the node's files where nothing is here."""

    store: CassandraStore
    elsewhere: Elsewhere
    measured: Document
    planned: Document
    done: Document
    report: Document
    names: dict[str, str]

    def blocked(self, kind: str) -> Document:
        (found,) = [each for each in self.done["blocked"] if each["table"] == self.names[kind]]
        return dict(found)

    def outcome(self, kind: str) -> Document:
        (found,) = [each for each in self.done["compactions"] if each["table"] == self.names[kind]]
        return dict(found)


@pytest.fixture(scope="module")
def small(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    tmp = tmp_path_factory.mktemp("small")
    elsewhere = Elsewhere(tmp, place.cluster.data_folder(1))
    (described,) = place.cluster.compaction_nodes().values()
    node = {**described, "data": ELSEWHERE, "prefix": str(elsewhere.program)}
    settings = settings_for(place, tmp, compaction_nodes={"far": node})
    with place.opened() as store:
        tables = {kind: TableRef.parse(f"small.{kind}") for kind in SMALL}
        fill_small(place, store, tables)
        chosen = [str(table) for table in tables.values()]
        measured = rounds.measure(settings, "far", chosen)
        planned = rounds.plan(settings, "far", measured)
        files, contents = {kind: standing(place, store, each) for kind, each in tables.items()}, read_all(store, tables)
        done = rounds.compact(settings, "far", planned)
        names = {kind: f"{place.keyspace}.{physical_name(store, each)}" for kind, each in tables.items()}
        after = {kind: standing(place, store, each) for kind, each in tables.items()}
        report = rounds.report(measured, planned, done, rounds.measure(settings, "far", chosen))
        yield Small(store, elsewhere, measured, planned, done, report, names)
        assert read_all(store, tables) == contents, "no data changes"
        assert {kind for kind in SMALL if after[kind] != files[kind]} == {"levels", "unified", "tiers"}
        for table in tables.values():
            store.drop_table(table)


def fill_small(place: Place, store: CassandraStore, tables: dict[str, TableRef]) -> None:
    """Values in one file, then what deletes most of them in another; the windows of the two differ."""
    for kind, table in tables.items():
        store.create_table(table, TableMetadata(SweepStrategy.THOROUGH))
        session_of(store).execute(
            f"ALTER TABLE {full_name(store, table)} WITH compaction = {SMALL[kind]}"
            f" AND gc_grace_seconds = {LONG_S if kind == 'young' else 0}"
        )
    cells = [Cell(ROW, b"%06d" % number) for number in range(COLUMNS)]
    names = [physical_name(store, table) for table in tables.values()]
    TimestampService(store).move_past(100_000)
    store.put(10, {table: dict.fromkeys(cells, b"v" * 20) for table in tables.values()})
    place.cluster.nodetool(1, "flush", place.keyspace, *names)
    for table in tables.values():
        store.delete_ranges(table, [VersionRange(cell, -1, 20) for cell in cells[:-10]])
    place.cluster.nodetool(1, "flush", place.keyspace, *names)


def standing(place: Place, store: CassandraStore, table: TableRef) -> list[str]:
    folder = place.cluster.data_folder(1)
    return [str(each.data) for each in sstables_of([folder], place.keyspace, physical_name(store, table))]


def read_all(store: CassandraStore, tables: dict[str, TableRef]) -> dict[str, list[Any]]:
    query = "SELECT column1, column2, value FROM {} WHERE key = %s"
    return {
        kind: list(session_of(store).execute(query.format(full_name(store, table)), (ROW,)))
        for kind, table in tables.items()
    }


class TestEveryStrategy:
    @pytest.mark.parametrize("kind", ["levels", "unified", "tiers"])
    def test_drops_what_was_proven_to_go(self, small: Small, kind: str) -> None:
        found = small.outcome(kind)
        assert (found["outcome"], found["kept"]) == ("done", {})
        assert found["dropped"] == found["tombstones_expected"] == 2 * (COLUMNS - 10)
        assert found["points_after"] == 10

    @pytest.mark.parametrize(
        ("kind", "blocker"),
        [("windows", "time_windows"), ("repaired", "only_purge_repaired"), ("off", "compaction_disabled")],
    )
    def test_or_is_left_alone_and_it_is_said_why(self, small: Small, kind: str, blocker: str) -> None:
        assert small.blocked(kind)["blocker"] == blocker

    def test_where_gc_grace_has_not_passed_nothing_is_rewritten_and_it_is_said_when_it_will_have(
        self, small: Small
    ) -> None:
        blocked = small.blocked("young")
        assert (blocked["reason"], blocked["blocker"]) == ("long_run", "gc_grace")
        assert (blocked["tombstones"], blocked["waiting"]) == (0, 2 * (COLUMNS - 10))
        assert time.time() + LONG_S - 3_600 < blocked["until_s"] <= time.time() + LONG_S + 1
        assert small.report["droppable_from_s"] == blocked["until_s"]
        assert small.report["kept"]["gc_grace"] == 2 * (COLUMNS - 10)
        assert any("gc_grace will have passed for all at" in each for each in small.report["sentences"])

    def test_levels_count_twice_in_the_budget(self, small: Small) -> None:
        planned = {each["table"]: each["bytes"] for each in small.planned["compactions"]}
        assert planned[small.names["levels"]] == 2 * small.outcome("levels")["bytes_read"]
        assert planned[small.names["unified"]] == small.outcome("unified")["bytes_read"]

    def test_all_of_it_went_through_the_command(self, small: Small) -> None:
        assert not Path(ELSEWHERE).exists()
        assert all(file.startswith(ELSEWHERE) for each in small.planned["compactions"] for file in each["files"])
        assert {"find", "head", "sstabledump", "sstablemetadata", "nodetool"} == set(small.elsewhere.ran)
        measured = 2 * len(SMALL) + 3
        assert small.elsewhere.ran.count("sstabledump") == measured, "each file once, however often it was looked at"
