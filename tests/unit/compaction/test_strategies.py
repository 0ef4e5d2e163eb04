"""What each compaction strategy would do with files that it is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep_tasks.compaction.proof import Strategy, strategy_of
from sweep_tasks.sstables.nodes import FileMetadata

DAY_US = 86_400 * 10**6
FILE = Path("/data1/ks/t-1/nb-1-big-Data.db")
OTHER_FOLDER = Path("/data2/ks/t-1/nb-2-big-Data.db")


def strategy(name: str, **options: str) -> Strategy:
    found = strategy_of({"class": f"org.apache.cassandra.db.compaction.{name}", **options})
    assert found
    return found


@pytest.mark.parametrize("name", ["SizeTiered", "Leveled", "TimeWindow", "Unified"])
def test_all_of_cassandra_5_are_known_by_their_short_and_their_whole_name(name: str) -> None:
    whole = strategy(f"{name}CompactionStrategy")
    assert whole.kind == f"{name}CompactionStrategy"
    assert strategy_of({"class": whole.kind}) is not None


@pytest.mark.parametrize("options", [{}, {"class": ""}, {"class": "com.example.OurCompactionStrategy"}])
def test_another_strategy_is_unknown(options: dict[str, str]) -> None:
    assert strategy_of(options) is None


def test_one_may_be_switched_off_and_may_drop_repaired_tombstones_only() -> None:
    plain = strategy("SizeTieredCompactionStrategy")
    assert (plain.enabled, plain.only_purges_repaired) == (True, False)
    special = strategy("SizeTieredCompactionStrategy", enabled="False", only_purge_repaired_tombstones="TRUE")
    assert (special.enabled, special.only_purges_repaired) == (False, True)


def test_several_files_of_levels_are_written_twice_and_one_alone_keeps_its_level() -> None:
    leveled = strategy("LeveledCompactionStrategy")
    assert (leveled.cost(100, 1), leveled.cost(100, 2)) == (100, 200)
    assert strategy("UnifiedCompactionStrategy").cost(100, 2) == 100


def test_files_of_different_folders_and_repaired_ones_stay_apart() -> None:
    tiered = strategy("SizeTieredCompactionStrategy")
    place = tiered.apart(FILE, FileMetadata(1, 2))
    assert place == tiered.apart(FILE, FileMetadata(1, 90 * DAY_US))
    assert place != tiered.apart(OTHER_FOLDER, FileMetadata(1, 2))
    assert place != tiered.apart(FILE, FileMetadata(1, 2, repaired=True))


def test_a_window_is_that_of_a_files_latest_write() -> None:
    windows = strategy("TimeWindowCompactionStrategy")
    first = windows.apart(FILE, FileMetadata(1, DAY_US - 1))
    assert first == windows.apart(FILE, FileMetadata(-1, 5))
    assert first != windows.apart(FILE, FileMetadata(1, DAY_US))


def test_a_window_is_as_wide_as_the_table_says_and_counts_in_its_unit_of_time() -> None:
    windows = strategy(
        "TimeWindowCompactionStrategy",
        compaction_window_unit="HOURS",
        compaction_window_size="2",
        timestamp_resolution="MILLISECONDS",
    )
    edge = 2 * 3_600 * 1_000
    assert windows.apart(FILE, FileMetadata(0, edge - 1)) == windows.apart(FILE, FileMetadata(0, 0))
    assert windows.apart(FILE, FileMetadata(0, edge - 1)) != windows.apart(FILE, FileMetadata(0, edge))
