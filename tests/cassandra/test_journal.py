"""What people did is kept on Cassandra too, the newest first, as a chain."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from sweep_tasks.journal.journal import Journal
from sweep_tasks.store.cassandra.store import CassandraStore
from tests.support.clock import ManualClock


def test_the_newest_act_is_listed_first_with_its_outcome(cassandra: CassandraStore, clock: ManualClock) -> None:
    journal = Journal(cassandra, clock)
    for number in range(3):
        with journal.record_as("ada", "pause", f"shop.t{number}", "a closer look"):
            clock.advance(1)
    assert [(note.about, note.outcome) for note in journal.last(2)] == [("shop.t2", "done"), ("shop.t1", "done")]


def test_the_chain_has_every_entry_of_writers_that_race(cassandra: CassandraStore) -> None:
    def act(number: int) -> None:
        with Journal(cassandra).record_as("ada", "pause", str(number), "again"):
            pass

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(act, range(4)))
    assert Journal(cassandra).verify().entries == 8


def test_what_was_pruned_stays_away_and_the_rest_can_be_verified(cassandra: CassandraStore, clock: ManualClock) -> None:
    """In a store that has handed out fewer timestamps than the journal has entries."""
    journal = Journal(cassandra, clock)
    for number in range(4):
        with journal.record_as("ada", "pause", f"shop.t{number}", "a closer look"):
            clock.advance(1)
    assert journal.prune("ada", "enough", clock.now_ms()) == 7
    assert [note.what for note in journal.last()] == ["prune"]
    assert journal.verify().kept_from == 8
