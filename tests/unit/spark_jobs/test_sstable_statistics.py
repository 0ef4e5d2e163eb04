"""What the job that measures SSTables does without Spark; its work is tested on a real Cassandra."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.sstable_statistics import main, measuring
from sweep_tasks.compaction.node_files import RoundContext
from sweep_tasks.errors import BadValue, NotFound
from sweep_tasks.sstables.dump import Tools
from sweep_tasks.sstables.files import HERE
from sweep_tasks.sstables.nodes import Node
from sweep_tasks.store.contract import PhysicalTable
from tests.unit.spark_jobs.failing import failure_of


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "ks" / f"t-{'0' * 32}"
    folder.mkdir(parents=True)
    for number in (1, 2):
        (folder / f"nb-{number}-big-Data.db").write_bytes(b"x")
        (folder / f"nb-{number}-big-TOC.txt").touch()
    return tmp_path / "data"


def order(data: Path, to: Path, *tables: str) -> dict[str, Any]:
    return {"data": [str(data)], "tables": tables, "gc_grace_s": 10, "to": str(to)}


def arguments(order: dict[str, Any]) -> list[str]:
    return ["--order", json.dumps(order)]


def test_a_table_without_files_gives_no_lines_and_needs_no_spark(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(order(data, tmp_path / "lines", "ks.other", "ks.more"))) == 0
    assert (tmp_path / "lines").read_text() == ""
    summary = json.loads(capsys.readouterr().out)
    assert (summary["files"], summary["droppable"], summary["gone"], summary["unreadable"]) == (0, 0, [], [])
    assert list(summary["tables"]) == ["ks.more", "ks.other"]


@pytest.mark.parametrize("tables", [["t"], [".t"], ["ks."], []])
def test_what_is_not_a_table_with_its_keyspace_is_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], tables: list[str]
) -> None:
    error = failure_of(main, arguments(order(data, tmp_path / "lines", *tables)))
    assert (type(error), error.exit_code, error.field) == (BadValue, 2, "tables")
    assert capsys.readouterr().err == f"error: {error}\n"
    assert not (tmp_path / "lines").exists()


def test_a_missing_output_folder_is_named(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = failure_of(main, arguments(order(data, tmp_path / "none" / "lines", "ks.other")))
    assert (type(error), error.exit_code, error.field) == (BadValue, 2, "to")
    assert str(tmp_path / "none" / "lines") in capsys.readouterr().err


def test_missing_and_damaged_files_are_distinguished_and_do_not_stop_the_others(data: Path, tmp_path: Path) -> None:
    tools = Tools((sys.executable, "-c", "print('not a dump')"))
    node = Node("files", (data,), HERE, tools)
    asked = RoundContext(
        node, {"ks.t": PhysicalTable("ks", "t", 10, {})}, 1_000, tmp_path / "cache", tmp_path / "lines"
    )
    files = list(asked.files().items())
    files[0][0].data.unlink()
    numbers = pa.RecordBatch.from_pydict({"id": [0, 1]})
    found = [row for batch in measuring(asked, files)([numbers]) for row in batch.to_pylist()]
    assert [(row["kind"], row["line"]) for row in found] == [("gone", None), ("unreadable", None)]
    assert [str(sstable.data) in row["problem"] for row, (sstable, _) in zip(found, files, strict=True)] == [True, True]


@pytest.mark.parametrize("missing", ["data", "tables", "gc_grace_s", "to"])
def test_without_a_node_all_arguments_are_required(data: Path, tmp_path: Path, missing: str) -> None:
    given = order(data, tmp_path / "lines", "ks.t")
    del given[missing]
    error = failure_of(main, arguments(given))
    assert (type(error), error.exit_code, error.field, error.reason) == (BadValue, 2, missing, "missing")


def test_a_node_that_is_not_in_the_settings_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    error = failure_of(main, arguments({"node": "cassandra9"}))
    assert (type(error), error.exit_code) == (NotFound, 3)
    assert "cassandra9" in capsys.readouterr().err
