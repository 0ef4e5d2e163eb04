"""Every scenario answers on Spark as it does in process. Here on SQLite, now and then; every time on Cassandra, in
`tests/cassandra`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sweep_tasks.cli.spark_engine import SparkEngine
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.errors import ProgramMissing
from sweep_tasks.scenario.runner import mark_for_scenarios, run_scenario
from tests.scenarios.script import load
from tests.scenarios.test_scenarios import FILES, check, script_of
from tests.support.command import sweepflow, sweepflow_process


@pytest.mark.long
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_operation_on_spark_has_the_expected_outcome(path: Path, spark: SparkSession, sqlite_url: str) -> None:
    script = load(path)
    settings = Settings(store=sqlite_url)
    with open_store(sqlite_url, settings) as store:
        mark_for_scenarios(store)
        check(script, list(run_scenario(script.operations, store, settings, SparkEngine(spark, settings))))


def test_the_command_sweeps_on_spark_without_a_store_being_named() -> None:
    script = script_of("conservative_keeps_the_newest_and_leaves_a_sentinel")
    operations = "".join(f"{line}\n" for line in script.operations)
    answer = sweepflow_process("scenario", "run", "-", "--engine", "spark", stdin=operations.encode())
    check(script, [json.loads(line) for line in answer.out.splitlines()])


def test_without_java_the_command_fails_and_does_nothing(tmp_path: Path) -> None:
    answer = sweepflow("scenario", "run", "-", "--engine", "spark", stdin=b'{"op":"commits"}\n', PATH=str(tmp_path))
    assert (answer.code, answer.out) == (4, "")
    assert isinstance(answer.error, ProgramMissing)
    assert answer.error.reason == "missing"
    assert answer.err
