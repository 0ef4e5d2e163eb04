"""What a sweep does with its queue on real stores: huge transactions, unreadable entries, and late ones."""

from __future__ import annotations

import pytest

import sweep_tasks.queue.writer as writer_module
import sweep_tasks.sweep.work as work_module
from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory, ClockSample
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.encoding import sized
from sweep_tasks.errors import BadValue
from sweep_tasks.model import Cell, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.encoding import dedicated_rows, read_write, shared_row, write_bytes
from sweep_tasks.queue.parking import Quarantine
from sweep_tasks.store.faults import FaultyStore, HookAnswer, StoreCall
from sweep_tasks.store.schema import QUEUE_CELLS
from sweep_tasks.sweep.run import Retried, retry_quarantined
from sweep_tasks.transactions.outcomes import ABORTED, CommitTable
from tests.unit.queue.recording import Recorder
from tests.unit.sweep.world import (
    CONSERVATIVE,
    TABLE,
    A,
    World,
    outcome,
    sweep,
)

FINE = 50_000
HOUR_S = 3_600
SETTINGS = Settings()
MANY = [Cell(b"many", b"%03d" % number) for number in range(60)]


class TestLargeTransactions:
    def test_sixty_writes(self, world: World) -> None:
        for start in (10, 20):
            world.write(start, start + 1, MANY)
        summary = world.sweep(FINE)
        assert (summary.entries, summary.range_deletes) == (120, 60)
        assert all(world.versions(cell) == [-1, 20] for cell in MANY)
        assert world.queue_is_empty()

    @pytest.mark.parametrize("batch", [7, 20, 1_000])
    def test_several_dedicated_rows(self, world: World, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer_module, "DEDICATED_WRITES", 20)
        for start in (10, 20):
            world.write(start, start + 1, MANY)
        world.write(15, None, MANY[:55])
        summary = world.sweep(FINE, batch=batch)
        assert (summary.entries, summary.range_deletes, summary.aborted_deletes) == (175, 60, 55)
        assert all(world.versions(cell) == [-1, 20] for cell in MANY)
        assert world.queue_is_empty()

    def test_dedicated_rows_of_an_aborted_transaction_are_removed_as_well(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writer_module, "DEDICATED_WRITES", 20)
        world.write(10, ABORTED, MANY)
        world.sweep(11)
        rows = {cell.row for cell, _, _ in world.store.scan_versions(QUEUE_CELLS).items}
        assert rows.isdisjoint(dedicated_rows(10, CONSERVATIVE, 0, 3))

    def test_progress_waits_below_a_large_transaction_that_is_blocked(self, world: World) -> None:
        world.write(5, 6, MANY)
        world.write(10, 150, MANY)
        summary = world.sweep(100, batch=25)
        assert (summary.progress, summary.blocked) == (9, 60)
        assert all(world.versions(cell) == [-1, 5, 10] for cell in MANY)


def problem_of(value: bytes) -> str:
    with pytest.raises(BadValue) as unreadable:
        read_write(value)
    return str(unreadable.value)


