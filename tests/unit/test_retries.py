"""Retry rules: pauses grow up to their maximum, and only errors that may pass are retried."""

from __future__ import annotations

import pytest

from sweep_tasks.errors import BadValue, StoreBusy
from sweep_tasks.retries import OWNER, RetryRule


def test_pauses_double_up_to_the_longest() -> None:
    rule = RetryRule(0.5, 3.0)
    assert [rule.pause_s(retry) for retry in (0, 1, 2, 3, 5_000)] == [0.5, 1.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize(("share", "least"), [(1.0, 0.0), (0.5, 1.0)])
def test_a_share_of_the_pause_is_random(share: float, least: float) -> None:
    rule = RetryRule(2.0, 2.0, random_share=share)
    pauses = {rule.pause_s(0) for _ in range(100)}
    assert len(pauses) > 1
    assert all(least <= pause <= 2.0 for pause in pauses)


def test_an_error_that_may_pass_is_retried_after_each_pause_and_raised_at_the_end() -> None:
    pauses: list[float] = []

    def fail() -> None:
        raise StoreBusy("store: busy")

    with pytest.raises(StoreBusy):
        OWNER.retrying(pauses.append)(fail)
    assert pauses == [0.5, 1.0]


def test_any_other_error_is_raised_at_once() -> None:
    def fail() -> None:
        raise BadValue("field", "is wrong")

    with pytest.raises(BadValue):
        OWNER.retrying(lambda _: pytest.fail("it was retried"))(fail)
