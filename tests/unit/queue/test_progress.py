from __future__ import annotations

from collections.abc import Callable

import pytest

from sweep_tasks.encoding import var_long
from sweep_tasks.errors import BadValue, SweepflowError
from sweep_tasks.model import Cell, SweepStrategy
from sweep_tasks.queue.encoding import progress_row
from sweep_tasks.queue.progress import NEVER_SWEPT, Progress
from sweep_tasks.store import Store
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.store.schema import QUEUE_PROGRESS
from tests.support.errors import having
from tests.support.simulation import Process

CONSERVATIVE, THOROUGH, NOTHING = SweepStrategy


@pytest.fixture
def progress(store: Store) -> Progress:
    return Progress(store)


def test_never_swept_is_minus_one_and_stored_as_absent(store: Store, progress: Progress) -> None:
    assert progress.of(CONSERVATIVE, 0) == NEVER_SWEPT == -1
    assert progress.advance(CONSERVATIVE, 0, NEVER_SWEPT) == NEVER_SWEPT
    assert store.scan_registers(QUEUE_PROGRESS).items == []


def test_progress_only_rises_and_returns_the_stored_value(progress: Progress) -> None:
    assert progress.advance(CONSERVATIVE, 0, 0) == 0
    assert progress.advance(CONSERVATIVE, 0, 70) == 70
    assert progress.advance(CONSERVATIVE, 0, 60) == 70
    assert progress.advance(CONSERVATIVE, 0, NEVER_SWEPT) == 70
    assert progress.of(CONSERVATIVE, 0) == 70


def test_every_strategy_and_shard_has_its_own(progress: Progress) -> None:
    progress.raise_shards(2)
    progress.advance(CONSERVATIVE, 0, 5)
    progress.advance(THOROUGH, 1, 7)
    assert progress.all() == {
        (CONSERVATIVE, 0): 5, (CONSERVATIVE, 1): -1, (THOROUGH, 0): -1, (THOROUGH, 1): 7,
    }  # fmt: skip


def test_it_is_stored_as_atlasdb_stores_it(store: Store, progress: Progress) -> None:
    progress.advance(THOROUGH, 3, 50_000)
    progress.raise_shards(8)
    assert dict(store.scan_registers(QUEUE_PROGRESS).items) == {
        Cell(progress_row(3, THOROUGH), b"v"): var_long(50_000),
        Cell(progress_row(-1, CONSERVATIVE), b"v"): var_long(8),
    }


def test_an_overtaken_sweep_returns_the_stored_value(memory: MemoryStore) -> None:
    late = Process(memory, lambda store: Progress(store).advance(CONSERVATIVE, 0, 5))
    late.step()
    Progress(memory).advance(CONSERVATIVE, 0, 9)
    assert late.finish() == 9
    assert Progress(memory).of(CONSERVATIVE, 0) == 9


class TestShards:
    def test_there_is_one_in_the_beginning(self, progress: Progress) -> None:
        assert progress.shards() == 1
        assert progress.raise_shards(1) == 1

    def test_their_number_only_grows(self, progress: Progress) -> None:
        assert progress.raise_shards(8) == 8
        assert progress.raise_shards(8) == 8
        with pytest.raises(SweepflowError, check=having(code="shards_lowered")) as refused:
            progress.raise_shards(4)
        assert (refused.value.details["standing"], refused.value.details["asked"]) == (8, 4)
        assert progress.shards() == 8
        assert progress.raise_shards(256) == 256

    @pytest.mark.parametrize("number", [-1, 0, 257, 2**63])
    def test_a_number_out_of_range_is_refused(self, progress: Progress, number: int) -> None:
        with pytest.raises(BadValue) as refused:
            progress.raise_shards(number)
        assert refused.value.field == "shards"
        assert progress.shards() == 1


@pytest.mark.parametrize("shard", [-1, 256])
def test_a_shard_out_of_range_is_refused(progress: Progress, shard: int) -> None:
    uses: list[Callable[[], int]] = [
        lambda: progress.of(CONSERVATIVE, shard),
        lambda: progress.advance(CONSERVATIVE, shard, 5),
    ]
    for use in uses:
        with pytest.raises(BadValue) as refused:
            use()
        assert (refused.value.field, refused.value.reason) == ("shard", "out_of_range")


@pytest.mark.parametrize("ts", [-2, 2**63])
def test_a_timestamp_out_of_range_is_refused(progress: Progress, ts: int) -> None:
    with pytest.raises(BadValue):
        progress.advance(CONSERVATIVE, 0, ts)
    assert progress.of(CONSERVATIVE, 0) == NEVER_SWEPT


def test_tables_that_are_not_swept_have_no_progress(progress: Progress) -> None:
    with pytest.raises(BadValue) as refused:
        progress.of(NOTHING, 0)
    assert refused.value.field == "strategy"
