"""How far each shard is swept, and how many shards there are. Both only grow."""

from __future__ import annotations

from collections.abc import Collection

from sweep_tasks.encoding import stored_long, var_long
from sweep_tasks.errors import BadValue, ShardsLowered
from sweep_tasks.model import Cell, SweepStrategy
from sweep_tasks.queue.encoding import MAX_SHARDS, checked_shard, progress_row
from sweep_tasks.store.contract import Store
from sweep_tasks.store.system import QUEUE_PROGRESS

NEVER_SWEPT = -1
QUEUES = (SweepStrategy.CONSERVATIVE, SweepStrategy.THOROUGH)

_VALUE = b"v"
_SHARDS = Cell(progress_row(-1, SweepStrategy.CONSERVATIVE), _VALUE)


class Progress:
    def __init__(self, store: Store) -> None:
        self._store = store

    def shards(self) -> int:
        return stored_long(self._store.read(QUEUE_PROGRESS, [_SHARDS]).get(_SHARDS), default=1)

    def check(self, shards: Collection[int]) -> None:
        """Refuses those that do not exist: nobody writes to their queue, and its progress would stand for nothing."""
        number = self.shards()
        for shard in shards:
            if not 0 <= shard < number:
                raise BadValue("shard", f"{shard} does not exist; there are {number}, from 0", reason="unknown")

    def raise_shards(self, number: int) -> int:
        """Entries stay in the shard they were written to, so a shard that exists must go on being swept."""
        if not 1 <= number <= MAX_SHARDS:
            raise BadValue("shards", f"{number} is out of range; there are 1 to {MAX_SHARDS}")

        def raised(current: bytes | None) -> bytes:
            standing = stored_long(current, default=1)
            if number < standing:
                raise ShardsLowered(number, standing)
            return var_long(number)

        return stored_long(self._store.update(QUEUE_PROGRESS, _SHARDS, raised), default=1)

    def of(self, strategy: SweepStrategy, shard: int) -> int:
        """Everything that started up to here is swept."""
        cell = _cell(strategy, shard)
        return stored_long(self._store.read(QUEUE_PROGRESS, [cell]).get(cell), default=NEVER_SWEPT)

    def all(self) -> dict[tuple[SweepStrategy, int], int]:
        cells = {(strategy, shard): _cell(strategy, shard) for strategy in QUEUES for shard in range(self.shards())}
        standing = self._store.read(QUEUE_PROGRESS, list(cells.values()))
        return {key: stored_long(standing.get(cell), default=NEVER_SWEPT) for key, cell in cells.items()}

    def advance(self, strategy: SweepStrategy, shard: int, ts: int) -> int:
        """What stands afterwards: a value below it has no effect."""
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
