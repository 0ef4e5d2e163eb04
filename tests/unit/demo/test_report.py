"""The report matches the store, and the sweep that it describes removed nothing that a reader may see."""

from __future__ import annotations

import io
import json

from rich.console import Console

from sweep_tasks.demo.measure import KeptReason
from sweep_tasks.demo.report import DemoReport, render
from sweep_tasks.demo.workload import CARTS, ORDERS, TABLES
from sweep_tasks.model import MAX_TS, SENTINEL_TS, SweepStrategy
from sweep_tasks.queue.writer import shard_of
from sweep_tasks.store.schema import PARKED, QUEUE_CELLS
from sweep_tasks.transactions import TransactionManager
from tests.unit.demo.conftest import SETTINGS, Swept, versions, visible


def by_reason(swept: Swept) -> dict[str, int]:
    counted: dict[str, int] = {}
    for each in swept.report["kept"]:
        counted[each["reason"]] = counted.get(each["reason"], 0) + each["versions"]
    return counted


def test_what_readers_of_today_see_is_what_they_saw_before(swept: Swept) -> None:
    assert visible(swept.day.store, MAX_TS) == swept.visible_now
    with TransactionManager(swept.day.store, SETTINGS, clock=swept.day.clock, renew_leases=False) as manager:
        now = manager.read_at(manager.timestamps.fresh())
        assert {table: dict(now.scan(table)) for table in TABLES} == swept.visible_now


def test_what_was_protected_reads_as_it_did(swept: Swept) -> None:
    with TransactionManager(swept.day.store, SETTINGS, clock=swept.day.clock, renew_leases=False) as manager:
        then = manager.read_at(swept.day.loaded.backup_ts)
        for table in (ORDERS, CARTS):
            assert dict(then.scan(table)) == swept.visible_at_backup[table]
            assert swept.visible_at_backup[table] != swept.visible_now[table]


def test_stored_versions_are_counted(swept: Swept) -> None:
    counted = {str(table): len(versions(swept.day.store, table)) for table in TABLES}
    assert swept.report["after"]["versions_by_table"] == counted
    assert swept.report["after"]["versions"] == sum(counted.values())
    assert swept.report["before"]["versions"] > 2 * sum(counted.values())
    cells = {(table, cell) for table in TABLES for cell, _, _ in versions(swept.day.store, table)}
    assert swept.report["after"]["cells"] == len(cells)


def test_what_a_shard_removed_is_what_is_missing_from_it(swept: Swept) -> None:
    for shard in swept.report["shards"]:
        left = sum(
            ts != SENTINEL_TS and shard_of(table, cell, 2) == shard["shard"]
            for table, metadata in TABLES.items()
            if metadata.strategy == shard["strategy"]
            for cell, ts, _ in versions(swept.day.store, table)
        )
        queue = SweepStrategy(shard["strategy"]), shard["shard"]
        assert shard["removed"] == swept.before.by_shard[queue] - left > 1_000
    assert len(swept.report["shards"]) == 4


def test_queued_and_parked_entries_are_counted(swept: Swept) -> None:
    entries, parked = (len(swept.day.store.scan(table, MAX_TS, limit=10**6).items) for table in (QUEUE_CELLS, PARKED))
    assert swept.report["after"]["queue_entries"] == entries
    assert swept.report["after"]["parked"] == parked == sum(shard["parked"] for shard in swept.report["shards"])
    assert swept.report["before"]["queue_entries"] > 4 * entries


def test_every_version_that_is_left_is_kept_for_one_reason(swept: Swept) -> None:
    counted = by_reason(swept)
    assert sum(counted.values()) == swept.report["after"]["versions"]
    sentinels = sum(ts == SENTINEL_TS for table in TABLES for _, ts, _ in versions(swept.day.store, table))
    assert counted[KeptReason.SENTINEL] == sentinels
    assert counted[KeptReason.NEWEST] >= sum(map(len, swept.visible_now.values()))
    assert KeptReason.NO_QUEUE_ENTRY not in counted
    assert KeptReason.QUEUED not in counted


def test_everything_that_holds_something_back_is_named(swept: Swept) -> None:
    output = {(each["reason"], each["by"]) for each in swept.report["kept"]}
    for each in (
        ("protected", "backup:shop-nightly"),
        ("retention", None),
        ("retention", "shop.invoices"),
    ):
        assert each in output
    (open_one,) = [by for reason, by in output if reason == "open_transaction"]
    assert open_one.split()[-1] == str(swept.day.loaded.report.lease_ts)
    blocked = [shard for shard in swept.report["shards"] if shard["stopped"] == "blocked"]
    assert len(blocked) == 1
    assert ("blocked", str(blocked[0]["progress"] + 1)) in output


def test_the_progress_of_each_shard_is_shown_as_wall_time(swept: Swept) -> None:
    lags = {(shard["strategy"], shard["stopped"]): shard["lag_s"] // 60 for shard in swept.report["shards"]}
    assert lags == {("conservative", None): 60, ("conservative", "blocked"): 75, ("thorough", None): 40}


def test_the_document_is_json(swept: Swept) -> None:
    assert json.loads(json.dumps(swept.report)) == swept.report


def test_the_text_report_has_every_figure_in_a_hundred_columns(swept: Swept) -> None:
    out = Console(width=100, file=io.StringIO(), record=True)
    out.print(render(DemoReport.model_validate(swept.report)))
    text = out.export_text()
    assert "…" not in text
    for shard in swept.report["shards"]:
        assert f"{shard['entries']:,}" in text
        assert f"{shard['removed']:,}" in text
    for each in swept.report["kept"]:
        assert each["says"] in text
