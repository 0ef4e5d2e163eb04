"""How transactions ended, as threads that share a manager remember it."""

from __future__ import annotations

import pytest

from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.transactions import outcomes as commits
from sweep_tasks.transactions.outcomes import CommitTable


def test_an_outcome_that_another_thread_evicts_from_the_cache_is_still_found(
    memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "_REMEMBERED", 1)
    table = CommitTable(memory)
    table.decide(1, 2)
    table.decide(3, 4)

    class Stepping(int):
        """Hashed at every look-up: after the first one, another thread comes in and finds the memory full."""

        looked_up = 0

        def __hash__(self) -> int:
            self.looked_up += 1
            if self.looked_up > 1:
                table.decide(5, 6)
            return super().__hash__()

    assert table.outcomes([Stepping(1)]) == {1: 2}
