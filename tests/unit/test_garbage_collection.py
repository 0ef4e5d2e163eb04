"""How often Python searches for garbage is changed for a block, and for no longer."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from sweep_tasks.processes import collect_garbage_seldom


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_collection_is_less_frequent_within_the_block_only() -> None:
    gc.set_threshold(700, 10, 10)
    with collect_garbage_seldom(), collect_garbage_seldom():
        assert gc.get_threshold()[0] >= 100_000
    assert gc.get_threshold() == (700, 10, 10)


def test_an_error_ends_the_block_too() -> None:
    gc.set_threshold(700, 10, 10)
    with pytest.raises(ZeroDivisionError), collect_garbage_seldom():
        raise ZeroDivisionError
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("chosen", [(0, 10, 10), (1_000_000, 10, 10)])
def test_a_less_frequent_collection_is_kept(chosen: tuple[int, int, int]) -> None:
    gc.set_threshold(*chosen)
    with collect_garbage_seldom():
        assert gc.get_threshold() == chosen


def test_garbage_of_the_block_is_collected_at_its_end() -> None:
    class Knot:
        alive = 0

        def __init__(self) -> None:
            self.itself = self
            Knot.alive += 1

        def __del__(self) -> None:
            Knot.alive -= 1

    with collect_garbage_seldom():
        for _ in range(300_000):
            Knot()
    assert 0 < Knot.alive < 250_000
    gc.collect()
    assert Knot.alive == 0
