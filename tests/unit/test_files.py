"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep_tasks.files import (
    DRAFT,
    PRIVATE_FILE,
    make_private_folder,
    sync_parents,
    sync_tree,
    whole_file,
    write_whole,
)
from tests.support.disk import Disk


def test_a_concurrent_reader_finds_the_previous_content(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_whole(file, "before")
    with whole_file(file) as out:
        out.write("after")
        out.flush()
        assert file.read_text() == "before"
    assert (file.read_text(), list(tmp_path.iterdir())) == ("after", [file])


def test_concurrent_writers_with_the_same_process_id_do_not_collide(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with whole_file(file) as one:
        one.write("one")
        with whole_file(file) as other:
            other.write("other")
        assert file.read_text() == "other"
    assert (file.read_text(), list(tmp_path.iterdir())) == ("one", [file])


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_whole(file, "before")
    with pytest.raises(TypeError), whole_file(file) as out:
        out.writelines(["half", 7])  # type: ignore[list-item]
    assert (file.read_text(), list(tmp_path.iterdir())) == ("before", [file])


def test_its_content_is_on_disk_before_its_name_and_its_name_before_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk.watched(monkeypatch)
    file = tmp_path / "file"
    write_whole(file, "x")
    [(_, draft), *_] = disk.calls
    assert disk.calls == [("sync", draft), ("rename", file), ("sync", tmp_path)]
    assert (draft.parent, draft.suffix) == (tmp_path, DRAFT)


def test_a_folder_is_synced_after_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("top", "a/middle", "a/b/deep", "a/b/.hidden"):
        (tmp_path / name).touch()
    disk = Disk.watched(monkeypatch)
    sync_tree(tmp_path)
    everything = [tmp_path, *tmp_path.rglob("*")]
    assert sorted(disk.synced()) == sorted(everything)
    for each in everything[1:]:
        assert disk.when(each) < disk.when(each.parent)


def test_new_parent_folders_of_a_file_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "new" / "newer"
    folder.mkdir(parents=True)
    disk = Disk.watched(monkeypatch)
    sync_parents(folder / "file")
    assert disk.synced()[:3] == [folder, folder.parent, tmp_path]


def test_other_users_may_read_it(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    write_whole(tmp_path / "file", "x")
    assert (tmp_path / "file").stat().st_mode == plain.stat().st_mode


class TestPrivacy:
    @pytest.fixture(autouse=True, params=[0o000, 0o022, 0o077])
    def umask(self, request: pytest.FixtureRequest) -> Iterator[None]:
        before = os.umask(request.param)
        yield
        os.umask(before)

    def test_a_private_file_is_for_its_owner_alone(self, tmp_path: Path) -> None:
        write_whole(tmp_path / "file", "x", PRIVATE_FILE)
        assert mode(tmp_path / "file") == 0o600

    def test_a_folder_is_too_with_those_that_lead_to_it(self, tmp_path: Path) -> None:
        make_private_folder(tmp_path / "a" / "b")
        assert (mode(tmp_path / "a"), mode(tmp_path / "a" / "b")) == (0o700, 0o700)

    def test_one_that_is_there_keeps_its_mode(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o755)
        make_private_folder(tmp_path)
        assert mode(tmp_path) == 0o755

    def test_what_is_in_the_way_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        for folder in (tmp_path / "file", tmp_path / "file" / "folder"):
            with pytest.raises(OSError, match=str(folder)):
                make_private_folder(folder)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
