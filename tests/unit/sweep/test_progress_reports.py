"""The progress of a sweep is reported, with few log lines."""

from __future__ import annotations

from structlog.testing import capture_logs

from sweep_tasks.model import Cell
from sweep_tasks.store import Store
from sweep_tasks.sweep.summary import LogEvery, Reached
from tests.support.clock import ManualClock
from tests.unit.sweep.world import CONSERVATIVE, THOROUGH, World


def reached(progress: int, begin: int = -1, sweep_ts: int = 100) -> Reached:
    return Reached(THOROUGH, 0, "queue", begin, progress, sweep_ts, 5, 1)


def test_a_sweep_reports_its_phases_and_each_batch(store: Store, clock: ManualClock) -> None:
    world = World(store, clock)
    for start in range(10, 50, 2):
        world.write(start, start + 1, [Cell(b"%d" % start, b"c")])
    reported: list[Reached] = []
    world.sweep(100, batch=5, listener=reported.append)
    assert [each.phase for each in reported] == ["publish", "parked", "late", "queue", *["queue"] * 4]
    assert [each.entries for each in reported[-4:]] == [5, 10, 15, 20]
    assert {(each.strategy, each.shard) for each in reported} == {(CONSERVATIVE, 0)}
    shares = [each.share for each in reported[-4:]]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_the_share_is_relative_to_the_range_to_sweep() -> None:
    assert reached(progress=-1).share == 0
    assert reached(progress=49).share == 0.5
    assert reached(progress=99).share == 1
    assert reached(progress=60, begin=60, sweep_ts=50).share == 1, "nothing was to be swept"


def test_a_line_is_logged_every_few_seconds_however_often_progress_is_reported() -> None:
    now = 0.0
    log = LogEvery(5, lambda: now)
    with capture_logs() as lines:
        for second in range(13):
            now = second
            log(reached(progress=second))
    assert [(line["log_level"], line["progress"], line["phase"]) for line in lines] == [
        ("info", 5, "queue"), ("info", 10, "queue"),
    ]  # fmt: skip
