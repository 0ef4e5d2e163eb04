"""The progress of each shard, and the number of shards. Both only grow."""

from __future__ import annotations

from collections.abc import Collection

from sweep_tasks.encoding import stored_long, var_long
from sweep_tasks.errors import BadValue, SweepflowError
from sweep_tasks.model import Cell, SweepStrategy
from sweep_tasks.queue.encoding import MAX_SHARDS, checked_shard, progress_row
from sweep_tasks.store.contract import Store
from sweep_tasks.store.schema import QUEUE_PROGRESS

NEVER_SWEPT = -1
QUEUES = (SweepStrategy.CONSERVATIVE, SweepStrategy.THOROUGH)

_VALUE = b"v"
_SHARDS = Cell(progress_row(-1, SweepStrategy.CONSERVATIVE), _VALUE)


class Progress:
    """Reads and advances the progress of shards, and raises their number."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def shards(self) -> int:
        return stored_long(self._store.read(QUEUE_PROGRESS, [_SHARDS]).get(_SHARDS), default=1)

    def check(self, shards: Collection[int]) -> None:
        """Raise `BadValue` for a shard that does not exist. No writer uses its queue, so its progress means nothing."""
        number = self.shards()
        for shard in shards:
            if not 0 <= shard < number:
                raise BadValue(
                    "shard", f"{shard} does not exist; the store has {number} shards, numbered from 0", reason="unknown"
                )

    def raise_shards(self, number: int) -> int:
        """Raise the number of shards and return it. It never falls: entries stay in the shard they were written to."""
        if not 1 <= number <= MAX_SHARDS:
            raise BadValue("shards", f"{number} is out of range; a store has 1 to {MAX_SHARDS} shards")

        def raised(current: bytes | None) -> bytes:
            existing = stored_long(current, default=1)
            if number < existing:
                raise shards_lowered(number, existing)
            return var_long(number)

        return stored_long(self._store.update(QUEUE_PROGRESS, _SHARDS, raised), default=1)

    def of(self, strategy: SweepStrategy, shard: int) -> int:
        """Return the progress of a shard: every write that started at or below it is swept."""
        cell = _cell(strategy, shard)
        return stored_long(self._store.read(QUEUE_PROGRESS, [cell]).get(cell), default=NEVER_SWEPT)

    def all(self) -> dict[tuple[SweepStrategy, int], int]:
        """Return the progress of every strategy and shard."""
        cells = {(strategy, shard): _cell(strategy, shard) for strategy in QUEUES for shard in range(self.shards())}
        found = self._store.read(QUEUE_PROGRESS, list(cells.values()))
        return {key: stored_long(found.get(cell), default=NEVER_SWEPT) for key, cell in cells.items()}

    def advance(self, strategy: SweepStrategy, shard: int, ts: int) -> int:
        """Raise the progress and return the stored value. A lower value has no effect."""
        if ts == NEVER_SWEPT:
            return self.of(strategy, shard)
        moved = self._store.update(
            QUEUE_PROGRESS,
            _cell(strategy, shard),
            lambda current: var_long(max(ts, stored_long(current, default=NEVER_SWEPT))),
        )
        return stored_long(moved, default=NEVER_SWEPT)


def _cell(strategy: SweepStrategy, shard: int) -> Cell:
    return Cell(progress_row(checked_shard(shard), strategy), _VALUE)


def shards_lowered(asked: int, existing: int) -> SweepflowError:
    """The error for a number of shards below the existing one."""
    return SweepflowError(
        f"shards: there are {existing}, and the number can't be lowered to {asked}; leave it at {existing} or raise it",
        code="shards_lowered",
        asked=asked,
        standing=existing,
    )
