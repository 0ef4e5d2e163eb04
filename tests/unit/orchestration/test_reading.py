from __future__ import annotations

from typing import Any

from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.reading import readable
from sweep_tasks.sweep.summary import Summary


def summary(engine: str = "spark", **given: Any) -> dict[str, Any]:
    return Summary(SweepStrategy.CONSERVATIVE, 3, 180_001, **given).document() | {"engine": engine}


def test_a_summary_is_one_line_for_people() -> None:
    done = summary(
        entries=1_204,
        range_deletes=980,
        parked=12,
        progress_before=120_000,
        progress=180_000,
        seconds={"a": 10, "b": 4.2},
    )
    assert readable(done) == (
        "conservative shard 3: 1 204 entries read, 980 cells swept, 12 parked, progress 120 000 → 180 000 in 14.2 s"
    )


def test_a_shard_with_nothing_to_do_says_that_no_spark_was_needed() -> None:
    assert readable(summary("idle", progress=7)) == (
        "conservative shard 3: 0 entries read, 0 cells swept, progress -1 → 7 in 0.0 s without Spark"
    )


def test_a_sweep_that_was_cut_short_or_changed_nothing_says_so() -> None:
    assert readable(summary(stopped="entries", dry_run=True)).endswith(
        "in 0.0 s; stopped at the limit of entries (a dry run: nothing was changed)"
    )
