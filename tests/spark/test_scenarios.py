"""Every scenario answers on Spark as it does in process."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sweep_tasks.cli.spark_engine import SparkEngine
from sweep_tasks.config import Settings
from sweep_tasks.scenario.runner import run_scenario
from sweep_tasks.store import open_store
from tests.scenarios.script import load
from tests.scenarios.test_scenarios import FILES, check


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_operation_answers_on_spark_as_the_file_says(path: Path, spark: SparkSession, sqlite_url: str) -> None:
    script = load(path)
    settings = Settings(store=sqlite_url)
    with open_store(sqlite_url, settings) as store:
        check(script, list(run_scenario(script.operations, store, settings, SparkEngine(spark, settings))))
