"""Time for people."""

from __future__ import annotations

import pytest

from sweep_tasks.texts import duration


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "unknown"),
        (0, "0s"),
        (0.4, "0s"),
        (59, "59s"),
        (61, "1m 1s"),
        (3_601, "1h 1s"),
        (3_660, "1h 1m"),
        (90_061, "1d 1h"),
        (30 * 86_400, "30d"),
    ],
)
def test_a_duration_is_shown_in_its_two_greatest_units(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown


def test_where_space_is_limited_in_the_greatest() -> None:
    assert duration(22_200, 1) == "6h"
