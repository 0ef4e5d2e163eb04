"""Every scenario answers on Spark as it does in process. Here on SQLite, now and then; every time on Cassandra, in
`tests/cassandra`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sweep_tasks.cli.spark_engine import SparkEngine
from sweep_tasks.config import Settings
from sweep_tasks.opening import open_store
from sweep_tasks.scenario.runner import run_scenario
from tests.scenarios.script import load
from tests.scenarios.test_scenarios import COMMAND, FILES, check, script_of


@pytest.mark.long
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_operation_answers_on_spark_as_the_file_says(path: Path, spark: SparkSession, sqlite_url: str) -> None:
    script = load(path)
    settings = Settings(store=sqlite_url)
    with open_store(sqlite_url, settings) as store:
        check(script, list(run_scenario(script.operations, store, settings, SparkEngine(spark, settings))))


def run_on_spark(operations: list[str], path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, "scenario", "run", "-", "--engine", "spark"],
        input="".join(f"{line}\n" for line in operations),
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("SWEEPFLOW_")} | {"PATH": path},
        check=False,
    )


def test_the_command_sweeps_on_spark_without_a_store_being_named() -> None:
    script = script_of("conservative_keeps_the_newest_and_leaves_a_sentinel")
    ended = run_on_spark(script.operations, os.environ["PATH"])
    check(script, [json.loads(line) for line in ended.stdout.splitlines()])


def test_without_java_the_command_says_so_in_a_sentence_and_does_nothing(tmp_path: Path) -> None:
    ended = run_on_spark(['{"op":"commits"}'], str(tmp_path))
    assert (ended.returncode, ended.stdout) == (4, "")
    assert "install Java 17 or later" in ended.stderr
