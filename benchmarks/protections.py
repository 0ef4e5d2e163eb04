"""Measures what protections cost a sweep, and how many records can be protected and released per second.

A sweep of one shard with 1, 16 and 500 records is measured beside one with none, in interleaved rounds of one run:
thousands of entries, rows in random order, every cell written four times.

- `row_ranges`: disjoint row ranges over a tenth of the rows, at timestamps over the whole history. Most entries are
  held by no record, so this is the cost of asking.
- `overlapping_ranges`: each range covers a tenth of the rows, so that every row is in fifty of 500 ranges.
- `whole_table`: records at different timestamps. With 500, every entry is held by a record of its own and is parked.
- `mixed_modes`: as before, but the later half keeps everything after its timestamp.

`rejudged` is the next sweep, which finds that no record has ended. What is parked counts in all of them. A sweep runs
in one thread, so it is measured in CPU seconds of this process: other load on the machine hardly changes them.
"""

from __future__ import annotations

import gc
import random
import tempfile
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.shared.goals import Goal, at_most, documents
from benchmarks.shared.timing import cpu_seconds, seconds
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.model import Cell, Span, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.ledger import Ledger
from sweep_tasks.protection.records import Mode, Record, State, Target
from sweep_tasks.queue.progress import Progress
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store import Store, initialise_store
from sweep_tasks.sweep.horizon import Horizon
from sweep_tasks.sweep.steps import ShardSweep
from sweep_tasks.sweep.summary import Summary
from sweep_tasks.transactions.outcomes import CommitTable

TABLE = TableRef.parse("bench.cells")
CONSERVATIVE = SweepStrategy.CONSERVATIVE
WRITES = 100
TRANSACTIONS = 500
CELLS = TRANSACTIONS * WRITES // 4
RECORDS = (1, 16, 500)
ROUNDS = 3
OWNERS, PAIRS = 64, 2
CASES = list(product(("row_ranges", "overlapping_ranges", "whole_table", "mixed_modes"), RECORDS))
GOALS = {("row_ranges", 500): 1.2, ("whole_table", 500): 2.0}

Records = Callable[[int], list[Record]]


class Measured(NamedTuple):
    swept: float
    rejudged: float
    parked: int


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        measured = {
            "memory": ratios(lambda _: open_store("memory:", Settings())),
            "sqlite": ratios(lambda name: _sqlite(Path(folder), name)),
        }
        protecting = _protecting(Path(folder))
    return {
        "entries": TRANSACTIONS * WRITES,
        **{store: [each.document() for each in found] for store, found in measured.items()},
        "protect_and_release": protecting,
        "goals": documents(goal for store, found in measured.items() for goal in goals(store, found)),
    }


# --- sweeping with records --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """Sweeps with records, relative to sweeps with none: the least seconds of the interleaved rounds."""

    records: str
    count: int
    ours: Sequence[Measured]
    none: Sequence[Measured]

    @property
    def ratio(self) -> float:
        return min(each.swept for each in self.ours) / min(each.swept for each in self.none)

    def document(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "count": self.count,
            "parked": self.ours[0].parked,
            "ratio": round(self.ratio, 2),
            "rejudged_ms": round(1000 * min(each.rejudged for each in self.ours), 1),
        }


def goals(store: str, compared: Sequence[Compared]) -> list[Goal]:
    return [
        at_most(
            f"a sweep with {each.count} records ({each.records.replace('_', ' ')}, {store} store), relative to none",
            each.ratio,
            GOALS[each.records, each.count],
        )
        for each in compared
        if (each.records, each.count) in GOALS
    ]


def ratios(opened: Callable[[str], Store], cases: Collection[tuple[str, int]] = CASES) -> list[Compared]:
    rounds: dict[tuple[str, int], list[Measured]] = {}
    for number in range(ROUNDS):
        for name, count in [("none", 0), *cases]:
            with opened(f"{name}-{count}-{number}") as store:
                rounds.setdefault((name, count), []).append(_swept(store, _KINDS[name](count) if count else []))
    return [Compared(name, count, rounds[name, count], rounds["none", 0]) for name, count in cases]


