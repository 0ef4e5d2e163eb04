"""`sweepflow demo` with real Spark jobs gives the report that the sweep in process gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import sweepflow

pytestmark = pytest.mark.timeout(900)


def test_spark_sweeps_the_demo_like_the_in_process_sweep(tmp_path: Path) -> None:
    by_spark, here = (
        sweepflow("demo", "--engine", engine, "--shards", "1", "--json", cwd=tmp_path) for engine in ("spark", "local")
    )
    assert by_spark.code == 0, by_spark.err
    assert [shard["engine"] for shard in by_spark.document["shards"]] == ["spark", "spark"]
    for name in ("strategy", "shard", "entries", "stopped", "quarantined"):
        assert [shard[name] for shard in by_spark.document["shards"]] == [
            shard[name] for shard in here.document["shards"]
        ]
    thorough = [answer.document["after"]["versions_by_table"]["shop.sessions"] for answer in (by_spark, here)]
    assert thorough[0] == thorough[1]
    kept = {(each["reason"], each["by"]) for each in by_spark.document["kept"]}
    assert kept >= {("protected", "backup:shop-nightly"), ("retention", "shop.invoices"), ("sentinel", None)}
    assert {reason for reason, _ in kept} >= {"newest", "open_transaction", "blocked"}
