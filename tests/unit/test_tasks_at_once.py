"""The setting `sweep_tasks_at_once`: one number for both strategies, or one for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweep_tasks.config import Settings, as_environment, load_settings
from sweep_tasks.errors import BadValue
from sweep_tasks.model import SweepStrategy

CONSERVATIVE, THOROUGH, _ = SweepStrategy
VARIABLE = "SWEEPFLOW_SWEEP_TASKS_AT_ONCE"


def numbers(settings: Settings) -> tuple[int, int, int]:
    at_once = settings.sweep_tasks_at_once
    return at_once[CONSERVATIVE], at_once[THOROUGH], at_once.total


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("3", (3, 3, 6)),
        (" 1 ", (1, 1, 2)),
        ("conservative:4,thorough:1", (4, 1, 5)),
        ("thorough : 3, conservative : 2", (2, 3, 5)),
    ],
)
def test_the_environment_names_one_number_or_one_for_each(
    monkeypatch: pytest.MonkeyPatch, given: str, expected: tuple[int, int, int]
) -> None:
    monkeypatch.setenv(VARIABLE, given)
    assert numbers(load_settings()) == expected


@pytest.mark.parametrize(("line", "expected"), [("3", (3, 3, 6)), ("{ conservative = 4, thorough = 1 }", (4, 1, 5))])
def test_the_file_names_one_number_or_one_for_each(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, expected: tuple[int, int, int]
) -> None:
    file = tmp_path / "sweepflow.toml"
    file.write_text(f"sweep_tasks_at_once = {line}\n")
    monkeypatch.setenv("SWEEPFLOW_CONFIG", str(file))
    assert numbers(load_settings()) == expected


@pytest.mark.parametrize("given", [3, {"conservative": 4, "thorough": 1}])
def test_a_child_process_gets_the_same_numbers(monkeypatch: pytest.MonkeyPatch, given: Any) -> None:
    settings = load_settings(sweep_tasks_at_once=given)
    monkeypatch.setenv(VARIABLE, as_environment(settings)[VARIABLE])
    assert numbers(load_settings()) == numbers(settings)
    assert hash(load_settings()) == hash(load_settings()), "open stores are cached by settings"


@pytest.mark.parametrize(
    ("given", "field", "reason"),
    [
        ("0", ".conservative", "greater_than_equal"),
        (0, ".conservative", "greater_than_equal"),
        ("conservative:4,thorough:0", ".thorough", "greater_than_equal"),
        ("conservative:4,thorough:some", ".thorough", "int_parsing"),
        ("conservative:4", "", "malformed"),
        ("conservative:4,conservative:2,thorough:1", "", "malformed"),
        ("conservative:4,thorough:1,nothing:1", "", "malformed"),
        ("many", "", "malformed"),
        ("", "", "malformed"),
        ({"conservative": 4}, ".thorough", "missing"),
        ({"conservative": 4, "thorough": 1, "nothing": 1}, ".nothing", "extra_forbidden"),
        (True, "", "model_type"),
    ],
)
def test_anything_else_is_refused_with_the_name_of_the_setting(given: Any, field: str, reason: str) -> None:
    with pytest.raises(BadValue) as refused:
        load_settings(sweep_tasks_at_once=given)
    assert (refused.value.field, refused.value.reason) == (f"setting sweep_tasks_at_once{field}", reason)
