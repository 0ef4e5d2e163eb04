"""Planning compactions from a terminal: real processes, real files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sweep_tasks.cli.compaction import WORDS
from sweep_tasks.compaction.rules import CandidateReason
from sweep_tasks.sstables.statistics_file import BadLine
from tests.support.command import Answer, sweepflow, sweepflow_process

DENSE, CLEAN = [100, 0, 4096], [0, 0, 4096]


@pytest.fixture
def stats(tmp_path: Path) -> Path:
    return tmp_path / "stats.jsonl"


def written(stats: Path, *files: dict[str, Any]) -> str:
    stats.write_text("".join(f"{json.dumps(file)}\n" for file in files))
    return str(stats)


def entry(file: str, ratio: float, reason: str, rank: int | None) -> dict[str, Any]:
    return {"file": file, "ratio": ratio, "eligible": rank is not None, "reason": reason, "rank": rank}


def test_the_plan_has_eligible_files_first_and_every_threshold_is_inclusive(stats: Path) -> None:
    file = written(
        stats,
        {"file": "none", "blocks": []},
        {"file": "under", "blocks": [DENSE, *[CLEAN] * 20]},
        {"file": "five percent", "blocks": [DENSE, *[CLEAN] * 19]},
        {"file": "z", "table": "ks.t", "blocks": [[0, 2048, 4096], CLEAN]},
        {"file": "y", "blocks": [DENSE, [99, 2047, 4096]], "pending": False},
        {"file": "busy", "blocks": [DENSE], "pending": True},
    )
    answer = sweepflow("compaction", "plan", "--stats", file, "--json")
    assert (answer.code, answer.err) == (0, "")
    assert answer.document == {
        "plan": [
            entry("y", 0.5, "dense", 1),
            entry("z", 0.5, "dense", 2),
            entry("five percent", 0.05, "dense", 3),
            entry("busy", 1.0, "pending", None),
            entry("under", 1 / 21, "below_threshold", None),
            entry("none", 0.0, "empty", None),
        ]
    }


def test_thresholds_are_settings_and_a_table_has_its_own(stats: Path) -> None:
    files = [{"file": table, "table": table, "blocks": [[7, 0, 4096], *[CLEAN] * 9]} for table in ("a.off", "a.on")]
    answer = sweepflow(
        "compaction", "plan", "--stats", written(stats, *files), "--json",
        SWEEPFLOW_COMPACTION_DENSE_TOMBSTONES="7",
        SWEEPFLOW_COMPACTION_ELIGIBLE_SHARE="0.1",
        SWEEPFLOW_COMPACTION_TABLES='{"a.off": {"eligible_share": 0}}',
    )  # fmt: skip
    assert answer.document == {"plan": [entry("a.on", 0.1, "dense", 1), entry("a.off", 0.1, "switched_off", None)]}


def test_other_fields_of_a_line_appear_in_the_answer(stats: Path) -> None:
    around = {"keys": 10, "first_token": 0, "last_token": 9}
    file = written(
        stats,
        {"file": "run", "blocks": [CLEAN], "longest_run": 100_000},
        {"file": "thin", "table": "ks.t", "blocks": [[5, 50, 4096]], **around},
    )
    assert sweepflow("compaction", "plan", "--stats", file, "--json").document == {
        "plan": [
            entry("run", 0.0, "long_run", 1) | {"longest_run": 100_000, "reads": "failing"},
            entry("thin", 0.0, "overlap", 2) | {"overlap": 0.5},
        ]
    }
    for_people = sweepflow("compaction", "plan", "--stats", file).out
    assert "100000" in for_people.replace("│", " ").split()


def test_text_output_is_a_table_with_escaped_names(stats: Path) -> None:
    file = written(stats, {"file": "[red]a\x1b[31m", "blocks": [DENSE]}, {"file": "b", "blocks": [CLEAN]})
    answer = sweepflow("compaction", "plan", "--stats", file)
    assert answer.code == 0
    assert r"[red]a\x1b[31m" in answer.out
    words = " ".join(answer.out.replace("│", " ").split())
    for shown in ("(100.0%)", "(0.0%)", WORDS[CandidateReason.DENSE], WORDS[CandidateReason.BELOW_THRESHOLD]):
        assert shown in words
    assert re.findall(r"\d+", answer.out.splitlines()[-1]) == ["1", "2"]


def test_no_files_make_an_empty_plan(stats: Path) -> None:
    file = written(stats)
    assert sweepflow("compaction", "plan", "--stats", file, "--json").document == {"plan": []}
    for_people = sweepflow("compaction", "plan", "--stats", file)
    assert (for_people.code, for_people.out.count("\n")) == (0, 1)


def test_a_bad_line_ends_it_without_a_plan(stats: Path) -> None:
    file = written(stats, {"file": "a", "blocks": [DENSE]}, {"file": "b", "blocks": [[1, 2, -3]]})
    for_people = sweepflow("compaction", "plan", "--stats", file)
    assert (for_people.code, for_people.out) == (2, "")
    for_scripts = sweepflow("compaction", "plan", "--stats", file, "--json")
    document = for_scripts.document
    assert for_people.err == f"error: {document['message']}\n"
    assert (for_scripts.code, document["error"]) == (2, "bad_value")
    assert (document["field"], document["reason"]) == ("blocks[0], total_bytes", "not_a_count")
    assert isinstance(for_people.error, BadLine)
    assert for_people.error.line == 2


@pytest.mark.parametrize(("content", "code"), [(b"nonsense", "bad_json"), (b'{"file":"\xff"}', "bad_value")])
def test_invalid_text_and_invalid_json_are_bad_input_from_a_file_and_from_stdin(
    content: bytes, code: str, stats: Path
) -> None:
    stats.write_bytes(content)
    by_name = sweepflow("compaction", "plan", "--stats", str(stats), "--json")
    assert (by_name.code, by_name.document["error"]) == (2, code)
    piped = from_stdin(content)
    assert (piped.code, piped.document["error"]) == (2, code)


def test_standard_input_is_read_where_the_file_is_a_dash() -> None:
    piped = from_stdin(b'{"file":"caf\xc3\xa9","blocks":[[100,0,1]]}\n')
    assert piped.document == {"plan": [entry("café", 1.0, "dense", 1)]}


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    answer = sweepflow("compaction", "plan", "--stats", f"{tmp_path}/none", "--json")
    document = answer.document
    assert (answer.code, document["error"]) == (2, "bad_value")
    assert (document["field"], document["reason"]) == ("file", "unreadable")
    assert f"{tmp_path}/none" in document["message"]
    assert answer.error
    assert isinstance(answer.error.__cause__, FileNotFoundError)
    assert sweepflow("compaction", "plan").code == 2


def test_no_store_is_opened(tmp_path: Path, stats: Path) -> None:
    arguments = ("compaction", "plan", "--stats", written(stats), "--json", "--store", "sqlite:///none.db")
    assert sweepflow(*arguments, cwd=tmp_path).code == 0
    assert list(tmp_path.iterdir()) == [stats]


def from_stdin(content: bytes) -> Answer:
    return sweepflow_process("compaction", "plan", "--stats", "-", "--json", stdin=content)
