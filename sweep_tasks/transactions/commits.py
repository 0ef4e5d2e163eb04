"""How transactions ended: start timestamp → commit timestamp, or -1 for aborted, or nothing yet.

The entry is put if absent, once, and never changes: that one step decides. So a decided outcome may be remembered
for as long as one likes, and an undecided one not at all.
"""

from __future__ import annotations

from collections.abc import Collection

from sweep_tasks.encoding import read_var_long, read_var_signed_long, var_long, var_signed_long
from sweep_tasks.model import Cell
from sweep_tasks.store.contract import Store
from sweep_tasks.store.system import TRANSACTIONS

ABORTED = -1
_COLUMN = b"t"
_REMEMBERED = 100_000


class CommitTable:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[int, int] = {}

    def outcomes(self, starts: Collection[int]) -> dict[int, int]:
        """Those that are decided."""
        decided = {start: self._known[start] for start in starts if start in self._known}
        unknown = [start for start in starts if start not in decided]
        if unknown:
            decided |= self._remember(self._store.peek(TRANSACTIONS, [_cell(start) for start in unknown]))
        return decided

    def decide(self, start: int, commit: int) -> int:
        """Try to commit; what stands afterwards is the outcome, whoever put it there."""
        standing = self._store.put_if_absent(TRANSACTIONS, {_cell(start): var_signed_long(commit)})
        return self._remember(standing)[start]

    def abort(self, starts: Collection[int]) -> dict[int, int]:
        """Put -1 where nothing stands yet; the outcome of each, which may turn out to be a commit."""
        if not starts:
            return {}
        aborted = var_signed_long(ABORTED)
        return self._remember(self._store.put_if_absent(TRANSACTIONS, {_cell(start): aborted for start in starts}))

    def settled(self, starts: Collection[int], dry_run: bool = False) -> dict[int, int]:
        """The outcome of every one: decided now, by us if by nobody else. A dry run only says what it would do."""
        decided = self.outcomes(starts)
        undecided = [start for start in starts if start not in decided]
        return decided | (dict.fromkeys(undecided, ABORTED) if dry_run else self.abort(undecided))

    def _remember(self, standing: dict[Cell, bytes]) -> dict[int, int]:
        outcomes = {read_var_long(cell.row)[0]: read_var_signed_long(value)[0] for cell, value in standing.items()}
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        self._known |= outcomes
        return outcomes


def _cell(start: int) -> Cell:
    return Cell(var_long(start), _COLUMN)
