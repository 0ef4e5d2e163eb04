"""What a log says of a scan that others work on."""

from __future__ import annotations

from structlog.testing import capture_logs

from sweep_tasks.legacy.taking_up import Watched
from sweep_tasks.legacy.watching import ScanLog
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore, fail
from sweep_tasks.sweep.horizon import Horizon
from tests.support.clock import ManualClock
from tests.unit.legacy.scanned import ROWS, S, begin, filled


def test_how_far_it_is_in_numbers_alone(store: Store, clock: ManualClock) -> None:
    filled(store)
    legacy, order = begin(store, clock, batch=7)
    run = legacy.start(order, Horizon(S, clock.now_ms()))
    watching = ScanLog(store, run, dry_run=False)
    with capture_logs() as lines:
        watching.say(tasks=2)
        legacy.work(run, order, lambda ledger: Watched(ledger, lambda *_: watching.say()))
    assert {name: value for name, value in lines[0].items() if name != "event"} == {
        "log_level": "info", "done": "0%", "ranges_done": 0, "ranges": 4, "cells": 0,
        "versions": 0, "deleted": 0, "tasks": 2,
    }  # fmt: skip
    shares = [int(line["done"].rstrip("%")) for line in lines]
    assert shares == sorted(shares)
    assert (shares[-1], lines[-1]["cells"], lines[-1]["deleted"]) == (100, ROWS, 2 * ROWS)
    assert "row-0" not in str(lines), "no row is ever told"


def test_a_store_that_has_no_time_for_who_watches_does_not_end_the_scan(store: Store, clock: ManualClock) -> None:
    filled(store)
    legacy, order = begin(store, clock)
    run = legacy.start(order, Horizon(S, clock.now_ms()))
    with capture_logs() as lines:
        ScanLog(FaultyStore(store, before=fail), run, dry_run=False).say()
        ScanLog(store, run, dry_run=True).say(tasks=3)
    assert (lines[0]["log_level"], lines[0]["code"]) == ("info", "unavailable")
    assert "ranges_done" not in lines[0]
    assert (lines[1]["dry_run"], lines[1]["tasks"]) == (True, 3)
