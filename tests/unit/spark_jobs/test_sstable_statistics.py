"""What the job that measures SSTables does without Spark; its work is tested on a real Cassandra."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from spark_jobs.sstable_statistics import StatisticsOrder, main, measuring
from sweep_tasks.compaction.dump import Tools


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "ks" / f"t-{'0' * 32}"
    folder.mkdir(parents=True)
    for number in (1, 2):
        (folder / f"nb-{number}-big-Data.db").write_bytes(b"x")
        (folder / f"nb-{number}-big-TOC.txt").touch()
    return tmp_path / "data"


def arguments(data: Path, to: Path, tables: str) -> list[str]:
    return ["--data", str(data), "--tables", tables, "--gc-grace", "10", "--to", str(to)]


def test_a_table_without_files_gives_no_lines_and_needs_no_spark(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(data, tmp_path / "lines", "ks.other, ks.more")) == 0
    assert (tmp_path / "lines").read_text() == ""
    summary = json.loads(capsys.readouterr().out)
    assert summary == {"files": 0, "droppable": 0, "waiting": 0, "gone": [], "unreadable": []}


@pytest.mark.parametrize("tables", ["t", ".t", "ks.", " , "])
def test_what_is_not_a_table_with_its_keyspace_is_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], tables: str
) -> None:
    assert main(arguments(data, tmp_path / "lines", tables)) == 2
    assert capsys.readouterr().err.startswith("error: tables: ")
    assert not (tmp_path / "lines").exists()


def test_a_place_for_the_lines_that_is_not_there_is_named(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(data, tmp_path / "none" / "lines", "ks.other")) == 2
    assert "error: to: " in capsys.readouterr().err


def test_files_that_are_gone_or_damaged_are_told_apart_and_do_not_stop_the_others(data: Path, tmp_path: Path) -> None:
    tools = Tools((sys.executable, "-c", "print('not a dump')"))
    order = StatisticsOrder((data,), ("ks.t",), 10, 1_000, tmp_path / "lines", tools, tmp_path / "cache")
    files = order.files()
    files[0].data.unlink()
    numbers = pa.RecordBatch.from_pydict({"id": [0, 1]})
    found = [row for batch in measuring(order, files)([numbers]) for row in batch.to_pylist()]
    assert [(row["file"], row["kind"], row["line"]) for row in found] == [
        (str(files[0].data), "gone", None),
        (str(files[1].data), "unreadable", None),
    ]
