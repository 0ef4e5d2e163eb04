"""What the log reports about a scan that others work on."""

from __future__ import annotations

from structlog.testing import capture_logs

from sweep_tasks.legacy.progress import ScanLog
from sweep_tasks.legacy.resumption import Watched
from sweep_tasks.logs import JOURNAL_LINE
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore, fail
from sweep_tasks.sweep.horizon import Horizon
from tests.support.clock import ManualClock
from tests.unit.legacy.scan_fixture import ROWS, S, begin, filled


def test_the_progress_is_reported_as_numbers_only(store: Store, clock: ManualClock) -> None:
    filled(store)
    legacy, order = begin(store, clock, batch=7)
    run = legacy.start(order, Horizon(S, clock.now_ms()))
    watching = ScanLog(store, run, dry_run=False)
    with capture_logs() as lines:
        watching.log_progress(tasks=2)
        legacy.work(run, order, lambda ledger: Watched(ledger, lambda *_: watching.log_progress()))
    lines = [line for line in lines if line.get("code") != JOURNAL_LINE]
    assert {name: value for name, value in lines[0].items() if name != "event"} == {
        "log_level": "info", "done": "0%", "ranges_done": 0, "ranges": 4, "cells": 0,
        "versions": 0, "deleted": 0, "tasks": 2,
    }  # fmt: skip
    shares = [int(line["done"].rstrip("%")) for line in lines]
    assert shares == sorted(shares)
    assert (shares[-1], lines[-1]["cells"], lines[-1]["deleted"]) == (100, ROWS, 2 * ROWS)
    assert "row-0" not in str(lines), "rows are never reported"


def test_a_store_that_is_too_busy_to_report_progress_does_not_end_the_scan(store: Store, clock: ManualClock) -> None:
    filled(store)
    legacy, order = begin(store, clock)
    run = legacy.start(order, Horizon(S, clock.now_ms()))
    with capture_logs() as lines:
        ScanLog(FaultyStore(store, before=fail), run, dry_run=False).log_progress()
        ScanLog(store, run, dry_run=True).log_progress(tasks=3)
    assert (lines[0]["log_level"], lines[0]["code"]) == ("info", "unavailable")
    assert "ranges_done" not in lines[0]
    assert (lines[1]["dry_run"], lines[1]["tasks"]) == (True, 3)
