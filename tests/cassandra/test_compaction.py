"""Compacting by tombstone density on a real Cassandra: what it drops, what it leaves, and that no data changes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.shared.queue import ITEMS, LEFT, QUEUES, STCS, UCS, Workload
from sweep_tasks.clock import SystemClock
from sweep_tasks.compaction import ranges as by_ranges
from sweep_tasks.compaction import rounds
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.local.cassandra import LocalCluster
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef, VersionRange
from sweep_tasks.sstables.files import SSTable, sstables_of
from sweep_tasks.sstables.nodes import Node, metadata_of
from sweep_tasks.store.cassandra.ring import token_of
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.tables.catalog import Catalog
from sweep_tasks.tables.deletions import DAY_MS, DeleteKind, DeleteTally, Deletions
from tests.cassandra.places import Place, full_name, physical_name, session_of
from tests.cassandra.test_sstables import wait_until_removed
from tests.support.command import sweepflow
from tests.support.remote_node import REMOTE_ROOT, RemoteNode
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # the tables take a minute to fill, and several on a busy machine
VALUE_BYTES = 320
"""Where a rule based on the bytes of values only would see too few tombstones in a block."""
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

    @property
    def deleted(self) -> int:
        return self.workload.items - LEFT


@pytest.fixture(scope="module")
def place(cassandra_cluster: LocalCluster) -> Place:
    return Place(cassandra_cluster, "compaction")


@pytest.fixture(scope="module", params=[ITEMS // 10, pytest.param(ITEMS, marks=pytest.mark.long)])
def queue(request: pytest.FixtureRequest, place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    """A tenth of the size shows the same; filling and reading the whole takes minutes."""
    settings = settings_for(place, tmp_path_factory.mktemp("compaction"))
    with place.opened() as store:
        workload = Workload(place.cluster, store, VALUE_BYTES, request.param)
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
            Catalog(store).drop(table, force=True)


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
    documents = [each.document() for each in (before, dry, planned, done, report)]
    return Queue(workload, tables, contents, files, *documents)


def settings_for(place: Place, cache: Path, **more: Any) -> Settings:
    nodes = more.pop("compaction_nodes", None) or place.cluster.compaction_nodes()
    return load_settings(store=place.url, cache_folder=cache, compaction_nodes=nodes, **more)


class TestAQueueThatWasMostlyDeleted:
    def test_loses_all_its_tombstones_and_what_they_hid(self, queue: Queue) -> None:
        (compaction,) = queue.done["compactions"]
        assert compaction["table"] == queue.workload.qualified(queue.tables[OURS])
        assert (compaction["outcome"], compaction["kept"]) == ("done", {})
        assert compaction["dropped"] == compaction["tombstones_expected"] == 2 * QUEUES * queue.deleted
        assert compaction["points_before"] - compaction["points_after"] == 3 * QUEUES * queue.deleted
        assert compaction["bytes_read"] == compaction["bytes_expected"]
        assert compaction["bytes_written"] < compaction["bytes_read"] / 5

    def test_takes_the_older_file_along_that_would_keep_its_tombstones(self, queue: Queue) -> None:
        (planned,) = queue.planned["compactions"]
        assert sorted(Path(file).name for file in planned["files"]) == queue.files[OURS]
        assert len(planned["files"]) == 2

    def test_holds_what_it_held_before_and_so_do_all_the_others(self, queue: Queue) -> None:
        for name, table in queue.tables.items():
            assert queue.workload.contents(table) == queue.contents[name], name
        assert queue.contents[OURS] == queue.contents[NEVER]

    def test_is_read_as_fast_as_before_the_deletes_where_cassandra_alone_leaves_it_slow(self, queue: Queue) -> None:
        names = (NEVER, OURS, LEFT_STCS, LEFT_UCS)
        everywhere = queue.workload.read_heads([queue.tables[name] for name in names], rounds=3)
        closely = queue.workload.read_heads([queue.tables[name] for name in (NEVER, OURS)], rounds=25)
        never, ours = closely[queue.tables[NEVER]], closely[queue.tables[OURS]]
        assert ours <= 1.2 * never
        assert all(everywhere[queue.tables[name]] > 3 * never for name in (LEFT_STCS, LEFT_UCS))
        met = {name: queue.workload.tombstones_read(queue.tables[name]) for name in names}
        assert met == {NEVER: 0, OURS: 0, LEFT_STCS: 2 * queue.deleted, LEFT_UCS: 2 * queue.deleted}

    def test_a_dry_run_reports_what_would_be_done(self, queue: Queue) -> None:
        (compaction,) = queue.dry["compactions"]
        assert compaction["outcome"] == "planned"
        assert compaction["tombstones_expected"] == 2 * QUEUES * queue.deleted

    def test_the_run_of_tombstones_that_readers_scanned_was_known_and_is_dropped(self, queue: Queue) -> None:
        worst = queue.before["longest_runs"][0]
        assert worst["table"] == queue.workload.qualified(queue.tables[OURS])
        assert (worst["longest_run"], worst["reads"]) == (2 * queue.deleted, "warned")
        assert not worst["near_failing"], "gc_grace has passed, so the server counts none of it"
        assert (queue.report["dropped"], queue.report["kept"]) == (2 * QUEUES * queue.deleted, {})


# --- what blocks, on small tables -----------------------------------------------------------------------------------

LCS_OFF = "{'class': 'LeveledCompactionStrategy', 'enabled': 'false'}"
TWCS = (
    "{'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'MINUTES', 'compaction_window_size': 1,"
    " 'timestamp_resolution': 'SECONDS'}"
)
ONLY_REPAIRED = "{'class': 'SizeTieredCompactionStrategy', 'only_purge_repaired_tombstones': 'true'}"
OFF = "{'class': 'SizeTieredCompactionStrategy', 'enabled': 'false'}"
LCS = "{'class': 'LeveledCompactionStrategy'}"
SMALL = {"unified": UCS, "levels": LCS, "windows": TWCS, "repaired": ONLY_REPAIRED, "off": OFF, "young": STCS}
ROW, COLUMNS = b"row", 2_000
TOMBSTONES = 2 * (COLUMNS - 10)
"""A deleted range has two bounds."""


@dataclass
class Small:
    """A table of each kind, after one run through a command that sees the node's files where nothing is here."""

    store: CassandraStore
    tables: dict[str, TableRef]
    contents: dict[str, list[Any]]
    files: dict[str, list[str]]
    files_after: dict[str, list[str]]
    elsewhere: RemoteNode
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
    elsewhere = RemoteNode(tmp, place.cluster.data_folder(1))
    (described,) = place.cluster.compaction_nodes().values()
    node = {**described, "data": REMOTE_ROOT, "prefix": str(elsewhere.program), "remote_shell": False}
    settings = settings_for(place, tmp, compaction_nodes={"far": node}, compaction_run_fail=5_000)
    with place.opened() as store:
        tables = {kind: TableRef.parse(f"small.{kind}") for kind in SMALL}
        fill_small(place, store, tables)
        chosen = [str(table) for table in tables.values()]
        measured = rounds.measure(settings, "far", chosen)
        planned = rounds.plan(settings, "far", measured)
        files, contents = {kind: existing(place, store, each) for kind, each in tables.items()}, read_all(store, tables)
        done = rounds.compact(settings, "far", planned)
        names = {kind: f"{place.keyspace}.{physical_name(store, each)}" for kind, each in tables.items()}
        after = {kind: existing(place, store, each) for kind, each in tables.items()}
        report = rounds.report(measured, planned, done, rounds.measure(settings, "far", chosen))
        yield Small(
            store, tables, contents, files, after, elsewhere, measured.document(), planned.document(), done.document(),
            report.document(), names,
        )  # fmt: skip
        for table in tables.values():
            Catalog(store).drop(table, force=True)


