"""Time for people."""

from __future__ import annotations

import pytest

from sweep_tasks.texts import short, words


@pytest.mark.parametrize(
    ("seconds", "reported"),
    [(None, "unknown"), (0, "0 s"), (59, "59 s"), (3_660, "1 h 1 min"), (3_601, "1 h 1 s"), (90_000, "1 d 1 h")],
)
def test_a_duration_is_shown_in_its_two_greatest_units(seconds: int | None, reported: str) -> None:
    assert short(seconds) == reported


@pytest.mark.parametrize(
    ("seconds", "reported"),
    [
        (0, "0 seconds"),
        (0.4, "0 seconds"),
        (59, "59 seconds"),
        (61, "1 minute 1 second"),
        (3_661, "1 hour 1 minute"),
        (90_061, "1 day 1 hour"),
        (30 * 86_400, "4 weeks 2 days"),
    ],
)
def test_durations_in_words(seconds: float, reported: str) -> None:
    assert words(seconds) == reported