class TestUnreadableEntries:
    def quarantined(self, world: World) -> list[tuple[bytes, str]]:
        """Each value and the reason why it is quarantined."""
        return [(entry.value, entry.reason) for entry in Quarantine(world.store, TimestampService(world.store)).all()]

    def test_it_is_quarantined_with_the_reason_and_the_shard_continues(self, world: World) -> None:
        world.write(10, 11)
        garbled, unknown_id = [b"", b"\x02what", b"{}"], write_bytes(77, A, False)
        for index, value in enumerate([*garbled, unknown_id]):
            world.enter(20, value, index)
        row = shared_row(0, CONSERVATIVE, 0)
        world.store.put(20, {QUEUE_CELLS: {Cell(row, b"\x15"): b"?"}})
        nowhere = b"\x00" + sized(b"app.nowhere") + sized(b"r") + sized(b"c") + b"\x00"
        world.enter(30, nowhere)
        world.write(40, 41)
        summary = world.sweep(FINE)
        assert (summary.quarantined, summary.entries, summary.progress) == (6, 2, FINE - 1)
        reasons = dict(self.quarantined(world))
        assert set(reasons) == {*garbled, unknown_id, b"?", nowhere}
        assert {value: reasons[value] for value in garbled} == {value: problem_of(value) for value in garbled}
        assert reasons[b"?"].startswith("column:")
        assert (reasons[unknown_id].startswith("table:"), "77" in reasons[unknown_id]) == (True, True)
        assert (reasons[nowhere].startswith("table:"), "app.nowhere" in reasons[nowhere]) == (True, True)
        assert world.versions() == [-1, 40]
        assert world.queue_is_empty()

    def test_its_transaction_is_settled_like_any_other(self, world: World) -> None:
        world.write(10, None)
        world.enter(10, b"\x02", 1)
        world.sweep(100)
        assert outcome(world, 10) == ABORTED

    def test_it_is_quarantined_before_its_row_is_cleaned(self, world: World) -> None:
        world.write(10, 11)
        world.enter(20, b"\x02")
        recorder = Recorder(world.store)
        sweep(recorder.store, world.clock, FINE)
        assert recorder.steps.index(("put", "sweep.quarantine")) < recorder.steps.index(
            ("delete_rows", str(QUEUE_CELLS))
        )

    def test_above_a_block_it_waits_with_the_rest(self, world: World) -> None:
        world.write(10, 150)
        world.enter(20, b"\x02")
        CommitTable(world.store).decide(20, 21)
        assert world.sweep(100).quarantined == 0
        assert world.sweep(FINE).quarantined == 1
        assert world.queue_is_empty()

    def test_a_retry_judges_it_once_the_cause_is_fixed(self, world: World) -> None:
        restored = TableRef.parse("app.restored")
        world.write(10, 11)
        for start in (20, 30):
            world.enter(start, b"\x00" + sized(b"app.restored") + sized(A.row) + sized(A.column) + b"\x00")
            CommitTable(world.store).decide(start, start + 1)
        world.enter(40, b"\x02")
        world.sweep(FINE)
        assert len(self.quarantined(world)) == 3
        assert retry_quarantined(world.store, SETTINGS, world.clock) == Retried(0, 3)
        world.store.create_table(restored, TableMetadata())
        for start in (15, 20, 30):
            world.store.put(start, {restored: {A: b"v"}})
        assert retry_quarantined(world.store, SETTINGS, world.clock) == Retried(2, 1)
        assert world.versions(A, restored) == [-1, 30]
        assert self.quarantined(world) == [(b"\x02", problem_of(b"\x02"))]

    def test_a_retry_honours_protections(self, world: World) -> None:
        restored = TableRef.parse("app.restored")
        world.write(10, 11)
        world.enter(30, b"\x00" + sized(b"app.restored") + sized(A.row) + sized(A.column) + b"\x00")
        CommitTable(world.store).decide(30, 31)
        everything = Record("a", 20, Mode.AT, (Target.parse("app.*"),))
        assert ProtectionCatalog(world.store).protect(everything).accepted
        world.sweep(100)
        world.store.create_table(restored, TableMetadata())
        for start in (15, 30):
            world.store.put(start, {restored: {A: b"v"}})
        assert retry_quarantined(world.store, SETTINGS, world.clock) == Retried(1, 0)
        assert world.versions(A, restored) == [15, 30]
        assert [entry.hold.record for entry in world.parked()] == ["a"]

    def test_with_nothing_quarantined_a_retry_does_nothing(self, world: World) -> None:
        before = world.state()
        assert retry_quarantined(world.store, SETTINGS, world.clock) == Retried(0, 0)
        assert world.state() == before

    def test_older_forms_are_swept_like_the_present_one(self, world: World) -> None:
        world.write(10, 11)
        world.enter(20, b"\x00" + sized(b"app.items") + sized(A.row) + sized(A.column) + b"\x00")
        world.enter(
            30,
            b'{"t":{"namespace":{"name":"app"},"tablename":"items"},"c":{"rowName":"cm93LWE=","columnName":"Y29s"},'
            b'"d":false}',
        )
        for start in (20, 30):
            world.store.put(start, {TABLE: {A: b"v"}})
            CommitTable(world.store).decide(start, start + 1)
        assert world.sweep(100).quarantined == 0
        assert world.versions() == [-1, 30]