def fill_small(place: Place, store: CassandraStore, tables: dict[str, TableRef], kinds: dict[str, str] = SMALL) -> None:
    """Values in one file, then what deletes most of them in another; the windows of the two differ."""
    for kind, table in tables.items():
        assert store.create_table(table, TableMetadata(SweepStrategy.THOROUGH)), "each test has tables of its own"
        session_of(store).execute(
            f"ALTER TABLE {full_name(store, table)} WITH compaction = {kinds[kind]}"
            f" AND gc_grace_seconds = {LONG_S if kind in ('young', 'levels') else 0}"
        )
    cells = [Cell(ROW, b"%06d" % number) for number in range(COLUMNS)]
    names = [physical_name(store, table) for table in tables.values()]
    TimestampService(store).move_past(100_000)
    store.put(10, {table: dict.fromkeys(cells, b"v" * 20) for table in tables.values()})
    place.cluster.nodetool(1, "flush", place.keyspace, *names)
    for table in tables.values():
        store.delete_ranges(table, [VersionRange(cell, -1, 20) for cell in cells[:-10]])
    place.cluster.nodetool(1, "flush", place.keyspace, *names)
    if "levels" in tables and kinds["levels"] == LCS:
        release_levels(place, store, tables["levels"])


def release_levels(place: Place, store: CassandraStore, table: TableRef) -> None:
    """The server puts its files into levels as soon as it has two, and would leave no tombstone in them had gc_grace
    passed by then."""
    alone = eventually(lambda: len(existing(place, store, table)) == 1, patience_s=120)
    assert alone, "it is the server that compacts these"
    session_of(store).execute(f"ALTER TABLE {full_name(store, table)} WITH gc_grace_seconds = 0")