def _swept(store: Store, records: list[Record]) -> Measured:
    _fill(store, records)
    gc.collect()
    gc.freeze()  # the store's objects stand for a remote database: the collector must not traverse them
    found: list[Summary] = []

    def sweep() -> None:
        horizon = Horizon(2 * TRANSACTIONS + 10, 0)
        found.append(ShardSweep(store, CONSERVATIVE, 0, horizon, SystemClock()).run())

    swept, rejudged = cpu_seconds(sweep), cpu_seconds(sweep)
    gc.unfreeze()
    assert found[0].entries == TRANSACTIONS * WRITES, found[0].entries  # noqa: S101
    return Measured(swept, rejudged, found[0].parked)


def _fill(store: Store, records: list[Record]) -> None:
    """Write every cell four times, like a table that is updated."""
    metadata = TableMetadata(CONSERVATIVE)
    store.create_table(TABLE, metadata)
    Progress(store).raise_shards(1)
    queue, commits = QueueWriter(store), CommitTable(store)
    order = random.Random(1).sample(range(CELLS), CELLS)
    for number in range(TRANSACTIONS):
        start, first = 2 * number + 1, number * WRITES
        values = {Cell(_row_at(order[(first + n) % CELLS]), b"c"): b"v" * 100 for n in range(WRITES)}
        queue.enqueue(start, {TABLE: values}, {TABLE: metadata})
        store.put(start, {TABLE: values})
        commits.decide(start, start + 1)
    ledger = Ledger(store)
    for record in records:
        ledger.change(record.id, lambda _, record=record: record)  # type: ignore[misc]


def _row_at(number: int) -> bytes:
    return b"%010d" % number


def _rows(number: int, count: int, share: float) -> Span:
    first = number * CELLS // count
    return Span(_row_at(first), _row_at(first + max(1, round(CELLS * share))))


def _record(number: int, count: int, rows: Span, mode: Mode = Mode.AT) -> Record:
    """The timestamps are spread over the history, in another order than the rows."""
    ts = 2 + 2 * TRANSACTIONS * (number * 7 % count) // count
    return Record(f"backup-{number}", ts, mode, (Target(TABLE, rows),), State.ACCEPTED)


def _row_ranges(count: int) -> list[Record]:
    return [_record(number, count, _rows(number, count, 0.1 / count)) for number in range(count)]


def _overlapping_ranges(count: int) -> list[Record]:
    return [_record(number, count, _rows(number, count, 0.1)) for number in range(count)]


def _whole_table(count: int) -> list[Record]:
    return [_record(number, count, Span()) for number in range(count)]


def _mixed_modes(count: int) -> list[Record]:
    later = 2 + TRANSACTIONS
    modes = (Mode.AT, Mode.AFTER)
    return [_record(number, count, Span(), modes[_record(number, count, Span()).ts > later]) for number in range(count)]


_KINDS: dict[str, Records] = {
    "row_ranges": _row_ranges,
    "overlapping_ranges": _overlapping_ranges,
    "whole_table": _whole_table,
    "mixed_modes": _mixed_modes,
}


# --- protecting and releasing -----------------------------------------------------------------------------------------


def _protecting(folder: Path) -> dict[str, Any]:
    """Let owners protect and release concurrently, each with its own connection, as processes have."""
    url = _url(folder, "protecting")
    with open_store(url, Settings()) as store:
        store.create_table(TABLE, TableMetadata())
    times = {owners: _pairs_s(url, owners) for owners in (1, OWNERS)}
    rates = {owners: OWNERS * PAIRS / took for owners, took in times.items()}
    return {
        "per_s": {str(owners): round(rate, 1) for owners, rate in rates.items()},
        "ratio_to_one_owner": round(rates[OWNERS] / rates[1], 2),
    }


def _pairs_s(url: str, owners: int) -> float:
    problems: list[BaseException] = []

    def own(number: int) -> None:
        try:
            with open_store(url, Settings()) as store:
                catalog = ProtectionCatalog(store, Settings())
                for _ in range(OWNERS * PAIRS // owners):
                    catalog.protect(Record(f"owner-{number}", 1, Mode.AT, (Target(TABLE),)))
                    catalog.release(f"owner-{number}")
        except BaseException as problem:
            problems.append(problem)
            raise

    threads = [threading.Thread(target=own, args=(number,)) for number in range(owners)]

    def run() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    took = seconds(run)
    if problems:
        raise RuntimeError(f"{len(problems)} of {owners} owners failed") from problems[0]
    return took


def _sqlite(folder: Path, name: str) -> Store:
    return open_store(_url(folder, name), Settings())


def _url(folder: Path, name: str) -> str:
    url = f"sqlite:///{folder}/{name}.db"
    initialise_store(url, Settings())
    return url
