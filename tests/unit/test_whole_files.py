"""Files that are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep_tasks.whole_files import whole_file, write_whole


def test_who_reads_meanwhile_finds_what_was_there_before(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_whole(file, "before")
    with whole_file(file) as out:
        out.write("after")
        out.flush()
        assert file.read_text() == "before"
    assert (file.read_text(), list(tmp_path.iterdir())) == ("after", [file])


def test_two_that_write_at_once_do_not_meet_though_they_have_the_same_process_id(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with whole_file(file) as one:
        one.write("one")
        with whole_file(file) as other:
            other.write("other")
        assert file.read_text() == "other"
    assert (file.read_text(), list(tmp_path.iterdir())) == ("one", [file])


def test_what_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_whole(file, "before")
    with pytest.raises(TypeError), whole_file(file) as out:
        out.writelines(["half", 7])  # type: ignore[list-item]
    assert (file.read_text(), list(tmp_path.iterdir())) == ("before", [file])


def test_others_may_read_it(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    write_whole(tmp_path / "file", "x")
    assert (tmp_path / "file").stat().st_mode == plain.stat().st_mode