def existing(place: Place, store: CassandraStore, table: TableRef) -> list[str]:
    folder = place.cluster.data_folder(1)
    return [str(each.data) for each in sstables_of([folder], place.keyspace, physical_name(store, table))]


def read_all(store: CassandraStore, tables: dict[str, TableRef]) -> dict[str, list[Any]]:
    query = "SELECT column1, column2, value FROM {} WHERE key = %s"
    return {
        kind: list(session_of(store).execute(query.format(full_name(store, table)), (ROW,)))
        for kind, table in tables.items()
    }


class TestEveryStrategy:
    @pytest.mark.parametrize("kind", ["unified", "levels"])
    def test_drops_the_proven_tombstones(self, small: Small, kind: str) -> None:
        found = small.outcome(kind)
        assert (found["outcome"], found["kept"]) == ("done", {})
        assert found["dropped"] == found["tombstones_expected"] == TOMBSTONES
        assert found["points_after"] == 10

    def test_keeps_all_data_and_rewrites_no_other_file(self, small: Small) -> None:
        assert read_all(small.store, small.tables) == small.contents
        rewritten = {kind for kind in SMALL if small.files_after[kind] != small.files[kind]}
        assert rewritten == {"unified", "levels"}

    @pytest.mark.parametrize(
        ("kind", "blocker"),
        [("windows", "time_windows"), ("repaired", "only_purge_repaired"), ("off", "compaction_disabled")],
    )
    def test_or_is_left_alone_and_the_reason_is_reported(self, small: Small, kind: str, blocker: str) -> None:
        assert small.blocked(kind)["blocker"] == blocker

    def test_nothing_is_rewritten_within_gc_grace_and_its_end_is_reported(self, small: Small) -> None:
        blocked = small.blocked("young")
        assert (blocked["reason"], blocked["blocker"]) == ("long_run", "gc_grace")
        assert (blocked["tombstones"], blocked["waiting"]) == (0, TOMBSTONES)
        assert time.time() + LONG_S - 3_600 < blocked["until_s"] <= time.time() + LONG_S + 1
        assert small.report["droppable_from_s"] == blocked["until_s"]
        assert small.report["kept"]["gc_grace"] == TOMBSTONES
        assert "gc_grace_until" in small.report["sentence_codes"]
        (near,) = small.report["near_failing"]
        assert (near["table"], near["token"]) == (small.names["young"], token_of(ROW))

    def test_all_of_it_went_through_the_command(self, small: Small) -> None:
        assert not Path(REMOTE_ROOT).exists()
        assert all(file.startswith(REMOTE_ROOT) for each in small.planned["compactions"] for file in each["files"])
        assert {"find", "head", "sstabledump", "sstablemetadata", "nodetool"} == set(small.elsewhere.ran)
        measured = sum(len(each) for each in small.files.values()) + 2
        assert small.elsewhere.ran.count("sstabledump") == measured, "each file once, however often it was requested"


