"""Documents of compaction rounds for tests."""

from __future__ import annotations

from sweep_tasks.compaction.documents import DeadRun
from sweep_tasks.sstables.statistics import Reads

NEAR_FAILING = DeadRun(
    table="app.items", token=1, longest_run=9, held=9, file="f", reads=Reads.WARNED, fails_at=10, near_failing=True
)
