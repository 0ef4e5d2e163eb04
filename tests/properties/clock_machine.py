"""Hosts whose clocks are ahead or behind sample and sweep beside one whose clock is right; wrong samples are discarded.

By the true clock, what was issued within the retention is never swept, except for one step, the difference that is
allowed between clocks.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from sweep_tasks.clock import Clock
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import SweepStrategy
from sweep_tasks.queue.progress import QUEUES
from sweep_tasks.store import Store
from sweep_tasks.sweep.run import Sweeper
from tests.properties.sweep_machine import SETTINGS, SweptStore, up_to, whose
from tests.support.simulation import SkewedClock

RETENTION_S, STEP_S = 50, 5
KEEPING = SETTINGS.model_copy(update={"retention_s": RETENTION_S, "clock_step_max_s": STEP_S})
AHEAD_S, BEHIND_S = 10_000, 60

hosts = st.sampled_from(["right", "right", "ahead"])
all_hosts = st.sampled_from(["right", "right", "ahead", "behind"])


class Skewed(SweptStore):
    steps = 30
    protects = False

    def __init__(self) -> None:
        super().__init__()
        self.clocks: dict[str, Clock] = {
            "right": SkewedClock(self.clock, 0, "right"),
            "ahead": SkewedClock(self.clock, AHEAD_S, "ahead"),
            "behind": SkewedClock(self.clock, -BEHIND_S, "behind"),
        }
        self.handed_out: list[tuple[int, int]] = []
        """By the true clock: the greatest timestamp."""

    def _sample(self, store: Store, host: str, step_max_s: int = STEP_S) -> None:
        ClockHistory(store).record_now(TimestampService(store), self.clocks[host], step_max_s)

    @initialize(host=hosts)
    def start_the_clock(self, host: str) -> None:
        self._sample(self.shared, host)

    @rule(seconds=st.sampled_from([1, 10, 35, 600]), host=st.sampled_from(["right", "ahead", "behind", None]))
    def advance_time(self, seconds: int, host: str | None) -> None:
        self.clock.advance(seconds)
        if host:
            self._sample(self.shared, host)

    def _sweep_on(self, store: Store, host: str) -> None:
        for _ in Sweeper(store, KEEPING, self.clocks[host]).sweep(QUEUES):
            pass

    @rule(host=all_hosts, brink=up_to("update#2", "put_if_absent", "read_rows", "scan"))
    def sweep(self, host: str, brink: str | None) -> None:
        self._start(lambda store: self._sweep_on(store, host), brink)

    def _discard(self, store: Store) -> None:
        if ClockHistory(store).discard(self.clock.now_ms()).samples:
            self._sample(store, "right", step_max_s=0)

    @rule(brink=up_to("compare_and_set", "remove", "update"))
    def discard(self, brink: str | None) -> None:
        self._start(self._discard, brink)

    @precondition(lambda self: self.running)
    @rule(who=whose)
    def go_on(self, who: int) -> None:
        super().go_on(who, None)

    @invariant()
    def by_the_true_clock_the_retention_is_kept(self) -> None:
        now_ms = self.clock.now_ms()
        self.handed_out.append((now_ms, TimestampService(self.shared).greatest()))
        old_ms = now_ms - (RETENTION_S - STEP_S) * 1000
        old_enough = max((ts for at_ms, ts in self.handed_out if at_ms <= old_ms), default=0)
        swept = Thresholds(self.shared).of_strategy(SweepStrategy.CONSERVATIVE)
        assert swept <= old_enough, f"swept up to {swept}, only {old_enough} is old enough"

    def teardown(self) -> None:
        while self.running:
            self.go_on(0)
        ClockHistory(self.shared).discard(self.clock.now_ms())
        self.clock.advance(1)
        ClockHistory(self.shared).record_now(TimestampService(self.shared), self.clock, step_max_s=0)
        super().teardown()

    write = read = administrate = protect = release_or_move = fault = step = None  # type: ignore[assignment]
    check_the_immutable_timestamp = toggle_replica = pause_or_resume = None  # type: ignore[assignment]
