"""Measurements that are kept."""

from __future__ import annotations

import json
import os
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from sweep_tasks.errors import BadValue, SSTableGone
from sweep_tasks.sstables.dump import Tools
from sweep_tasks.sstables.files import Chunks, Identity, SSTable
from sweep_tasks.sstables.measuring import measure
from sweep_tasks.sstables.statistics import PartitionRun
from sweep_tasks.sstables.statistics_file import Cache
from sweep_tasks.sstables.tombstones import MeasuredFile, Pile, TokenCounts
from tests.unit.sstables.dumps import dead, expiring, live, partition, text
from tests.unit.sstables.test_encoding import statistics

IDENTITY = Identity("/data/ks/t/nb-1-big-Data.db", "1", 4_096, 1_700_000_000_123_456_789)
MEASURED = MeasuredFile(
    chunks=Chunks(16_384, 40_000),
    piles={0: [Pile(700, 3, 60, 90), Pile(800, 1, 20, 91)], 2: [Pile(700, 0, 5, 90)]},
    partitions=3,
    rows=10,
    bounds=4,
    deleted_partitions=1,
    longest_run=3,
    run_token=-42,
    runs=[PartitionRun(30, -42, 800), PartitionRun(20, 7, 700)],
    first_token=-(2**63),
    last_token=2**63 - 1,
    first_deleted_s=700,
    last_deleted_s=800,
    holds_since_s=0,
    holds_until_s=None,
    holds=TokenCounts(4, 2, [(0, 2), (3, 1)]),
    buries=TokenCounts(4, 64, []),
)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "not yet" / "there")


@pytest.fixture
def sstable(tmp_path: Path) -> SSTable:
    folder = tmp_path / "ks" / f"t-{'0' * 32}"
    folder.mkdir(parents=True)
    data = folder / "nb-1-big-Data.db"
    data.write_bytes(bytes(200))
    sstable = SSTable.at(data)
    sstable.component("Statistics.db").write_bytes(statistics(10, 500))
    return sstable


def counting(tmp_path: Path, dump: str) -> tuple[Tools, Path]:
    """A program of ours in the place of sstabledump, which notes how often it ran."""
    notes = tmp_path / "notes"
    notes.touch()
    script = f"open({str(notes)!r}, 'a').write('x'); print({dump!r})"
    return Tools((sys.executable, "-c", script)), notes


def test_a_stored_measurement_is_found_again(cache: Cache) -> None:
    assert cache.find(IDENTITY) is None
    cache.keep(IDENTITY, MEASURED)
    assert cache.find(IDENTITY) == MEASURED
    assert Cache(cache.folder).find(IDENTITY) == MEASURED


@pytest.mark.parametrize(
    "changed", [{"size": 4_097}, {"modified_ns": 1}, {"generation": "2"}, {"path": "/data/ks/t/nb-2-big-Data.db"}]
)
def test_a_replaced_file_is_not_confused_with_the_measured_one(cache: Cache, changed: dict[str, object]) -> None:
    cache.keep(IDENTITY, MEASURED)
    assert cache.find(IDENTITY._replace(**changed)) is None  # type: ignore[arg-type]


def test_a_later_measurement_replaces_the_earlier_one(cache: Cache) -> None:
    cache.keep(IDENTITY, MEASURED)
    cache.keep(IDENTITY, replace(MEASURED, rows=11))
    assert cache.find(IDENTITY) == replace(MEASURED, rows=11)
    assert len(list(cache.folder.iterdir())) == 1


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format":1}', "null"])
def test_a_damaged_cache_entry_is_measured_again(cache: Cache, damage: str) -> None:
    cache.keep(IDENTITY, MEASURED)
    (file,) = cache.folder.iterdir()
    file.write_text(damage)
    assert cache.find(IDENTITY) is None
    cache.keep(IDENTITY, MEASURED)
    assert cache.find(IDENTITY) == MEASURED


