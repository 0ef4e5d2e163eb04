"""A folder of jars is complete or absent, also with concurrent callers."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sweep_tasks.errors import ProgramMissing
from sweep_tasks.local.jars import ARTIFACT, GROUP, NAME, VERSION, Say, cassandra_jars
from tests.support.processes import in_processes

JARS = [f"{ARTIFACT}-{VERSION}.jar", "another.jar"]


def silent(_: str) -> None:
    """For tests that do not check the output."""


def write_jars(draft: Path, _say: Say) -> None:
    for name in JARS:
        (draft / name).write_text(name)


def test_jars_are_fetched_once(tmp_path: Path) -> None:
    folder = cassandra_jars(tmp_path, silent, write_jars)
    assert folder == tmp_path / NAME
    assert sorted(file.name for file in folder.iterdir()) == sorted(JARS)
    assert cassandra_jars(tmp_path, silent, refuse) == folder


def refuse(_draft: Path, _say: Say) -> None:
    raise AssertionError("they are there already")


def test_the_cache_may_be_named_relative_to_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cassandra_jars(Path("~/cache"), silent, write_jars) == tmp_path / "cache" / NAME


def test_concurrent_processes_share_one_download(tmp_path: Path) -> None:
    seen = in_processes(4, fetch_slowly, tmp_path)
    assert seen == [sorted(JARS)] * 4
    assert len(list(tmp_path.glob("fetched-by-*"))) == 1
    assert list(tmp_path.glob("*.draft*")) == []


def fetch_slowly(number: int, cache: Path) -> list[str]:
    def fetch(draft: Path, _say: Say) -> None:
        (cache / f"fetched-by-{number}-{os.getpid()}").touch()
        for name in JARS:
            time.sleep(0.5)
            (draft / name).write_text(name)

    return sorted(file.name for file in cassandra_jars(cache, silent, fetch).iterdir())


def test_a_download_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail_halfway(draft: Path, _say: Say) -> None:
        (draft / JARS[0]).write_text("half")
        raise problem

    problem = ProgramMissing("cassandra: no network", reason="download_failed")
    with pytest.raises(ProgramMissing) as refused:
        cassandra_jars(tmp_path, silent, fail_halfway)
    assert refused.value is problem
    assert [file.name for file in tmp_path.iterdir()] == [f"{NAME}.lock"]
    assert cassandra_jars(tmp_path, silent, write_jars).is_dir()


def test_a_download_without_cassandra_itself_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ProgramMissing) as refused:
        cassandra_jars(tmp_path, silent, lambda draft, _: (draft / "another.jar").touch())
    assert refused.value.reason == "incomplete"
    for named in ("'mvn'", f"{GROUP}:{ARTIFACT}:{VERSION}"):
        assert named in str(refused.value)
    assert not (tmp_path / NAME).exists()


def test_the_draft_of_a_killed_process_is_removed_by_the_next_download(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.draft-of-a-killed-one").mkdir()
    (tmp_path / f"{NAME}.draft-of-a-killed-one" / JARS[0]).touch()
    folder = cassandra_jars(tmp_path, silent, write_jars)
    assert sorted(file.name for file in tmp_path.iterdir()) == [folder.name, f"{NAME}.lock"]


def test_a_cache_that_can_not_be_written_is_named_with_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ProgramMissing) as refused:
        cassandra_jars(tmp_path / "file", silent, write_jars)
    assert (refused.value.field, refused.value.reason) == ("cache_folder", "unusable")
    for named in (str(tmp_path / "file"), "SWEEPFLOW_CACHE_FOLDER"):
        assert named in str(refused.value)


def test_missing_downloaders_are_reported_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProgramMissing) as refused:
        cassandra_jars(tmp_path / "cache", silent)
    assert (refused.value.reason, refused.value.details["complaints"]) == ("no_downloader", {})
    for named in ("Maven", "Ivy", f"{GROUP}:{ARTIFACT}"):
        assert named in str(refused.value)


def test_downloads_and_errors_of_a_downloader_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "mvn"
    complaint = "[ERROR] repository unreachable"
    program.write_text(f"#!/bin/sh\necho '[INFO] looking'\necho '{complaint}'\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    output: list[str] = []
    with pytest.raises(ProgramMissing) as refused:
        cassandra_jars(tmp_path / "cache", output.append)
    assert (refused.value.reason, refused.value.details["complaints"]) == ("download_failed", {"Maven": complaint})
    assert complaint in str(refused.value)
    assert len(output) == 1
    assert "65 MB" in output[0]
    assert str(tmp_path / "cache") in output[0]
