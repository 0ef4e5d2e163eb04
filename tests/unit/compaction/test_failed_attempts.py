"""Candidates that are not tried again."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep_tasks.compaction.node_files import FailedAttempts


def test_recorded_attempts_are_read_by_the_next_process_of_this_node_only(tmp_path: Path) -> None:
    FailedAttempts(tmp_path / "new", "one").add({"/data/a": "x"})
    FailedAttempts(tmp_path / "new", "one").add({"/data/b": "y"})
    assert FailedAttempts(tmp_path / "new", "one").causes() == {"/data/a": "x", "/data/b": "y"}
    assert FailedAttempts(tmp_path / "new", "two").causes() == {}


def test_missing_files_are_forgotten_in_the_listed_folders(tmp_path: Path) -> None:
    kept = FailedAttempts(tmp_path, "one")
    kept.add({"/data/ks/t-1/a": "x", "/data/ks/t-1/b": "y", "/data/ks/u-1/c": "z"})
    kept.forget_gone(["/data/ks/t-"], {"/data/ks/t-1/b"})
    assert kept.causes() == {"/data/ks/t-1/b": "y", "/data/ks/u-1/c": "z"}


@pytest.mark.parametrize("damage", ["", "{", "[]", "null"])
def test_a_damaged_file_costs_one_more_attempt_and_no_more(tmp_path: Path, damage: str) -> None:
    kept = FailedAttempts(tmp_path, "one")
    kept.add({"/data/a": "x"})
    (file,) = tmp_path.iterdir()
    file.write_text(damage)
    assert kept.causes() == {}
    kept.add({"/data/b": "y"})
    assert kept.causes() == {"/data/b": "y"}
