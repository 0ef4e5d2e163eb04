"""The demo's workload holds everything that it is meant to show, and is the same each time."""

from __future__ import annotations

from typing import Any

import pytest

from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.leases import Leases
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.demo.history import MINUTE_MS
from sweep_tasks.demo.workload import (
    AUDIT,
    BACKUP_ID,
    CARTS,
    INVOICES,
    MINUTES,
    ORDERS,
    PRICE_LIST,
    PRICES,
    SESSIONS,
    STOCK,
    TABLES,
    load,
)
from sweep_tasks.errors import BadValue
from sweep_tasks.model import SweepStrategy
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import State
from sweep_tasks.queue.encoding import SHARED_WRITES, read_cells_row
from sweep_tasks.store.contract import Store, every
from sweep_tasks.store.schema import CLOCK_SAMPLES, JOURNAL_HEAD, LEASES, QUEUE_CELLS, SYSTEM_TABLES
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.order import SweepOrder
from sweep_tasks.tables.catalog import Catalog
from tests.unit.demo.conftest import NOW_MS, SETTINGS, Day, lived_through, outcomes, versions

ABORTED = -1


def queued_starts(store: Store) -> set[int]:
    found = every(lambda after: store.scan_versions(QUEUE_CELLS, limit=10_000, after=after))
    return {ts for _, ts, _ in found}


def everything(store: Store) -> dict[str, Any]:
    """Leases and entries of the journal name the process that they come from."""
    tables = store.tables()
    cells = {table for table in tables if not table.is_system} | {QUEUE_CELLS}
    registers = [table for table in SYSTEM_TABLES if table not in (*cells, LEASES, JOURNAL_HEAD)]
    return {str(table): store.scan(table, 2**62, limit=10**6).items for table in cells} | {
        str(table): store.scan_registers(table, 10**6).items
        for table in registers
        if tables[table].layout == "registers"
    }


def horizon(day: Day, strategy: SweepStrategy) -> Horizon:
    return SweepOrder(strategy, 0).horizon(day.store, SETTINGS, day.clock)


def test_the_store_is_determined_by_the_seed() -> None:
    stores = [lived_through(seed) for seed in (1, 1, 2)]
    first, again, other = (everything(each.store) for each in stores)
    for each in stores:
        each.loaded.report.close()
    assert first == again
    assert first["shop.orders"] != other["shop.orders"]


def test_a_store_that_holds_a_shop_is_not_filled_again(day: Day) -> None:
    with pytest.raises(BadValue) as refused:
        load(day.store, SETTINGS, day.clock, shards=2)
    assert refused.value.field == "store"


def test_tables_of_every_strategy_and_one_that_keeps_longer(day: Day) -> None:
    tables = Catalog(day.store).list()
    assert tables.keys() == TABLES.keys()
    assert {table.strategy for table in tables.values()} == set(SweepStrategy)
    assert [table for table, found in tables.items() if found.own_threshold] == [INVOICES]


def test_cells_are_overwritten_over_and_over(day: Day) -> None:
    for table, times in ((ORDERS, 1.5), (STOCK, 50), (PRICES, 5), (INVOICES, 2), (CARTS, 2), (SESSIONS, 2)):
        counted = Catalog(day.store).count(table)
        assert counted.versions >= times * counted.cells, table
    assert Catalog(day.store).count(AUDIT).versions == Catalog(day.store).count(AUDIT).cells > 0


def test_cells_are_deleted_in_conservative_and_thorough_tables(day: Day) -> None:
    for table in (ORDERS, CARTS, SESSIONS):
        assert any(empty for _, _, empty in versions(day.store, table)), table


def test_some_transactions_were_aborted_and_left_values_and_some_left_none(day: Day) -> None:
    ended = outcomes(day.store)
    stored = {ts for table in TABLES for _, ts, _ in versions(day.store, table)}
    aborted = {start for start, commit in ended.items() if commit == ABORTED}
    assert len(aborted & stored) > 5
    assert len(aborted - stored) >= day.loaded.lost_races > 5


