"""Every scenario answers on Cassandra as it does on the other stores: swept by Spark every time, in process now and
then."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sweep_tasks.cli.spark_engine import SparkEngine
from sweep_tasks.scenario.runner import mark_for_scenarios, run_scenario
from sweep_tasks.store.cassandra.store import CassandraStore
from tests.cassandra.places import Place
from tests.scenarios.script import load
from tests.scenarios.test_scenarios import FILES, check


@pytest.mark.long
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_operation_on_cassandra_has_the_expected_outcome(
    path: Path, cassandra: CassandraStore, place: Place
) -> None:
    script = load(path)
    mark_for_scenarios(cassandra)
    check(script, list(run_scenario(script.operations, cassandra, place.settings)))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_operation_on_cassandra_and_spark_has_the_expected_outcome(
    path: Path, cassandra: CassandraStore, place: Place, spark: SparkSession
) -> None:
    script = load(path)
    mark_for_scenarios(cassandra)
    engine = SparkEngine(spark, place.settings)
    check(script, list(run_scenario(script.operations, cassandra, place.settings, engine)))
