"""Statistics of real SSTables: what was deleted is what is counted, and Cassandra's own tools agree.

Every measurement of a file starts a Java machine, so all tables are written together, once, and measurements are kept.
"""

from __future__ import annotations

import re
import subprocess
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.sstable_statistics import with_spark
from sweep_tasks.compaction.node_files import RoundContext, measure_files
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import SSTableGone, SSTableUnreadable
from sweep_tasks.local.cassandra_node import SSTABLEDUMP, SSTABLEMETADATA
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef, VersionRange
from sweep_tasks.sstables.dump import PARTITION, Tools, encoding_of, entries_of, head
from sweep_tasks.sstables.files import HERE, Chunks, SSTable, chunks_of, sstables_of
from sweep_tasks.sstables.measuring import measure
from sweep_tasks.sstables.nodes import Node
from sweep_tasks.sstables.statistics_file import Cache, read_statistics
from sweep_tasks.sstables.tombstones import SSTableStatistics
from sweep_tasks.store.cassandra.ring import token_of
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.store.contract import PhysicalTable
from tests.cassandra.places import Place, altered, empty, full_name, physical_name, session_of
from tests.support.waiting import eventually

ITEMS, SWEPT, PLAIN, GOING = (TableRef.parse(f"app.{name}") for name in ("items", "swept", "plain", "going"))
COLUMNS = 100
EXACT, RANGED, MARKED, LIVES = 60, 30, 20, 40
"""Versions deleted one by one, cells with a deleted range, sentinels, cells with a time to live."""
WIDE_RANGES = 4_000
PLAIN_ROWS, PLAIN_VALUE = 3_000, 500
TTL = 50_000
LONG = 10 * 365 * 86_400
ROWS = [f"row{number}".encode() for number in range(5)]


def cell(row: int, column: int) -> Cell:
    return Cell(ROWS[row], f"column{column:04}".encode())


@dataclass
class Files:
    """The files of tables that were written as the tests know it."""

    place: Place
    store: CassandraStore
    tools: Tools
    cache: Cache
    began_s: int

    def of(self, table: TableRef) -> list[SSTable]:
        """The oldest first."""
        found = sstables_of([self.place.cluster.data_folder(1)], self.place.keyspace, physical_name(self.store, table))
        return sorted(found, key=lambda each: int(each.generation))

    def measured(self, sstable: SSTable, gc_grace_s: int = 0, later_s: int = 1_000) -> SSTableStatistics:
        """`later_s` after the files were started."""
        return measure(sstable, self.tools, gc_grace_s, self.began_s + later_s, cache=self.cache)

    def flush(self, *tables: TableRef) -> None:
        names = [physical_name(self.store, each) for each in tables]
        self.place.cluster.nodetool(1, "flush", self.place.keyspace, *names)


