from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import ParamValidationError

from sweep_tasks.errors import BadValue
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.form import LONGEST_SHARDS, ShardTask, chosen, order_of, sweep_form
from sweep_tasks.sweep.order import SweepOrder
from tests.support.lines import values_in

CONSERVATIVE, THOROUGH = SweepStrategy.CONSERVATIVE, SweepStrategy.THOROUGH


def answers(**given: Any) -> dict[str, Any]:
    return {name: param.value for name, param in sweep_form(8).items()} | given


def test_an_unchanged_form_selects_everything() -> None:
    assert chosen(answers(), 2) == [(CONSERVATIVE, 0), (CONSERVATIVE, 1), (THOROUGH, 0), (THOROUGH, 1)]


@pytest.mark.parametrize(
    ("text", "shards"),
    [
        ("3", [3]),
        ("0,2-5", [0, 2, 3, 4, 5]),
        (" 7 , 1 - 2 ", [1, 2, 7]),
        ("1-3,2-4", [1, 2, 3, 4]),
        (None, [*range(8)]),
    ],
)
def test_shards_are_numbers_and_ranges(text: str | None, shards: list[int]) -> None:
    assert [task.shard for task in chosen(answers(strategies=["thorough"], shards=text), 8)] == shards


@pytest.mark.parametrize(
    ("text", "reason", "shown"),
    [
        ("8", "out_of_range", ["8", "8", "0", "7"]),
        ("5-2", "reversed", ["5-2", "2-5"]),
        ("1;2", "malformed", ["0,2-5"]),
        ("9" * 5_000, "too_long", ["5000", "2000"]),
        ("9" * 1_500, "malformed", ["0,2-5"]),
    ],
)
def test_impossible_shards_are_refused(text: str, reason: str, shown: list[str]) -> None:
    with pytest.raises(BadValue) as refused:
        chosen(answers(shards=text), 8)
    assert (refused.value.field, refused.value.reason) == ("shards", reason)
    assert values_in(str(refused.value)) == shown


@pytest.mark.parametrize("text", ["", "0", "0,2-5", " 1 - 2, 3 "])
def test_the_form_accepts_valid_values(text: str) -> None:
    sweep_form(8)["shards"].resolve(text)


@pytest.mark.parametrize("text", ["all", "-1", "1-", "1,,2", "1;2"])
def test_the_form_accepts_nothing_else(text: str) -> None:
    with pytest.raises(ParamValidationError) as refused:
        sweep_form(8)["shards"].resolve(text)
    assert refused.value.args[0].validator == "pattern"


def test_the_form_limits_the_length_of_the_list_of_shards() -> None:
    sweep_form(256)["shards"].resolve(", ".join(map(str, range(256))))
    with pytest.raises(ParamValidationError) as refused:
        sweep_form(256)["shards"].resolve("1," * LONGEST_SHARDS + "1")
    assert refused.value.args[0].validator == "maxLength"


def test_the_form_becomes_an_order() -> None:
    given = answers(dry_run=True, max_entries=5, max_seconds=1.5, stop_at=70)
    assert order_of(given, ShardTask(THOROUGH, 3), 1_000) == SweepOrder(THOROUGH, 3, 1_000, 70, 5, 1.5, True)


def test_a_task_is_named_after_its_strategy_and_shard() -> None:
    assert ShardTask(THOROUGH, 3).task_id == "thorough.shard_3"