def test_several_files_of_levels_become_one_of_level_0_as_the_budget_has_it(place: Place) -> None:
    """Disabled, because the server itself would otherwise put them into levels before the test reads them."""
    with place.opened() as store:
        table = TableRef.parse("small.several")
        fill_small(place, store, {"levels": table}, {"levels": LCS_OFF})
        before = existing(place, store, table)
        place.cluster.nodetool(1, "compact", "--user-defined", *before)
        wait_until_removed([SSTable.at(Path(file)) for file in before])
        (created,) = existing(place, store, table)
        node = Node.named(settings_for(place, Path("unused")), "node1")
        assert metadata_of(node, [Path(created)])[Path(created)].level == 0
        Catalog(store).drop(table, force=True)


_FLUSHING = """\
#!{python}
import subprocess, sys
done = subprocess.run([{nodetool!r}, *sys.argv[1:]])
if "--user-defined" in sys.argv:
    from cassandra.cluster import Cluster
    with Cluster({hosts!r}, port={port}) as cluster:
        session = cluster.connect()
        delete = session.prepare('DELETE FROM {table} USING TIMESTAMP 900000 WHERE key = ? AND column1 = ?')
        for number in range(300):
            session.execute(delete, ({row!r}, b"new%d" % number))
    subprocess.run([{nodetool!r}, "flush", *{names!r}])
sys.exit(done.returncode)
"""


def test_the_command_distinguishes_its_own_files_from_later_flushes_and_a_larger_budget_compacts_more(
    place: Place, tmp_path: Path
) -> None:
    table = TableRef.parse("small.command")
    (described,) = place.cluster.compaction_nodes().values()
    with place.opened() as store:
        fill_small(place, store, {"unified": table})
        contents = read_all(store, {"unified": table})
        program = tmp_path / "nodetool"
        program.write_text(
            _FLUSHING.format(
                python=sys.executable, hosts=place.cluster.hosts, port=place.cluster.port, row=ROW,
                table=full_name(store, table), nodetool=described["nodetool"],
                names=[place.keyspace, physical_name(store, table)],
            )
        )  # fmt: skip
        program.chmod(0o755)
        nodes = json.dumps({"one": {**described, "nodetool": str(program)}})

        def command(*words: str, nodes: str = nodes, code: int = 0) -> Document:
            answer = sweepflow(
                "compaction", *words, "--table", str(table), "--store", place.url, "--json", cwd=tmp_path,
                SWEEPFLOW_COMPACTION_NODES=nodes, SWEEPFLOW_COMPACTION_BUDGET_BYTES="1",
                SWEEPFLOW_CACHE_FOLDER=str(tmp_path / "cache"),
            )  # fmt: skip
            assert answer.code == code, answer.err
            (found,) = answer.document["nodes"]
            return dict(found)

        blind = json.dumps({"one": {**described, "sstabledump": "sh -c 'exit 127'"}})
        files = existing(place, store, table)
        report = command("run", nodes=blind, code=1)["report"]
        assert report["sentence_codes"][0] == "unreadable"
        unreadable = [{"kind": "unreadable", "file": file, "reason": "exit_127"} for file in files]
        assert sorted(report["left_out"], key=lambda each: each["file"]) == unreadable
        assert len(report["unreadable"]) == len(files) > 0
        assert command("measure")["droppable"] == TOMBSTONES
        kept = command("run")
        assert kept["done"]["compactions"] == []
        assert {each["blocker"] for each in kept["done"]["blocked"]} == {"too_large"}
        larger_budget = command("run", "--budget", "1000000")
        (compaction,) = larger_budget["done"]["compactions"]
        assert (compaction["outcome"], compaction["dropped"], len(compaction["made"])) == ("done", TOMBSTONES, 1)
        assert (larger_budget["report"]["dropped"], larger_budget["report"]["tombstones"]["after"]) == (TOMBSTONES, 600)
        assert read_all(store, {"unified": table}) == contents
        Catalog(store).drop(table, force=True)


