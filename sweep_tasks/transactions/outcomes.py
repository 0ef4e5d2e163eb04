"""Outcomes of transactions, and how unfinished writers are settled."""

from __future__ import annotations

from collections.abc import Collection

from sweep_tasks import retries
from sweep_tasks.clock import Clock
from sweep_tasks.coordination.leases import Leases
from sweep_tasks.encoding import read_var_long, read_var_signed_long, var_long, var_signed_long
from sweep_tasks.errors import TransactionError
from sweep_tasks.model import Cell
from sweep_tasks.store.contract import Store
from sweep_tasks.store.schema import TRANSACTIONS

# ---------------------------------------------------------------------------------------------------------------------
# The commit table: start timestamp → commit timestamp, or -1 if aborted; no entry if undecided.
#
# An entry is stored by put-if-absent, once, and never changes: that one step decides. So a decided outcome may be
# cached without limit, and an undecided one must not be cached.
# ---------------------------------------------------------------------------------------------------------------------

ABORTED = -1
_COLUMN = b"t"
_REMEMBERED = 100_000


class CommitTable:
    """The outcomes of transactions, with a cache of decided ones."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[int, int] = {}

    def outcomes(self, starts: Collection[int]) -> dict[int, int]:
        """Return the outcomes that are decided."""
        known = self._known  # one reference, because another thread may replace the cache
        decided = {start: known[start] for start in starts if start in known}
        unknown = [start for start in starts if start not in decided]
        if unknown:
            decided |= self._remember(self._store.peek(TRANSACTIONS, [_cell(start) for start in unknown]))
        return decided

    def decide(self, start: int, commit: int) -> int:
        """Store the commit timestamp unless an outcome exists; return the outcome."""
        current = self._store.put_if_absent(TRANSACTIONS, {_cell(start): var_signed_long(commit)})
        return self._remember(current)[start]

    def abort(self, starts: Collection[int]) -> dict[int, int]:
        """Store -1 for each undecided transaction; return the outcome of each, which may be a commit."""
        if not starts:
            return {}
        aborted = var_signed_long(ABORTED)
        return self._remember(self._store.put_if_absent(TRANSACTIONS, {_cell(start): aborted for start in starts}))

    def abort_unfinished(self, starts: Collection[int], dry_run: bool = False) -> dict[int, int]:
        """Abort every undecided transaction; return the outcomes of all. A dry run changes nothing."""
        decided = self.outcomes(starts)
        undecided = [start for start in starts if start not in decided]
        return decided | (dict.fromkeys(undecided, ABORTED) if dry_run else self.abort(undecided))

    def _remember(self, current: dict[Cell, bytes]) -> dict[int, int]:
        outcomes = {read_var_long(cell.row)[0]: read_var_signed_long(value)[0] for cell, value in current.items()}
        if len(self._known) > _REMEMBERED:
            self._known = {}  # a new dictionary: other threads may still read the old one
        self._known |= outcomes
        return outcomes


def _cell(start: int) -> Cell:
    return Cell(var_long(start), _COLUMN)


# ---------------------------------------------------------------------------------------------------------------------
# Unfinished writers: wait for a live one, roll back a dead one.
#
# A reader must not skip an unfinished version below its timestamp, because its writer may already have a commit
# timestamp. A writer is alive while it holds its lease. It stamps the lease before it writes a value, so a reader of
# the value either finds the stamp or knows that the writer is dead.
# ---------------------------------------------------------------------------------------------------------------------


class Writers:
    """Settles unfinished transactions: waits for live writers and aborts dead ones."""

    def __init__(self, commits: CommitTable, leases: Leases, clock: Clock, patience_s: float) -> None:
        self._commits = commits
        self._leases = leases
        self._clock = clock
        self._patience_ms = int(patience_s * 1000)

    def settle(self, starts: Collection[int]) -> dict[int, int]:
        """Return the outcome of each transaction; wait for live writers up to the patience."""
        outcomes = self.settle_without_waiting(starts)
        give_up_at = self._clock.now_ms() + self._patience_ms
        attempt = 0
        while len(outcomes) < len(starts):
            if self._clock.now_ms() >= give_up_at:
                waiting = min(start for start in starts if start not in outcomes)
                raise TransactionError(
                    f"transaction: the writer that started at {waiting} has been committing for more than "
                    f"{self._patience_ms / 1000:g} s; retry, or raise the setting writer_wait_s",
                    code="unavailable",
                    retryable=True,
                )
            self._clock.sleep(retries.UNFINISHED_WRITER.pause_s(attempt))
            attempt += 1
            outcomes |= self.settle_without_waiting([start for start in starts if start not in outcomes])
        return outcomes

    def settle_without_waiting(self, starts: Collection[int]) -> dict[int, int]:
        """Return the outcome of each transaction except those whose writer is alive and still committing."""
        outcomes = self._commits.outcomes(starts)
        undecided = [start for start in starts if start not in outcomes]
        if not undecided:
            return outcomes
        alive = {lease.start for lease in self._leases.open()}
        # A writer that finished between the two reads stored its outcome before it released its lease. Then -1 is not
        # stored, and its outcome is returned.
        return outcomes | self._commits.abort([start for start in undecided if start not in alive])
