"""Finding SSTables, and distinguishing them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweep_tasks.errors import BadValue, SSTableGone, SSTableUnreadable
from sweep_tasks.sstables.dump import Tools
from sweep_tasks.sstables.files import SSTable, sstables_of
from sweep_tasks.sstables.measuring import measure
from tests.support.errors import having

ID = "0123456789abcdef" * 2


def written(folder: Path, name: str, *, complete: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / f"{name}-Data.db"
    data.write_bytes(b"data")
    if complete:
        (folder / f"{name}-TOC.txt").touch()
    return data


def test_those_of_a_table_are_found_in_every_folder_and_no_others(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    table = one / "ks" / f"app__items-{ID}"
    expected = [
        written(table, "nb-1-big"),
        written(table, "oa-3gsx_0abc_1x2y3z-big"),
        written(two / "ks" / f"app__items-{ID}", "da-2-bti"),
    ]
    written(table, "nb-9-big", complete=False)
    written(table / "snapshots" / "before", "nb-1-big")
    written(table / "backups", "nb-1-big")
    written(table / ".by_value_idx", "nb-1-big")
    written(one / "ks" / f"app__items__2-{ID}", "nb-1-big")
    written(one / "other" / f"app__items-{ID}", "nb-1-big")
    found = sstables_of([one, two, tmp_path / "none"], "ks", "app__items")
    assert [each.data for each in found] == expected
    assert {each.qualified_table for each in found} == {"ks.app__items"}
    assert [each.version for each in found] == ["nb", "oa", "da"]


def test_a_file_without_its_data_is_not_listed(tmp_path: Path) -> None:
    written(tmp_path / "ks" / f"t-{ID}", "nb-1-big").unlink()
    assert sstables_of([tmp_path], "ks", "t") == []


def test_the_same_file_is_itself_and_another_in_its_place_is_not(tmp_path: Path) -> None:
    data = written(tmp_path / "ks" / f"t-{ID}", "nb-1-big")
    sstable = SSTable.at(data)
    first = sstable.identity()
    assert sstable.identity() == first
    os.utime(data, ns=(5, 5))
    second = sstable.identity()
    data.write_bytes(b"other")
    os.utime(data, ns=(5, 5))
    assert len({first, second, sstable.identity()}) == 3


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    data = written(tmp_path / "ks" / f"t-{ID}", "nb-1-big")
    sstable = SSTable.at(data)
    data.unlink()
    with pytest.raises(SSTableGone) as gone:
        sstable.identity()
    assert gone.value.file == data
    assert str(data) in str(gone.value)


@pytest.mark.parametrize("name", ["nb-1-big-Index.db", "Data.db", "nb-1-big-Data.db.tmp"])
def test_what_is_not_the_data_of_an_sstable_is_refused(tmp_path: Path, name: str) -> None:
    data = tmp_path / "ks" / f"t-{ID}" / name
    with pytest.raises(BadValue) as refused:
        SSTable.at(data)
    assert refused.value.field == "file"
    assert str(data) in str(refused.value)


def test_a_file_of_cassandra_before_4_is_refused_with_a_remedy(tmp_path: Path) -> None:
    data = tmp_path / "ks" / f"t-{ID}" / "me-1-big-Data.db"
    with pytest.raises(SSTableUnreadable, check=having(reason="old_format")) as refused:
        SSTable.at(data)
    assert (refused.value.file, refused.value.command) == (data, "nodetool upgradesstables")
    assert refused.value.command in str(refused.value)


def test_one_of_an_old_cassandra_is_listed_with_the_others_and_left_out_by_name_when_it_is_measured(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "ks" / f"t-{ID}"
    written(folder, "mc-7-big")
    written(folder, "nb-8-big")
    old, new = sstables_of([tmp_path], "ks", "t")
    assert (old.version, new.version) == ("mc", "nb")
    with pytest.raises(SSTableUnreadable, check=having(reason="old_format")) as refused:
        measure(old, Tools(), 0, 0)
    assert refused.value.file == folder / "mc-7-big-Data.db"
    assert str(refused.value.file) in str(refused.value)
