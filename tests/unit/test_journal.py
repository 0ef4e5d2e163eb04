"""The journal: who did what, when and why."""

from __future__ import annotations

import pytest

from sweep_tasks.errors import BadValue, NotFound
from sweep_tasks.journal import MOST_CHARACTERS, Journal
from sweep_tasks.store import Store
from sweep_tasks.store.faults import FaultyStore
from tests.support.clock import ManualClock


def test_the_newest_note_comes_first_with_its_outcome(store: Store, clock: ManualClock) -> None:
    journal = Journal(store, clock)
    with journal.noted("ada", "pause", "shop.orders", "a  closer\nlook"):
        pass
    clock.advance(1)
    with pytest.raises(NotFound), journal.noted("bob", "release", "backup", "done"):
        raise NotFound("there is none")
    assert [(note.by, note.what, note.about, note.reason, note.outcome) for note in journal.last()] == [
        ("bob", "release", "backup", "done", "failed: not_found"),
        ("ada", "pause", "shop.orders", "a closer look", "done"),
    ]
    assert [note.by for note in journal.last(1)] == ["bob"]


def test_what_was_never_heard_of_again_is_on_record_as_asked_for(store: Store, clock: ManualClock) -> None:
    with pytest.raises(KeyboardInterrupt), Journal(store, clock).noted("ada", "pause", "", "why not"):
        raise KeyboardInterrupt
    assert [note.outcome for note in Journal(store, clock).last()] == ["asked"]


@pytest.mark.parametrize("reason", ["", "  \n ", "x" * (MOST_CHARACTERS + 1)])
def test_without_a_proper_reason_nothing_is_done(store: Store, clock: ManualClock, reason: str) -> None:
    with pytest.raises(BadValue) as refused, Journal(store, clock).noted("ada", "pause", "", reason):
        pytest.fail("it was done")
    assert refused.value.field == "reason"
    assert Journal(store, clock).last() == []


def test_the_last_few_are_one_read_however_many_there_are(store: Store, clock: ManualClock) -> None:
    for number in range(30):
        with Journal(store, clock).noted("ada", "pause", str(number), "again"):
            clock.advance(1)
    calls: list[str] = []
    watched = FaultyStore(store, before=lambda call: calls.append(call.name))
    assert [note.about for note in Journal(watched, clock).last(3)] == ["29", "28", "27"]
    assert calls == ["scan"]