@pytest.fixture(scope="module")
def files(place: Place, kept_open: CassandraStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    empty(kept_open)
    TimestampService(kept_open).move_past(1_000)  # what covers versions must be later than they are
    tools = Tools(tuple(place.cluster.tool(1, SSTABLEDUMP)))
    files = Files(place, kept_open, tools, Cache(tmp_path_factory.mktemp("measured") / "sstables"), int(time.time()))
    for table in (ITEMS, SWEPT, PLAIN, GOING):
        kept_open.create_table(table, TableMetadata(strategy=SweepStrategy.CONSERVATIVE))
    with altered(kept_open, PLAIN, "compression = {'enabled': false}"):
        _write(kept_open)
        files.flush(ITEMS, GOING)
        _delete(kept_open)
        files.flush(ITEMS, SWEPT, PLAIN, GOING)
        yield files
    empty(kept_open)


def _write(store: CassandraStore) -> None:
    values = {cell(row, column): b"v" * 100 for row in range(5) for column in range(COLUMNS)}
    store.put(10, {ITEMS: values, GOING: values})


def _delete(store: CassandraStore) -> None:
    """One by one, by ranges, a whole row, two ranges that overlap; a row of sentinels. Then what a sweep leaves in a
    wide row."""
    store.delete_versions(ITEMS, [(cell(0, column), 10) for column in range(EXACT)])
    store.delete_ranges(ITEMS, [VersionRange(cell(1, column), 0, 20) for column in range(RANGED)])
    store.add_sentinels(ITEMS, [cell(2, column) for column in range(MARKED)])
    store.delete_rows(ITEMS, [ROWS[3]])
    for first, end in ((0, 20), (15, 30)):
        store.delete_ranges(ITEMS, [VersionRange(cell(4, 0), first, end)])
    store.delete_versions(GOING, [(cell(0, 0), 10)])
    store.delete_ranges(SWEPT, [VersionRange(cell(0, column), 0, 20) for column in range(WIDE_RANGES)])
    insert = session_of(store).prepare(
        f"INSERT INTO {full_name(store, SWEPT)} (key, column1, column2, value) VALUES (?, ?, ?, ?) USING TTL {TTL}"
    )
    for number in range(LIVES):
        session_of(store).execute(insert, (ROWS[1], b"%04d" % number, ~10, b"v"))
    store.put(10, {PLAIN: {cell(0, column): b"v" * PLAIN_VALUE for column in range(PLAIN_ROWS)}})
    store.delete_versions(PLAIN, [(cell(0, column), 10) for column in range(0, PLAIN_ROWS, 3)])


class TestAFileOfValues:
    def test_has_no_tombstone_and_all_its_rows(self, files: Files) -> None:
        found = files.measured(files.of(ITEMS)[0])
        assert (found.droppable, found.waiting) == ((0, 0), (0, 0))
        assert (found.measured.partitions, found.measured.rows, found.measured.longest_run) == (5, 5 * COLUMNS, 0)
        assert found.all_droppable_from_s is None

    def test_runs_from_the_token_of_its_first_row_to_that_of_its_last(self, files: Files) -> None:
        tokens = sorted(map(token_of, ROWS))
        found = files.measured(files.of(ITEMS)[0]).measured
        assert (found.first_token, found.last_token) == (tokens[0], tokens[-1])

    def test_has_a_block_for_each_of_its_chunks(self, files: Files) -> None:
        found = files.measured(files.of(ITEMS)[0])
        assert chunks_of(files.of(ITEMS)[0]).length == 16_384
        asked = found.for_plan()
        assert asked.blocks == [], "it has no tombstones"
        assert asked.clean_blocks == -(-found.measured.chunks.data_length // 16_384) > 3
        assert found.size_bytes < found.measured.chunks.data_length, "it is compressed"


class TestAFileOfDeletes:
    BOUNDS = 2 * RANGED + 3
    """If two ranges overlap, the end of the later one is the start of what is left of the earlier one."""
    TOMBSTONES = EXACT + BOUNDS + 1

    def test_holds_exactly_what_was_deleted(self, files: Files) -> None:
        found = files.measured(files.of(ITEMS)[1])
        assert found.droppable.tombstones == self.TOMBSTONES
        assert found.waiting.tombstones == 0
        assert found.measured.rows == EXACT + MARKED
        assert found.measured.bounds == self.BOUNDS
        assert (found.measured.partitions, found.measured.deleted_partitions) == (5, 1)
        assert found.measured.longest_run == max(EXACT, 2 * RANGED)

    def test_may_drop_nothing_within_gc_grace_and_reports_its_end(self, files: Files) -> None:
        found = files.measured(files.of(ITEMS)[1], gc_grace_s=LONG)
        assert (found.droppable.tombstones, found.waiting.tombstones) == (0, self.TOMBSTONES)
        assert found.blocks == []
        moment = found.all_droppable_from_s
        assert moment is not None
        assert files.began_s + LONG < moment <= time.time() + LONG + 1
        later = files.measured(files.of(ITEMS)[1], LONG, later_s=moment - files.began_s)
        assert later.waiting.tombstones == 0

    def test_gives_a_line_that_the_plan_can_read(self, files: Files) -> None:
        found = files.measured(files.of(ITEMS)[1])
        (read,) = read_statistics([found.json_line()])
        assert read == found.for_plan()
        assert read.tombstones == self.TOMBSTONES
        assert read.table == f"{files.place.keyspace}.{physical_name(files.store, ITEMS)}"

    def test_agrees_with_the_tool_of_cassandra(self, files: Files) -> None:
        sstable = files.of(ITEMS)[1]
        output = tool(files, SSTABLEMETADATA, str(sstable.data))
        found = files.measured(sstable).measured
        assert number(r"totalRows: (\d+)", output) == found.rows
        assert number(r"First token: (-?\d+)", output) == found.first_token
        assert number(r"Last token: (-?\d+)", output) == found.last_token
        assert number(r"SSTable min local deletion time: .*\((\d+)\)", output) == found.first_deleted_s
        assert number(r"EncodingStats minTimestamp: .*\((\d+)\)", output) == encoding_of(sstable).min_timestamp
        assert number(r"EncodingStats minLocal.*\((\d+)\)", output) == encoding_of(sstable).min_deletion_s
        drops = re.search(r"Estimated tombstone drop times:(.*?)Percentiles", output, re.DOTALL)
        assert drops
        both_an_end_and_a_start = 1
        counted = sum(map(int, re.findall(r"\| +(\d+) \(", drops[1])))
        assert counted == self.TOMBSTONES + both_an_end_and_a_start, "it counts each deletion, not each entry"


class TestAFileOfDeletedRangesAlone:
    def test_its_tombstones_fill_its_blocks(self, files: Files) -> None:
        found = files.measured(files.of(SWEPT)[0])
        first, *inner, _last = found.blocks
        assert found.measured.bounds == 2 * WIDE_RANGES
        assert found.measured.longest_run == 2 * WIDE_RANGES
        assert len(inner) > 5
        assert [block.tombstone_bytes for block in inner] == [block.total_bytes for block in inner]
        assert all(100 < block.tombstones < 1_000 for block in [first, *inner])

    def test_where_a_bound_lies_is_computed_to_the_byte(self, files: Files) -> None:
        """The dump contains only the position of their partition and that of the next one."""
        sstable = files.of(SWEPT)[0]
        encoding = encoding_of(sstable)
        data_length = chunks_of(sstable).data_length
        starts: list[int] = []
        size = before = 0
        in_swept_row = False
        for kind, entry in entries_of(sstable, files.tools):
            if kind == PARTITION:
                starts.append(entry["position"])
                in_swept_row = entry["key"] == [ROWS[0].hex()]
                before = head(sstable.version, len(ROWS[0]), is_deleted=False)
                size += before if in_swept_row else 0
            elif in_swept_row:
                before = encoding.marker(entry, before)
                size += before
        ends = dict(zip(starts, [*starts[1:], data_length], strict=True))
        swept = min(starts) if token_of(ROWS[0]) < token_of(ROWS[1]) else max(starts)
        end_of_partition = 1
        assert size + end_of_partition == ends[swept] - swept

    def test_cells_with_a_time_to_live_are_alive_until_it_is_up(self, files: Files) -> None:
        sstable = files.of(SWEPT)[0]
        assert files.measured(sstable).droppable.tombstones == 2 * WIDE_RANGES
        expired = files.measured(sstable, gc_grace_s=TTL // 2, later_s=TTL + 1_000)
        assert expired.droppable.tombstones == 2 * WIDE_RANGES + LIVES
        young = files.measured(sstable, gc_grace_s=2 * TTL, later_s=TTL + 1_000)
        assert (young.droppable.tombstones, young.waiting.tombstones) == (0, 2 * WIDE_RANGES + LIVES)


class TestATableWithoutCompression:
    def test_has_blocks_of_a_fixed_size_and_the_same_counts(self, files: Files) -> None:
        (sstable,) = files.of(PLAIN)
        found = files.measured(sstable)
        assert found.measured.chunks == Chunks(65_536, sstable.data.stat().st_size)
        assert found.droppable.tombstones == len(range(0, PLAIN_ROWS, 3))
        assert found.measured.longest_run == 1
        share = found.droppable.bytes / found.measured.chunks.data_length
        assert 0.01 < share < 0.05, "a third of the rows, without the value of the others"

    def test_its_wide_row_is_never_held_as_a_whole(self, files: Files) -> None:
        (sstable,) = files.of(PLAIN)
        tracemalloc.start()
        try:
            measure(sstable, files.tools, 0, files.began_s + 1_000)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        dumped_values = PLAIN_ROWS * 2 // 3 * PLAIN_VALUE * 2
        assert most < dumped_values / 3


def test_many_files_are_measured_by_a_spark_job(files: Files, spark: SparkSession, tmp_path: Path) -> None:
    keyspace = files.place.keyspace
    tables = [PhysicalTable(keyspace, physical_name(files.store, table), 0, {}) for table in (ITEMS, SWEPT)]
    order = RoundContext(
        node=Node("one", (files.place.cluster.data_folder(1),), HERE, files.tools),
        tables={table.qualified: table for table in tables},
        now_s=files.began_s + 1_000,
        cache=files.cache.folder.parent,
        statistics=tmp_path / "statistics.jsonl",
    )
    summary = measure_files(order, files.place.settings, with_spark(lambda: spark))
    here = [files.measured(sstable) for table in (ITEMS, SWEPT) for sstable in files.of(table)]
    assert order.statistics.read_text().splitlines() == [each.json_line() for each in here]
    assert list(tmp_path.glob("statistics.jsonl*")) == [order.statistics]
    assert (summary.files, summary.waiting, summary.gone, summary.unreadable) == (3, 0, (), ())
    assert summary.droppable == sum(each.droppable.tombstones for each in here)
    assert summary.longest_runs[0].token == token_of(ROWS[0])


class TestAMissingFile:
    def test_is_reported_and_its_replacement_contains_the_rest(self, files: Files) -> None:
        before = files.of(GOING)
        assert len(before) == 2
        files.place.cluster.nodetool(1, "compact", files.place.keyspace, physical_name(files.store, GOING))
        wait_until_removed(before)
        for sstable in before:
            with pytest.raises(SSTableGone) as gone:
                files.measured(sstable)
            assert gone.value.file == sstable.data
        (after,) = files.of(GOING)
        found = files.measured(after, gc_grace_s=LONG)
        assert (found.waiting.tombstones, found.measured.rows) == (1, 5 * COLUMNS)

    def test_a_damaged_file_is_reported_separately(self, files: Files, tmp_path: Path) -> None:
        whole = files.of(ITEMS)[1]
        folder = tmp_path / files.place.keyspace / whole.data.parent.name
        folder.mkdir(parents=True)
        for part in whole.data.parent.glob(whole.data.name.replace("Data.db", "*")):
            (folder / part.name).write_bytes(part.read_bytes())
        copy = SSTable.at(folder / whole.data.name)
        data = bytearray(copy.data.read_bytes())
        data[len(data) // 2] ^= 0xFF
        copy.data.write_bytes(data)
        with pytest.raises(SSTableUnreadable) as caught:
            measure(copy, files.tools, 0, files.began_s)
        assert (caught.value.file, caught.value.command) == (copy.data, "nodetool verify")
        assert not any(row.hex() in str(caught.value) for row in ROWS)


def tool(files: Files, main: str, *arguments: str) -> str:
    done = subprocess.run(
        [*files.place.cluster.tool(1, main), *arguments], capture_output=True, text=True, check=True, timeout=240
    )
    return done.stdout


def number(pattern: str, output: str) -> int:
    found = re.search(pattern, output)
    assert found, f"{pattern} is not in the output of the tool"
    return int(found[1])


def wait_until_removed(files: list[SSTable]) -> None:
    """Cassandra removes what it replaced a moment later."""
    gone = eventually(lambda: not any(each.data.exists() for each in files))
    assert gone, "the files that were compacted are still there"
