"""Tables that change their strategy, also to nothing and back, while writers, sweeps and scans run.

In the end only tables are scanned that have a scan recorded as due. Anything else that is left then was forgotten by a
change. Time passes slowly, so that no process loses a lease and continues afterwards: a writer without queue entries
that comes later than that is found by the next scan, whenever it runs. Sweeps do not stop for the same reason, scans
do.
"""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import Cell, SweepStrategy, TableRef
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.tables.catalog import Catalog
from tests.properties.scan_machine import Scanning
from tests.properties.sweep_machine import TABLES, SweptStore, cells, tables, up_to


class Changing(Scanning):
    protects = False

    @rule(
        table=tables,
        strategy=st.sampled_from(SweepStrategy),
        brink=up_to("update", "alter_table", "alter_table#2"),
    )
    def change_strategy(self, table: TableRef, strategy: SweepStrategy, brink: str | None) -> None:
        self._start(lambda store: Catalog(store).set_strategy(table, strategy), brink)

    @rule(strategies=st.sampled_from([QUEUES[:1], QUEUES[1:], QUEUES]), back=st.sampled_from([0, 0, 1, 3]))
    def sweep(self, strategies: Collection[SweepStrategy], back: int) -> None:
        self._start(lambda store: self._sweep(store, strategies, 1_000, back), None)

    @rule()
    def advance_time(self) -> None:
        self.clock.advance(0.1)
        ClockHistory(self.shared).record_now(TimestampService(self.shared), self.clock, 900)

    @precondition(lambda self: self.running)
    @rule(who=st.integers(0, 3))
    def crash(self, who: int) -> None:
        process = self.running[who % len(self.running)]
        if process.next_call:
            process.crash_here()
        self._sort_out()

    def _release_and_sweep_everything(self) -> None:
        for table in TABLES:
            if self.shared.tables()[table].strategy is SweepStrategy.NOTHING:
                Catalog(self.shared).set_strategy(table, SweepStrategy.THOROUGH)
        super()._release_and_sweep_everything()

    def sweep_all(self) -> None:
        SweptStore.sweep_all(self)
        for table in TABLES:
            if Catalog(self.shared).date_scan(table).scan_due:
                self._scan(self.shared, table, 1_000)

    def _check_nothing_is_left_over(self) -> None:
        super()._check_nothing_is_left_over()
        for table in TABLES:
            assert self.shared.tables()[table].scan_due is None, f"the scan of {table} is due forever"

    administrate = protect = release_or_move = write_unannounced = fault = None  # type: ignore[assignment]
    older_than_the_queue = check_the_immutable_timestamp = None  # type: ignore[assignment]
    toggle_replica = None  # type: ignore[assignment]


class ChangingAlone(Changing):
    """Changes and scans one after the other. Some scans stop below the timestamp that a change requires."""

    steps = 10

    @rule(table=tables, cell=cells, strategy=st.sampled_from(QUEUES))
    def change_strategy(self, table: TableRef, cell: Cell, strategy: SweepStrategy) -> None:
        """From nothing: what was written by then is in no queue."""
        super().change_strategy(table, SweepStrategy.NOTHING, None)
        self.history(table, cell, None, False)
        super().change_strategy(table, strategy, None)

    @rule(table=tables, back=st.sampled_from([0, 3, 6, 12]))
    def scan(self, table: TableRef, back: int) -> None:
        super().scan(table, 1_000, back, False, None)

    write = read = step = go_on = crash = pause_or_resume = None  # type: ignore[assignment]