def test_a_measurement_of_another_version_is_not_used(cache: Cache) -> None:
    cache.keep(IDENTITY, MEASURED)
    (file,) = cache.folder.iterdir()
    kept = json.loads(file.read_text())
    version, *rest = kept["format"]
    file.write_text(json.dumps({**kept, "format": [version + 1, *rest]}))
    assert cache.find(IDENTITY) is None


def test_concurrent_readers_and_writers_never_see_a_partial_entry(cache: Cache) -> None:
    cache.keep(IDENTITY, MEASURED)

    def work(number: int) -> bool:
        cache.keep(IDENTITY, replace(MEASURED, rows=number))
        return cache.find(IDENTITY) is not None

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(200)))
    assert len(list(cache.folder.iterdir())) == 1


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadValue) as refused:
        Cache(tmp_path / "file").keep(IDENTITY, MEASURED)
    assert refused.value.field == "folder"
    assert str(tmp_path / "file") in str(refused.value)
    assert isinstance(refused.value.__cause__, OSError)


def test_measurements_of_missing_files_are_forgotten_and_those_of_other_nodes_stay(
    cache: Cache, sstable: SSTable
) -> None:
    elsewhere = IDENTITY._replace(path=f"ssh node2:{IDENTITY.path}")
    for identity in (IDENTITY, elsewhere, sstable.identity()):
        cache.keep(identity, MEASURED)
    existing = {sstable.identity().path}
    assert cache.forget_gone(["/"], existing) == 1
    assert cache.find(IDENTITY) is None
    assert cache.find(sstable.identity()) == cache.find(elsewhere) == MEASURED
    assert cache.forget_gone(["/"], existing) == 0


class TestMeasuring:
    def test_reads_a_file_once_whatever_is_asked_of_it_then(
        self, cache: Cache, sstable: SSTable, tmp_path: Path
    ) -> None:
        tools, notes = counting(tmp_path, text(partition(0, dead(20, 700), live(40))))
        asked = [
            measure(sstable, tools, gc_grace_s, now_s, cache=cache).droppable.tombstones
            for gc_grace_s, now_s in ((0, 701), (0, 700), (10, 710), (10, 711))
        ]
        assert asked == [1, 0, 0, 1]
        assert notes.read_text() == "x"

    def test_reads_it_again_when_more_has_expired(self, cache: Cache, sstable: SSTable, tmp_path: Path) -> None:
        tools, notes = counting(tmp_path, text(partition(0, expiring(20, 700, 10), expiring(40, 900, 10))))
        asked = [measure(sstable, tools, 0, now_s, cache=cache).droppable.tombstones for now_s in (600, 699, 700, 900)]
        assert asked == [0, 0, 1, 2]
        assert notes.read_text() == "xxx"

    def test_reads_it_again_when_its_blocks_are_cut_in_another_way(
        self, cache: Cache, sstable: SSTable, tmp_path: Path
    ) -> None:
        tools, notes = counting(tmp_path, text(partition(0, dead(20, 700))))
        assert len(measure(sstable, tools, 0, 900, cache=cache).measured.chunks) == 1
        assert len(measure(sstable, tools, 0, 900, cache=cache, uncompressed_block=50).measured.chunks) == 4
        assert notes.read_text() == "xx"

    def test_of_a_file_that_went_away_meanwhile_is_an_error_and_nothing_is_kept(
        self, cache: Cache, sstable: SSTable
    ) -> None:
        dump = text(partition(0, dead(20, 700)))
        script = f"import os; print({dump!r}); os.unlink({str(sstable.data)!r})"
        with pytest.raises(SSTableGone):
            measure(sstable, Tools((sys.executable, "-c", script)), 0, 900, cache=cache)
        assert not cache.folder.exists()


def test_what_is_kept_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Cache(tmp_path / "cache" / "sstables").keep(IDENTITY, MEASURED)
    finally:
        os.umask(before)
    (file,) = (tmp_path / "cache" / "sstables").iterdir()
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (file.parent.parent, file.parent, file)]
    assert modes == [0o700, 0o700, 0o600]
