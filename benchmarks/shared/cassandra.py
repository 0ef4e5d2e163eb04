"""Stores on one Cassandra node of this machine, the Spark job on them, and the fastest loop that only deletes.

The loop sends range deletes directly through the driver, in unlogged batches by token. It has nothing to read and
nothing to decide. Several batch sizes and depths are tried, and the fastest is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from statistics import median
from typing import Any, NamedTuple

from cassandra.concurrent import execute_concurrent
from cassandra.metadata import Murmur3Token
from cassandra.query import BatchStatement, BatchType

from benchmarks.shared.spark import METADATA, TABLE, VALUE, WRITES, JobRun
from benchmarks.shared.timing import seconds
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.connections import open_store
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.model import Cell
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store import initialise_store
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.store.contract import chunks
from sweep_tasks.transactions.outcomes import CommitTable


class Shape(NamedTuple):
    statements: int
    """Per batch."""
    in_flight: int
    """Batches."""


_STEP = 20
"""Timestamps from one transaction to the next."""
SHAPES = [Shape(*each) for each in product((50, 100, 200), (32, 64))]


@dataclass(frozen=True)
class Write:
    """The writes of one transaction."""

    start: int
    cells: Sequence[Cell]
    queued: bool = True


@dataclass(frozen=True)
class Workload:
    """Cells that were written once before there was a queue, or never, and then several times with queue entries."""

    cells: int
    times: int
    older: bool = False
    at_once: int = WRITES
    """Cells per transaction."""

    @property
    def entries(self) -> int:
        return self.cells * self.times

    def writes(self) -> Iterator[Write]:
        """Yield transactions of a few cells each."""
        parts = -(-self.cells // self.at_once)
        for number in range(self.times):
            for index, part in enumerate(chunks(self._all_cells(), self.at_once)):
                start = _STEP * (number * parts + index) + 1
                if self.older and number == 0:
                    yield Write(start, part, queued=False)
                yield Write(start + _STEP // 2, part)

    def deletes(self) -> Iterator[tuple[Cell, int]]:
        """Yield a range delete for each queue entry: its cell, and the start below which all versions are deleted."""
        return ((cell, write.start) for write in self.writes() if write.queued for cell in write.cells)

    def _all_cells(self) -> Iterator[Cell]:
        return (Cell(b"%010d" % number, b"c") for number in range(self.cells))


def initialised(url: str) -> Settings:
    settings = load_settings(store=url)
    initialise_store(url, settings)
    return settings


def fill(url: str, writes: Iterator[Write], *, queued: bool) -> None:
    """Write transactions concurrently. Without a queue, only what a loop needs is written."""
    with open_store(url, initialised(url)) as store, ThreadPoolExecutor(8) as pool:
        store.create_table(TABLE, METADATA)
        queue, commits = QueueWriter(store), CommitTable(store)

        def write(each: Write) -> int:
            values = {TABLE: dict.fromkeys(each.cells, VALUE)}
            if queued and each.queued:
                queue.enqueue(each.start, values, {TABLE: METADATA})
            store.put(each.start, values)
            if queued and each.queued:
                commits.decide(each.start, each.start + 1)
            return each.start + 1

        TimestampService(store).move_past(max(pool.map(write, writes)))


@dataclass(frozen=True)
class Compared:
    """Interleaved rounds of the job and of the best loop."""

    shape: Shape
    shapes_s: Mapping[Shape, float]
    loops_s: Sequence[float]
    runs: Sequence[JobRun]
    starts_s: Sequence[float]

    def quietest(self) -> Compared:
        """Keep the least of all rounds: other load on the machine can only add to it."""
        fastest = min(self.runs, key=lambda run: run.phases["deleting"])
        run = replace(fastest, seconds=min(run.seconds for run in self.runs))
        return replace(self, loops_s=[min(self.loops_s)], runs=[run], starts_s=[min(self.starts_s)])

    @property
    def loop_s(self) -> float:
        return median(self.loops_s)

    @property
    def job_s(self) -> float:
        return median(run.seconds for run in self.runs)

    @property
    def start_s(self) -> float:
        return median(self.starts_s)

    @property
    def without_start_s(self) -> float:
        return self.job_s - self.start_s

    @property
    def deleting_s(self) -> float:
        return median(run.phases["deleting"] for run in self.runs)

    def document(self) -> dict[str, Any]:
        middle = sorted(self.runs, key=lambda run: run.seconds)[len(self.runs) // 2]
        return {
            "rounds": len(self.runs),
            "job_s": round(self.job_s, 2),
            "start_s": round(self.start_s, 2),
            "without_start_s": round(self.without_start_s, 2),
            "deleting_s": round(self.deleting_s, 2),
            "loop_s": round(self.loop_s, 2),
            "ratio": round(self.loop_s / self.deleting_s, 2),
            "ratio_without_start": round(self.loop_s / self.without_start_s, 2),
            "best_loop": self.shape._asdict(),
            "loops_s": {f"{each.statements}x{each.in_flight}": round(took, 2) for each, took in self.shapes_s.items()},
            "phases_s": middle.phases,
        }


def compare(
    url: Callable[[str], str],
    workload: Workload,
    job: Callable[[str], JobRun],
    start_s: Callable[[], float],
    rounds: int,
    shapes: Sequence[Shape] = SHAPES,
) -> Compared:
    """Find the best loop, then measure it and the job alternately. `url` returns an empty store for a name.

    Each job sweeps a store of its own. A loop deletes the same versions again and again, which costs the server as much
    as the first time.
    """
    loop_url = url("loop")
    fill(loop_url, workload.writes(), queued=False)
    shapes_s = {shape: _loop_s(loop_url, workload, shape) for shape in shapes}
    best = min(shapes_s, key=lambda shape: shapes_s[shape])
    loops_s, runs, starts_s = [], [], []
    for number in range(rounds):
        starts_s.append(start_s())
        job_url = url(f"job{number}")
        fill(job_url, workload.writes(), queued=True)
        loops_s.append(_loop_s(loop_url, workload, best))
        runs.append(job(job_url))
    return Compared(best, shapes_s, loops_s, runs, starts_s)


def rounds_of(size: int) -> int:
    """Return how many rounds are affordable."""
    return max(1, min(3, 1_000_000 // size))


def _loop_s(url: str, workload: Workload, shape: Shape) -> float:
    with open_store(url, load_settings(store=url)) as store:
        assert isinstance(store, CassandraStore)  # noqa: S101
        return seconds(lambda: _loop(store, workload, shape))


def _loop(store: CassandraStore, workload: Workload, shape: Shape) -> None:
    session, name = store.connection.session, store.catalog.in_use(TABLE)[1]
    fresh = TimestampService(store).fresh()
    delete = session.prepare(
        f"DELETE FROM {name} USING TIMESTAMP ? WHERE key = ? AND column1 = ? AND column2 > ? AND column2 <= ?"
    )

    def batches() -> Iterator[tuple[BatchStatement, tuple[()]]]:
        ordered = sorted(workload.deletes(), key=lambda each: Murmur3Token.hash_fn(each[0].row))
        for part in chunks(ordered, shape.statements):
            batch = BatchStatement(BatchType.UNLOGGED, consistency_level=store.connection.write_level)
            for (row, column), start in part:
                batch.add(delete, (fresh, row, column, ~start, 0))
            yield batch, ()

    for _ in execute_concurrent(session, batches(), concurrency=shape.in_flight, results_generator=True):
        pass