def sampled(world: World, timestamps: dict[int, int]) -> None:
    """By second."""
    for second, ts in timestamps.items():
        ClockHistory(world.store).record(ClockSample(second * 1_000, ts))


class TestLateEntries:
    def test_an_entry_below_the_progress_is_found_and_cleaned(self, world: World) -> None:
        world.sweep(3 * FINE)
        world.write(FINE + 10, None)
        summary = world.sweep(3 * FINE)
        assert (summary.entries, summary.aborted_deletes) == (1, 1)
        assert outcome(world, FINE + 10) == ABORTED
        assert world.versions() == []
        assert world.queue_is_empty()

    def test_the_search_for_late_entries_is_bounded_by_the_grace_period(self, world: World) -> None:
        sampled(world, {0: 2 * FINE, 60: 4 * FINE - 1, 7_200: 9 * FINE})
        world.sweep(4 * FINE)
        world.write(FINE + 10, None)
        world.write(3 * FINE + 10, None)
        assert world.sweep(4 * FINE, grace_s=60).entries == 1
        assert world.versions() == [FINE + 10]

    def test_the_grace_period_ends_at_the_progress_and_not_at_present(self, world: World) -> None:
        """A conservative sweep stays an hour behind: back from now, an hour would not reach below its progress."""
        sampled(world, {hour * HOUR_S: hour * FINE // 2 for hour in range(1, 8)})
        world.sweep(5 * FINE // 2)
        for start in (FINE + 10, 2 * FINE + 10):
            world.write(start, None)
        assert world.sweep(5 * FINE // 2, grace_s=HOUR_S).entries == 2
        assert world.versions() == []

    def test_older_entries_of_the_current_partition_are_checked_when_it_is_complete(self, world: World) -> None:
        sampled(world, {0: 100, 60: 199})
        world.sweep(200)
        for start in (50, 150):
            world.write(start, None)
        assert world.sweep(300, grace_s=60).entries == 1
        assert (outcome(world, 50), outcome(world, 150)) == (None, ABORTED)
        assert world.sweep(FINE, grace_s=60).entries == 1
        assert outcome(world, 50) == ABORTED
        assert (world.versions(), world.queue_is_empty()) == ([], True)

    def test_what_earlier_sweeps_have_read_of_the_current_partition_is_not_read_again(self, world: World) -> None:
        for start in range(1, 100, 2):
            world.write(start, start + 1)
        world.sweep(200)
        sampled(world, {0: 190, 60: 195})
        read: list[int] = []

        def counted(call: StoreCall) -> HookAnswer | None:
            if call.name != "scan":
                return None
            page = call.perform(*call.arguments)
            read.append(len(page.items))
            return HookAnswer(page)

        sweep(FaultyStore(world.store, before=counted), world.clock, 300, grace_s=60)
        assert sum(read) == 1, "the mark of the partition, and none of its entries"

    def test_where_much_is_written_a_check_reads_little_and_the_rest_is_found_when_the_partition_is_complete(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(work_module, "_LATE_ENTRIES", 20)
        for start in range(1, 100, 2):
            world.write(start, start + 1)
        world.sweep(200)
        for start in (10, 90):
            world.write(start, None)
        assert world.sweep(300).entries == 2, "the first was found, so all were checked"
        world.write(92, None)
        assert (world.sweep(400).entries, outcome(world, 92)) == (0, None)
        assert (world.sweep(FINE).entries, outcome(world, 92)) == (1, ABORTED)
        assert world.queue_is_empty()
