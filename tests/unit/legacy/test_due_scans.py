"""Whether a scan does what a change of strategy has left: cases, no store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep_tasks.legacy.progress import Undone, short_of
from sweep_tasks.model import SweepStrategy, TableMetadata

CONSERVATIVE, THOROUGH, NOTHING = SweepStrategy
SINCE = 100


def changed(*way: SweepStrategy, since: int | None = SINCE) -> TableMetadata:
    first, *others = way
    table = TableMetadata(first)
    for strategy in others:
        table = table.with_strategy(strategy)
    assert table.scan_due
    return replace(table, scan_due=table.scan_due._replace(since=since))


MARKERS = changed(CONSERVATIVE, THOROUGH)
UNQUEUED = changed(NOTHING, CONSERVATIVE)


@pytest.mark.parametrize(
    ("table", "sweep_ts", "passed", "parked", "lacks"),
    [
        (TableMetadata(), 0, 0, True, None),
        (UNQUEUED, SINCE - 1, 999, False, Undone.REACH),
        (UNQUEUED, SINCE, 0, True, None),
        (changed(NOTHING, CONSERVATIVE, since=None), 999, 999, False, Undone.REACH),
        (MARKERS, SINCE - 1, 999, False, Undone.REACH),
        (MARKERS, SINCE, SINCE - 1, False, Undone.QUEUE),
        (MARKERS, SINCE, SINCE, True, Undone.PARKED),
        (MARKERS, SINCE, SINCE, False, None),
        (changed(CONSERVATIVE, NOTHING, THOROUGH), SINCE, SINCE - 1, False, Undone.QUEUE),
    ],
    ids=[
        "nothing-is-due", "it-goes-less-far", "no-sentinels-to-wait-for", "not-dated-yet", "sentinels-and-less-far",
        "the-queue-is-behind", "some-are-parked", "nothing-in-the-way", "conservative-before-it-was-swept-by-nothing",
    ],
)  # fmt: skip
def test_what_a_scan_still_lacks(
    table: TableMetadata, sweep_ts: int, passed: int, parked: bool, lacks: Undone | None
) -> None:
    assert short_of(table, sweep_ts, passed, parked) is lacks


def test_every_reason_has_a_sentence() -> None:
    assert len({why.sentence for why in Undone}) == len(Undone)
