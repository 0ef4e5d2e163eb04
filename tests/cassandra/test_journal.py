"""What people did is kept on Cassandra too, the newest first."""

from __future__ import annotations

from sweep_tasks.journal import Journal
from sweep_tasks.store.cassandra.store import CassandraStore
from tests.support.clock import ManualClock


def test_the_newest_note_comes_first_with_its_outcome(cassandra: CassandraStore, clock: ManualClock) -> None:
    journal = Journal(cassandra, clock)
    for number in range(3):
        with journal.noted("ada", "pause", f"shop.t{number}", "a closer look"):
            clock.advance(1)
    assert [(note.about, note.outcome) for note in journal.last(2)] == [("shop.t2", "done"), ("shop.t1", "done")]
