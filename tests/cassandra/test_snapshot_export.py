"""An export of tables in Cassandra is what a reader saw, and increments add up."""

from __future__ import annotations

import random
from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs.orders import ExportOrder
from spark_jobs.snapshot_export import export
from sweep_tasks.protection.protecting import protect_during
from sweep_tasks.store.cassandra.store import CassandraStore
from tests.cassandra.places import Place
from tests.spark.shop import CARTS, NOTES, ORDERS, Shop, exported

TABLES = ("shop.*",)


def test_an_export_and_an_increment_on_cassandra_show_what_readers_saw(
    cassandra: CassandraStore, place: Place, spark: SparkSession, tmp_path: Path
) -> None:
    settings = place.settings.model_copy(update={"retention_s": 0})
    shop = Shop.opened(cassandra, settings)
    rng = random.Random(4)
    shop.write(rng, 15)
    with protect_during(cassandra, settings, TABLES) as ts:
        seen = shop.view(ts, [ORDERS, CARTS, NOTES])
        shop.write(rng, 10)
        assert shop.sweep() > 0
        assert shop.threshold(CARTS) > ts
        summary = export(ExportOrder(TABLES, ts, tmp_path / "full"), settings, lambda: spark)
    assert summary.puts == sum(map(len, seen.values())) > 0
    assert exported(spark, tmp_path / "full") == seen

    shop.sweep()
    with protect_during(cassandra, settings, TABLES) as later:
        export(ExportOrder(TABLES, later, tmp_path / "later", tmp_path / "full"), settings, lambda: spark)
        assert exported(spark, tmp_path / "later") == shop.view(later, [ORDERS, CARTS, NOTES]) != seen
    shop.manager.close()
