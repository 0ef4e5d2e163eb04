"""Which clock samples are believed: the rules alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.clock import SystemClock, Uptime
from sweep_tasks.coordination.clock_samples import ClockRecord, Sample, SampleVerdict, believed_ms, confirm, cut, offer

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
STEP = 15 * MINUTE
NOW = 20_000 * DAY


def sample(wall_ms: int, host: str = "a", up_ms: int = 0, ts: int = 100) -> Sample:
    return Sample(wall_ms, ts, Uptime(f"boot of {host}", host, up_ms))


def recorded(*samples: Sample) -> ClockRecord:
    """All of them accepted, one after the other."""
    record: ClockRecord | None = None
    for each in samples:
        answer, record = offer(record, each, STEP)
        assert answer is SampleVerdict.ACCEPTED
    assert record
    return record


def answer_to(record: ClockRecord | None, given: Sample, step_ms: int = STEP) -> SampleVerdict:
    return offer(record, given, step_ms)[0]


class TestOffer:
    def test_the_first_sample_is_accepted_whatever_it_shows(self) -> None:
        assert answer_to(None, sample(NOW + 1_000 * DAY)) is SampleVerdict.ACCEPTED

    @pytest.mark.parametrize(
        ("later_ms", "answer"),
        [
            (1, SampleVerdict.ACCEPTED),
            (STEP, SampleVerdict.ACCEPTED),
            (STEP + 1, SampleVerdict.AHEAD),
            (DAY, SampleVerdict.AHEAD),
            (0, SampleVerdict.NOT_ABOVE),
            (-STEP, SampleVerdict.NOT_ABOVE),
            (-STEP - 1, SampleVerdict.BEHIND),
            (-DAY, SampleVerdict.BEHIND),
        ],
    )
    def test_another_host_may_be_a_step_above_the_last_sample(self, later_ms: int, answer: SampleVerdict) -> None:
        assert answer_to(recorded(sample(NOW)), sample(NOW + later_ms, "b")) is answer

    def test_a_pause_measured_by_the_uptime_is_accepted(self) -> None:
        record = recorded(sample(NOW, up_ms=HOUR))
        assert answer_to(record, sample(NOW + 7 * DAY, up_ms=HOUR + 7 * DAY)) is SampleVerdict.ACCEPTED
        assert answer_to(record, sample(NOW + 7 * DAY + STEP + 1, up_ms=HOUR + 7 * DAY)) is SampleVerdict.AHEAD

    def test_a_clock_that_was_set_is_not_accepted_although_its_host_was_before(self) -> None:
        assert answer_to(recorded(sample(NOW, up_ms=0)), sample(NOW + DAY, up_ms=MINUTE)) is SampleVerdict.AHEAD

    def test_a_host_that_was_restarted_can_not_show_how_much_time_has_passed(self) -> None:
        record = recorded(sample(NOW, up_ms=HOUR))
        restarted = Sample(NOW + DAY, 100, Uptime("another boot", "a", HOUR + DAY))
        assert answer_to(record, restarted) is SampleVerdict.AHEAD

    def test_every_one_of_several_hosts_can_show_that_a_night_has_passed(self) -> None:
        record = recorded(sample(NOW, "a", HOUR), sample(NOW + 1, "b", 5 * HOUR))
        for host, up_ms in (("a", HOUR), ("b", 5 * HOUR)):
            assert answer_to(record, sample(NOW + 9 * HOUR, host, up_ms + 9 * HOUR)) is SampleVerdict.ACCEPTED

    def test_hosts_that_agree_do_not_confirm_each_other(self) -> None:
        _, record = offer(recorded(sample(NOW)), sample(NOW + DAY, "b"), STEP)
        assert answer_to(record, sample(NOW + DAY + 1, "c")) is SampleVerdict.AHEAD

    def test_a_decreasing_timestamp_is_never_accepted(self) -> None:
        assert answer_to(recorded(sample(NOW, ts=100)), sample(NOW + 1, ts=99)) is SampleVerdict.NOT_ABOVE

    def test_without_a_bound_everything_above_is_accepted_and_nothing_is_noted(self) -> None:
        record = recorded(sample(NOW))
        assert answer_to(record, sample(NOW + 900 * DAY, "b"), step_ms=0) is SampleVerdict.ACCEPTED
        answer, after = offer(record, sample(NOW - 900 * DAY, "b"), 0)
        assert (answer, after) == (SampleVerdict.NOT_ABOVE, record)

    @given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2 * HOUR)), min_size=1, max_size=40))
    def test_one_wrong_clock_gains_no_more_than_a_step(self, visits: list[tuple[int, int]]) -> None:
        """Between any two samples on record no more time seems to have passed than did, and a step."""
        offsets = {0: 0, 1: 0, 2: 6 * HOUR}
        record: ClockRecord | None = None
        true_ms, accepted = NOW, list[tuple[int, int]]()
        for host, passes_ms in [(0, 0), *visits]:
            true_ms += passes_ms
            answer, record = offer(record, sample(true_ms + offsets[host], str(host), true_ms), STEP)
            if answer is SampleVerdict.ACCEPTED:
                accepted.append((true_ms, record.wall_ms))
        for at, (true_then, wall_then) in enumerate(accepted):
            for true_later, wall_later in accepted[at:]:
                assert wall_later - wall_then <= true_later - true_then + STEP


class TestRefused:
    def test_a_refused_machine_is_recorded_with_its_distance_and_since_when(self) -> None:
        record = recorded(sample(NOW))
        for minute in range(3):
            _, record = offer(record, sample(NOW + minute * MINUTE, up_ms=minute * MINUTE), STEP)
            _, record = offer(record, sample(NOW + minute * MINUTE + DAY, "b"), STEP)
        (refused,) = record.pending()
        assert (refused.uptime.host, refused.above_ms, refused.since_ms) == ("b", DAY, NOW)
        assert refused.last_ms == record.wall_ms == NOW + 2 * MINUTE

    def test_a_host_that_is_behind_is_noted_and_can_not_be_confirmed(self) -> None:
        _, record = offer(recorded(sample(NOW)), sample(NOW - DAY, "b"), STEP)
        assert [(each.uptime.host, each.above_ms) for each in record.behind()] == [("b", -DAY)]
        assert record.pending() == []

    def test_a_clock_that_is_right_again_is_forgotten(self) -> None:
        record = recorded(sample(NOW))
        for wrong in (DAY, -DAY):
            _, record = offer(record, sample(NOW + wrong, "b"), STEP)
            assert len(record.refused) == 1
            _, record = offer(record, sample(record.wall_ms + 1, "b"), STEP)
            assert record.refused == ()

    def test_what_time_has_caught_up_with_is_forgotten(self) -> None:
        _, record = offer(recorded(sample(NOW)), sample(NOW + HOUR, "b"), STEP)
        _, record = offer(record, sample(NOW + HOUR, up_ms=HOUR), STEP)
        assert record.refused == ()

    def test_one_that_is_not_heard_of_any_more_is_forgotten_after_two_days(self) -> None:
        _, record = offer(recorded(sample(NOW)), sample(NOW + 900 * DAY, "b"), STEP)
        _, record = offer(record, sample(NOW + 2 * DAY - 1, up_ms=2 * DAY - 1), STEP)
        assert len(record.refused) == 1
        _, record = offer(record, sample(NOW + 2 * DAY, up_ms=2 * DAY), STEP)
        assert record.refused == ()

    def test_however_many_there_are_a_few_are_kept(self) -> None:
        record = recorded(*(sample(NOW + number, f"right {number}") for number in range(100)))
        for number in range(100):
            _, record = offer(record, sample(NOW + DAY, f"wrong {number}"), STEP)
        assert (len(record.anchors), len(record.refused)) == (16, 8)
        assert record.refused[0].uptime.host == "wrong 99"
        assert len(record.encoded()) < 4_000


class TestAcceptedClocks:
    def test_a_clock_that_is_ahead_is_held_at_the_last_sample(self) -> None:
        record = recorded(sample(NOW))
        assert believed_ms(record, NOW + DAY, Uptime("b", "b", 0), STEP) == NOW

    @pytest.mark.parametrize("now_ms", [NOW - DAY, NOW, NOW + STEP])
    def test_a_clock_that_would_be_accepted_or_is_behind_is_used(self, now_ms: int) -> None:
        assert believed_ms(recorded(sample(NOW)), now_ms, Uptime("b", "b", 0), STEP) == now_ms

    def test_without_a_record_or_a_bound_there_is_nothing_to_hold_it(self) -> None:
        assert believed_ms(None, NOW, Uptime("b", "b", 0), STEP) == NOW
        assert believed_ms(recorded(sample(NOW)), NOW + DAY, Uptime("b", "b", 0), 0) == NOW + DAY


class TestOperators:
    def test_what_is_confirmed_is_the_last_sample_and_its_host_is_measured_from_there(self) -> None:
        _, record = offer(recorded(sample(NOW)), sample(NOW + DAY, "b", 7, ts=110), STEP)
        confirmed = confirm(record, record.pending()[0])
        assert confirmed
        assert (confirmed.wall_ms, confirmed.ts, confirmed.refused) == (NOW + DAY, 110, ())
        assert answer_to(confirmed, sample(NOW + 2 * DAY, "b", 7 + DAY, ts=120)) is SampleVerdict.ACCEPTED

    def test_what_others_have_overtaken_can_not_be_confirmed(self) -> None:
        _, record = offer(recorded(sample(NOW)), sample(NOW + DAY, "b", ts=110), STEP)
        _, record = offer(record, sample(NOW + 1, ts=111), STEP)
        assert confirm(record, record.pending()[0]) is None

    def test_discarding_removes_all_later_anchors(self) -> None:
        record = recorded(sample(NOW), sample(NOW + STEP, "b"))
        left = cut(record, NOW, (NOW, 100))
        assert left
        assert [(each.wall_ms, each.uptime.host) for each in left.anchors] == [(NOW, "a")]
        assert cut(record, NOW - 1, None) is None


class TestEncoding:
    def test_a_record_is_read_as_it_was_written(self) -> None:
        record = recorded(sample(NOW, "ä"))
        for wrong in (DAY, -DAY):
            _, record = offer(record, sample(NOW + wrong, f"b{wrong}", 5), STEP)
        assert ClockRecord.decoded(record.encoded()) == record

    def test_what_an_earlier_version_wrote_is_a_record_that_measures_nothing(self) -> None:
        earlier = ClockRecord(NOW, 100).encoded()
        assert ClockRecord.decoded(earlier) == ClockRecord(NOW, 100)
        assert recorded(sample(NOW)).encoded().startswith(earlier), "and it reads what is written now"


def test_uptime_is_that_of_the_machine_and_never_decreases() -> None:
    first, second = SystemClock().uptime(), SystemClock().uptime()
    assert first[:2] == second[:2]
    assert 0 < first.ms <= second.ms
