from __future__ import annotations

from typing import Any

from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.sweeping import readable
from sweep_tasks.sweep.summary import Summary
from tests.support.lines import values_in


def summary(engine: str = "spark", **given: Any) -> Summary:
    return Summary(SweepStrategy.CONSERVATIVE, 3, 180_001, engine=engine, **given)


def test_a_summary_is_one_line_of_text() -> None:
    done = summary(
        entries=1_204,
        range_deletes=980,
        parked=12,
        progress_before=120_000,
        progress=180_000,
        seconds={"a": 10, "b": 4.2},
    )
    line = readable(done)
    assert line.startswith("conservative ")
    assert " ".join(values_in(line)) == "3 1 204 980 12 120 000 180 000 14.2"
    assert "12 parked" in line
    assert "\n" not in line


def test_a_shard_with_nothing_to_do_says_that_no_spark_was_needed() -> None:
    idle, by_spark = readable(summary("idle", progress=7)), readable(summary(progress=7))
    assert values_in(idle) == values_in(by_spark) == ["3", "0", "0", "-1", "7", "0.0"]
    assert idle.startswith(by_spark)
    assert ("Spark" in idle, "Spark" in by_spark) == (True, False)


def test_a_sweep_that_was_cut_short_or_changed_nothing_says_so() -> None:
    plain, dry = readable(summary()), readable(summary(dry_run=True))
    added = dry.removeprefix(plain)
    assert added not in ("", dry)
    cut_short = {limit: readable(summary(stopped=limit)) for limit in ("entries", "seconds", "tombstones")}
    for limit, line in cut_short.items():
        assert line.startswith(plain)
        assert limit in line.removeprefix(plain)
        assert readable(summary(stopped=limit, dry_run=True)) == line + added
    others = [readable(summary(stopped=why)) for why in ("blocked", "paused")]
    assert len({plain, *cut_short.values(), *others}) == 6
