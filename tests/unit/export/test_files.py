"""Exports on disk, without their data."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from sweep_tasks.errors import AlreadyExists, BadValue, NotFound
from sweep_tasks.export.files import (
    Export,
    ExportedCells,
    Manifest,
    as_folder,
    chain,
    data_of,
    draft,
    find_export,
    last_export,
    manifest_of,
    present_since,
    sync_export,
    write_manifest,
)
from tests.support.disk import Disk


def created(folder: Path, ts: int, tables: str = "a b", since: str | None = None, chosen: str = "x.*") -> Path:
    folder.mkdir()
    manifest = Manifest(ts, (chosen,), {table: ExportedCells(1, 0) for table in tables.split()}, since)
    manifest_of(folder).write_text(json.dumps(manifest.document()))
    return folder


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    full = Manifest(7, ("shop.*", "billing.bills"), {"shop.orders": ExportedCells(3, 0)})
    increment = Manifest(
        9, ("shop.*",), {"shop.orders": ExportedCells(1, 2), "shop.carts": ExportedCells(0, 0)}, "../7"
    )
    for manifest, kind in ((full, "full"), (increment, "increment")):
        manifest_of(tmp_path).write_text(json.dumps(manifest.document()))
        assert find_export(tmp_path) == Export(tmp_path, manifest)
        assert manifest.kind == kind


def test_a_folder_without_a_manifest_is_no_export(tmp_path: Path) -> None:
    data_of(tmp_path).mkdir()
    assert find_export(tmp_path) is None
    assert find_export(tmp_path / "nowhere") is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "ts": 1, "chosen": [], "tables": 5}'])
def test_an_invalid_manifest_is_reported_as_invalid(tmp_path: Path, text: str) -> None:
    manifest_of(tmp_path).write_text(text)
    with pytest.raises(BadValue) as refused:
        find_export(tmp_path)
    assert (refused.value.field, refused.value.reason) == ("export", "not_a_manifest")
    assert str(manifest_of(tmp_path)) in str(refused.value)


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    manifest_of(tmp_path).write_text('{"format": 2}')
    with pytest.raises(BadValue) as refused:
        find_export(tmp_path)
    assert (refused.value.field, refused.value.reason) == ("export", "unknown_format")


def test_a_chain_leads_from_the_full_export_to_the_one_named(tmp_path: Path) -> None:
    created(tmp_path / "1", 1)
    created(tmp_path / "2", 2, since="../1")
    created(tmp_path / "3", 3, since="../2")
    assert [export.folder.name for export in chain(tmp_path / "3")] == ["1", "2", "3"]
    assert [export.folder.name for export in chain(tmp_path / "1")] == ["1"]


def test_a_chain_with_a_part_missing_says_which(tmp_path: Path) -> None:
    created(tmp_path / "2", 2, since="../1")
    with pytest.raises(NotFound) as broken:
        chain(tmp_path / "2")
    assert (broken.value.details["folder"], broken.value.details["needed_by"]) == (tmp_path / "1", tmp_path / "2")
    with pytest.raises(NotFound) as missing:
        chain(tmp_path / "nowhere")
    assert (missing.value.details["folder"], missing.value.details["needed_by"]) == (tmp_path / "nowhere", None)


def test_a_chain_that_leads_back_to_itself_is_refused(tmp_path: Path) -> None:
    created(tmp_path / "1", 1, since="../2")
    created(tmp_path / "2", 2, since="../1")
    with pytest.raises(BadValue) as refused:
        chain(tmp_path / "2")
    assert (refused.value.field, refused.value.reason) == ("export", "cycle")


def test_a_table_that_was_dropped_and_created_again_is_exported_since_its_creation(tmp_path: Path) -> None:
    created(tmp_path / "1", 1, "a b c")
    created(tmp_path / "2", 2, "a c", since="../1")
    created(tmp_path / "3", 3, "a b d", since="../2")
    assert present_since(chain(tmp_path / "3")) == {"a": 0, "b": 2, "d": 2}


def test_the_last_export_is_the_latest_of_the_same_tables_below_a_timestamp(tmp_path: Path) -> None:
    for ts, chosen in ((3, "x.*"), (12, "x.*"), (9, "x.*"), (10, "y.*")):
        created(tmp_path / f"{ts}", ts, chosen=chosen)
    (tmp_path / "20" / "data").mkdir(parents=True)
    created(tmp_path / "11.unfinished-abc", 11)
    (tmp_path / "notes.txt").touch()
    assert last_export(tmp_path, ["x.*"], before=12) == tmp_path / "9"
    assert last_export(tmp_path, ["x.*"], before=99) == tmp_path / "12"
    assert last_export(tmp_path, ["x.*", "y.*"], before=99) is None
    assert last_export(tmp_path / "nowhere", ["x.*"], before=99) is None


def test_a_draft_takes_its_place_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "7"
    with draft(folder) as created_here:
        (created_here / "data").mkdir()
        assert not folder.exists()
    assert [each.name for each in folder.parent.iterdir()] == ["7"]
    assert (folder / "data").is_dir()


def test_a_draft_is_on_disk_before_its_manifest_and_that_before_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "new" / "7"
    disk = Disk.watched(monkeypatch)
    with draft(folder) as created_here:
        part = data_of(created_here) / "table=a" / "part.parquet"
        part.parent.mkdir(parents=True)
        part.touch()
        write_manifest(created_here, Manifest(7, ("a",), {"a": ExportedCells(1, 0)}))
    name, manifest = disk.when(folder), disk.when(manifest_of(created_here))
    assert disk.when(part) < disk.when(part.parent) < disk.when(data_of(created_here)) < manifest
    assert manifest < disk.when(created_here) < name < disk.when(folder.parent) < disk.when(tmp_path)


def test_an_export_that_was_there_is_on_disk_with_all_that_leads_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_export(created(tmp_path / "7", 7))
    assert found is not None
    disk = Disk.watched(monkeypatch)
    sync_export(found)
    assert disk.synced()[:3] == [manifest_of(found.folder), found.folder, tmp_path]


def test_a_draft_that_fails_leaves_nothing_and_what_a_killed_job_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "7.unfinished-abc" / "data").mkdir(parents=True)
    (tmp_path / "77.unfinished-abc").mkdir()
    with pytest.raises(ZeroDivisionError), draft(tmp_path / "7") as created_here:
        (created_here / str(1 // 0)).mkdir()
    assert [each.name for each in tmp_path.iterdir()] == ["77.unfinished-abc"]


def test_of_two_jobs_that_write_the_same_export_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    with pytest.raises(AlreadyExists) as refused, draft(tmp_path / "7"):
        (tmp_path / "7" / "manifest.json").touch()
    assert (refused.value.field, type(refused.value)) == ("to", AlreadyExists)
    assert [each.name for each in (tmp_path / "7").iterdir()] == ["manifest.json"]


def test_what_is_no_export_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(BadValue) as refused, draft(tmp_path):
        raise AssertionError("not reached")
    assert (refused.value.field, refused.value.reason) == ("to", "not_empty")
    for folder in (tmp_path / "thesis.txt", tmp_path / "thesis.txt" / "7"):
        with pytest.raises(BadValue) as refused, draft(folder):
            raise AssertionError("not reached")
        assert (refused.value.field, refused.value.reason) == ("to", "not_writable")


def test_an_address_is_no_folder() -> None:
    with pytest.raises(BadValue) as refused:
        as_folder("s3a://bucket/exports", "to")
    assert (refused.value.field, refused.value.reason) == ("to", "not_a_folder")
    assert as_folder("exports", "to").is_absolute()


def test_an_export_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with draft(tmp_path / "exports" / "7") as created_here:
            data_of(created_here).mkdir()
            write_manifest(created_here, Manifest(7, ("x.*",), {}))
    finally:
        os.umask(before)
    folder = tmp_path / "exports" / "7"
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (folder.parent, folder, manifest_of(folder))]
    assert modes == [0o700, 0o700, 0o600]