def test_some_transactions_never_finished_with_values_or_with_entries_alone(day: Day) -> None:
    ended = outcomes(day.store)
    stored = {ts for table in TABLES for _, ts, _ in versions(day.store, table)}
    unfinished = queued_starts(day.store) - ended.keys()
    assert len(unfinished & stored) > 5
    assert len(unfinished - stored) > 5


def test_large_transactions_fill_dedicated_rows(day: Day) -> None:
    rows = {cell.row for cell, _, _ in versions(day.store, QUEUE_CELLS)}
    assert PRICE_LIST > SHARED_WRITES * 2
    assert sum(read_cells_row(row)[1].dedicated for row in rows) == 2 * 5


def test_the_queue_reaches_over_several_partitions_of_both_shards(day: Day) -> None:
    found = [read_cells_row(cell.row) for cell, _, _ in versions(day.store, QUEUE_CELLS)]
    for strategy in (SweepStrategy.CONSERVATIVE, SweepStrategy.THOROUGH):
        for shard in (0, 1):
            ours = {at for at, row in found if (row.strategy, row.shard) == (strategy, shard) and not row.dedicated}
            assert len(ours) > 5


def test_clock_samples_cover_six_hours_with_one_each_minute(day: Day) -> None:
    clock_history = ClockHistory(day.store)
    moments = [clock_history.timestamp_at(NOW_MS - ago * MINUTE_MS) for ago in range(MINUTES + 1)]
    assert None not in moments
    assert len(set(moments)) == MINUTES + 1
    assert clock_history.timestamp_at(NOW_MS - MINUTES * MINUTE_MS - 1) is None
    last = clock_history.last()
    assert last is not None
    assert last.wall_ms == NOW_MS
    assert day.store.read_rows(CLOCK_SAMPLES, [b"days"])


def test_an_open_transaction_holds_the_thorough_sweep_back_and_not_the_conservative_one(day: Day) -> None:
    forty_minutes_ago = ClockHistory(day.store).moment_of(day.loaded.report.lease_ts)
    assert forty_minutes_ago == NOW_MS - 40 * MINUTE_MS
    assert horizon(day, SweepStrategy.THOROUGH).sweep_ts == day.loaded.report.lease_ts
    assert horizon(day, SweepStrategy.CONSERVATIVE).sweep_ts < day.loaded.report.lease_ts


def test_the_open_transaction_is_the_only_one_and_ends_when_it_is_closed() -> None:
    day = lived_through()
    leases = Leases(day.store, SETTINGS.lease_ttl_s)
    assert [lease.ts for lease in leases.open()] == [day.loaded.report.lease_ts]
    day.loaded.report.close()
    assert leases.open() == []
    assert horizon(day, SweepStrategy.THOROUGH).sweep_ts > day.loaded.report.start


def test_a_transaction_that_committed_late_blocks_the_conservative_sweep(day: Day) -> None:
    sweep_ts = horizon(day, SweepStrategy.CONSERVATIVE).sweep_ts
    late = [start for start, commit in outcomes(day.store).items() if start < sweep_ts <= commit]
    assert len(late) == 1


def test_one_timestamp_is_protected(day: Day) -> None:
    record = ProtectionCatalog(day.store).get(BACKUP_ID)
    assert record.state is State.ACCEPTED
    assert record.ts == day.loaded.backup_ts
    assert ClockHistory(day.store).moment_of(record.ts) == NOW_MS - 240 * MINUTE_MS
    assert {table for table in day.store.tables() if record.covers_table(table)} == {ORDERS, CARTS}


def test_no_timestamp_of_the_history_is_handed_out_again(day: Day) -> None:
    greatest = max(max(queued_starts(day.store)), max(outcomes(day.store).values()))
    assert TimestampService(day.store).fresh() > greatest
