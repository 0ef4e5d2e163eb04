"""The rules of sweeping as readable files: every operation has the outcome in its file, on every
store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.scenario.runner import mark_for_scenarios, run_scenario
from sweep_tasks.store import Store
from sweep_tasks.store.sqlite import SQLiteStore
from tests.scenarios.script import Outcome, Script, agrees, differences, load, rewritten
from tests.support.command import without_journal

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.scenario"))
COMMAND = str(Path(sys.executable).parent / "sweepflow")

TWO_RUNS = "two_protections_each_keep_their_own_version"
"""Uses tables, versions, queue, parking, protections and thresholds, and nothing that only one run knows."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_operation_has_the_expected_outcome(path: Path, store: Store, rewrite: bool) -> None:
    script = load(path)
    mark_for_scenarios(store)
    outcomes = list(run_scenario(script.operations, store, Settings()))
    if rewrite:
        path.write_text(rewritten(script, outcomes), encoding="utf-8")
    else:
        check(script, outcomes)


@pytest.mark.parametrize(
    ("name", "code"),
    [("a_slow_write_is_deleted_again_after_the_grace_period", 0), ("an_operation_that_fails_changes_nothing", 1)],
)
def test_the_command_prints_the_same_and_its_exit_code_reports_failures(name: str, code: int, tmp_path: Path) -> None:
    script = script_of(name)
    assert code == any("error" in (expected or {}) for expected in script.expected)
    outcomes, ended = run_command(script.operations, tmp_path)
    check(script, outcomes)
    assert ended == code


def test_a_second_run_of_the_command_continues_with_the_data(tmp_path: Path) -> None:
    script = script_of(TWO_RUNS)
    half = len(script.steps) // 2
    first, first_ended = run_command(script.operations[:half], tmp_path)
    second, second_ended = run_command(script.operations[half:], tmp_path)
    check(script, first + second, runs=2)
    assert (first_ended, second_ended) == (0, 1), "the second half holds a read that fails"


def test_the_next_run_continues_where_a_run_ended(tmp_path: Path) -> None:
    script = script_of(TWO_RUNS)
    for cut in range(len(script.steps) + 1):
        path = tmp_path / f"{cut}.db"
        SQLiteStore.initialise(path)
        outcomes: list[Outcome] = []
        for part in (script.operations[:cut], script.operations[cut:]):
            with SQLiteStore(path) as reopened:
                mark_for_scenarios(reopened)
                outcomes += run_scenario(part, reopened, Settings())
        check(script, outcomes, runs=2)


def test_rewriting_leaves_a_file_that_is_right_as_it_is() -> None:
    script = script_of("conservative_keeps_the_newest_and_leaves_a_sentinel")
    right = [answer_as(expected or {}) for expected in script.expected]
    assert rewritten(script, right) == script.path.read_text(encoding="utf-8")


def test_rewriting_changes_outcomes_that_are_wrong_and_adds_those_that_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "new.scenario"
    path.write_text('# Why.\n{"op":"a"}\n=> {"ok":1}\n\n# How.\n{"op":"b"}\n', encoding="utf-8")
    script = load(path)
    outcomes: list[Outcome] = [{"ok": True}, {"error": "bad_value", "message": "b: is bad", "line": 2}]
    assert "expected   nothing yet" in differences(script, outcomes)
    assert rewritten(script, outcomes) == (
        '# Why.\n{"op":"a"}\n=> {"ok":true}\n\n# How.\n{"op":"b"}\n=> {"error":"bad_value","line":2}\n'
    )


def answer_as(expected: Outcome) -> Outcome:
    """An outcome that agrees with the expected one."""
    return expected | {"message": " ".join(expected.get("message", []))} if "error" in expected else expected


def test_an_error_agrees_only_if_its_message_has_every_value_as_a_whole_word() -> None:
    expected: Outcome = {"error": "snapshot_swept", "line": 1, "message": ["100", "app.items"]}
    got = {"error": "snapshot_swept", "line": 1}
    assert agrees(expected, got | {"message": "app.items: 100."})
    for message in ("app.items: 1000", "app.items_2: 100", "100", ""):
        assert not agrees(expected, got | {"message": message})
    assert not agrees(expected, got | {"line": 2, "message": "100 app.items"})


def script_of(name: str) -> Script:
    return load(FOLDER / f"{name}.scenario")


def check(script: Script, outcomes: list[Outcome], runs: int = 1) -> None:
    if runs > 1:
        # A run counts its lines from 1, so only the first agrees with the file there.
        outcomes = [got | {"line": number} if "error" in got else got for number, got in enumerate(outcomes, start=1)]
    found = differences(script, outcomes)
    if found:
        pytest.fail(found, pytrace=False)
    assert all(map(agrees, script.expected, outcomes))


def run_command(operations: list[str], folder: Path) -> tuple[list[Outcome], int]:
    """The outcomes and the exit code of `sweepflow scenario run` on the one store of this folder."""
    file = folder / "operations.jsonl"
    file.write_text("".join(f"{line}\n" for line in operations), encoding="utf-8")
    ended = subprocess.run(
        [COMMAND, "scenario", "run", str(file), "--store", f"sqlite:///{folder}/store.db"],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("SWEEPFLOW_")},
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert not without_journal(ended.stderr), ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()], ended.returncode