def test_a_node_whose_files_are_out_of_reach_is_compacted_where_sweeps_have_deleted(
    place: Place, tmp_path: Path
) -> None:
    table = TableRef.parse("small.swept")
    (described,) = place.cluster.compaction_nodes().values()
    out_of_reach = {**described, "data": [], "sstabledump": "/nowhere", "sstablemetadata": "/nowhere"}
    nodes = {"far": out_of_reach, "near": described}
    settings = settings_for(place, tmp_path, compaction_nodes=nodes)
    with place.opened() as store:
        fill_small(place, store, {"unified": table})
        contents, name = read_all(store, {"unified": table}), f"{place.keyspace}.{physical_name(store, table)}"
        tally = DeleteTally()
        tally.add(table, DeleteKind.RANGES, [token_of(ROW)] * (COLUMNS - 10))
        Deletions(store).add(tally, SystemClock().now_ms() - 2 * DAY_MS)

        before = rounds.measure(settings, "far", [str(table)])
        assert (before.droppable, before.files) == (COLUMNS - 10, 0)
        planned = rounds.plan(settings, "far", before)
        (reported,) = planned.ranges or ()
        assert reported in by_ranges.densest_ranges(settings), "the DAG names it also where no node is described"
        assert reported.first_token <= token_of(ROW) <= reported.last_token
        assert reported.command.startswith(
            f"nodetool compact -st {reported.first_token - 1} -et {reported.last_token} "
        )
        assert rounds.plan(settings, "far", before, budget_bytes=1).blocked[0].blocker == "too_large"
        done = rounds.compact(settings, "far", planned)
        (compaction,) = done.compactions
        assert (compaction.outcome, compaction.dropped) == ("unknown", None)
        after = rounds.measure(settings, "far", [str(table)])
        report = rounds.report(before, planned, done, after)
        assert (report.dropped, report.not_known, report.tombstones.after) == (0, 1, 0)
        assert rounds.plan(settings, "far", before).compactions == (), "what was compacted is not, once more"

        assert rounds.measure(settings, "near", [name]).droppable == 0, "and it did drop them"
        assert read_all(store, {"unified": table}) == contents
        Catalog(store).drop(table, force=True)


_MEDDLING = """\
#!{python}
import os, pathlib, sys
meddling = pathlib.Path({switch!r})
if "--user-defined" in sys.argv and meddling.exists():
    from cassandra.cluster import Cluster
    with Cluster({hosts!r}, port={port}) as cluster:
        cluster.connect().execute(
            'INSERT INTO {table} (key, column1, column2, value) VALUES (%s, %s, -6, 0x01) USING TIMESTAMP 5',
            ({row!r}, b"old"),
        )
os.execv({nodetool!r}, [{nodetool!r}, *sys.argv[1:]])
"""


@pytest.mark.long
def test_a_fruitless_compaction_is_not_repeated_until_its_cause_is_removed(place: Place, tmp_path: Path) -> None:
    """Write an old cell into memory during the compaction, which keeps all its tombstones."""
    table = TableRef.parse("small.meddled")
    (described,) = place.cluster.compaction_nodes().values()
    with place.opened() as store:
        fill_small(place, store, {"unified": table})
        switch, program = tmp_path / "meddle", tmp_path / "nodetool"
        program.write_text(
            _MEDDLING.format(
                python=sys.executable, switch=str(switch), hosts=place.cluster.hosts, port=place.cluster.port,
                table=full_name(store, table), row=ROW, nodetool=described["nodetool"],
            )
        )  # fmt: skip
        program.chmod(0o755)
        settings = settings_for(place, tmp_path, compaction_nodes={"one": {**described, "nodetool": str(program)}})

        def round_of(meddled: bool) -> tuple[list[str], Document]:
            switch.touch() if meddled else switch.unlink(missing_ok=True)
            planned = rounds.plan(settings, "one", rounds.measure(settings, "one", [str(table)]))
            done = rounds.compact(settings, "one", planned)
            return [each.blocker for each in done.blocked], done.document()

        blockers, done = round_of(meddled=True)
        (compaction,) = done["compactions"]
        assert (compaction["outcome"], compaction["dropped"]) == ("fruitless", 0)
        assert compaction["kept"] == {"memtable": TOMBSTONES}
        assert round_of(meddled=False)[0] == ["fruitless"]
        place.cluster.nodetool(1, "flush", place.keyspace, physical_name(store, table))
        blockers, done = round_of(meddled=False)
        (compaction,) = done["compactions"]
        assert (blockers, compaction["outcome"], compaction["kept"]) == ([], "done", {})
        Catalog(store).drop(table, force=True)
