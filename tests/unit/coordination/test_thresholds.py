from __future__ import annotations

import pytest

from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.errors import BadValue, UnknownTable
from sweep_tasks.model import SweepStrategy, TableMetadata, TableRef
from sweep_tasks.store import Store

CONSERVATIVE, THOROUGH, NOTHING = SweepStrategy


@pytest.fixture
def thresholds(store: Store) -> Thresholds:
    return Thresholds(store)


def created(store: Store, name: str, metadata: TableMetadata) -> TableRef:
    ref = TableRef.parse(name)
    store.create_table(ref, metadata)
    return ref


def test_nothing_is_swept_in_the_beginning(thresholds: Thresholds, table: TableRef) -> None:
    assert thresholds.of_tables([table])[table].for_readers == 0
    assert thresholds.of_strategy(CONSERVATIVE) == 0


def test_a_threshold_only_rises(thresholds: Thresholds) -> None:
    assert thresholds.raise_strategy(CONSERVATIVE, 50) == 50
    assert thresholds.raise_strategy(CONSERVATIVE, 40) == 50
    assert thresholds.of_strategy(CONSERVATIVE) == 50


def test_a_table_answers_to_its_own_strategy(store: Store, thresholds: Thresholds, table: TableRef) -> None:
    thorough = created(store, "app.thorough", TableMetadata(THOROUGH))
    never = created(store, "app.never", TableMetadata(NOTHING))
    thresholds.raise_strategy(CONSERVATIVE, 50)
    thresholds.raise_strategy(THOROUGH, 70)
    found = thresholds.of_tables([table, thorough, never])
    assert {ref.name: threshold.for_readers for ref, threshold in found.items()} == {
        "items": 50, "thorough": 70, "never": 0,
    }  # fmt: skip


def test_a_table_that_changed_its_strategy_answers_to_the_higher_of_both(store: Store, thresholds: Thresholds) -> None:
    changed = created(store, "app.changed", TableMetadata(THOROUGH).with_strategy(CONSERVATIVE))
    thresholds.raise_strategy(CONSERVATIVE, 50)
    thresholds.raise_strategy(THOROUGH, 70)
    found = thresholds.of_tables([changed])[changed]
    assert found.for_readers == 70
    assert found.for_writers == 70, "a delete marker that the old strategy removed must not be written under"


def test_the_mark_of_a_truncation_counts_for_readers_and_writers(store: Store, thresholds: Thresholds) -> None:
    truncated = created(store, "app.truncated", TableMetadata(mark=90))
    found = thresholds.of_tables([truncated])[truncated]
    assert (found.for_readers, found.for_writers) == (90, 90)


def test_an_unknown_table_is_named(thresholds: Thresholds) -> None:
    nowhere = TableRef.parse("app.nowhere")
    with pytest.raises(UnknownTable) as unknown:
        thresholds.of_tables([nowhere])
    assert unknown.value.table == nowhere


def test_a_negative_threshold_is_refused(thresholds: Thresholds) -> None:
    with pytest.raises(BadValue) as refused:
        thresholds.raise_strategy(CONSERVATIVE, -1)
    assert (refused.value.field, refused.value.reason) == ("timestamp", "out_of_range")
    assert "-1" in str(refused.value)
