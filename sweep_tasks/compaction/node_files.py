"""Measuring the files of a node, and the compactions that were attempted there without success."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from heapq import nsmallest
from pathlib import Path
from typing import NamedTuple, TextIO

from sweep_tasks.compaction.documents import DeadRun, LeftOut, Measurement, TableFigures
from sweep_tasks.config import Settings
from sweep_tasks.connections import borrow_store
from sweep_tasks.errors import BadValue, SSTableGone, SSTableUnreadable, UnknownTable
from sweep_tasks.files import PRIVATE_FILE, make_private_folder, whole_file, write_whole
from sweep_tasks.model import TableRef
from sweep_tasks.sstables.files import Identity, SSTable, sstables_in
from sweep_tasks.sstables.measuring import measure as measure_sstable
from sweep_tasks.sstables.nodes import Node, no_tombstones
from sweep_tasks.sstables.statistics import (
    Combined,
    PartitionRuns,
    Reads,
    ThresholdsByTable,
    check_tables,
    reaches,
    reads_over,
    thresholds_in,
)
from sweep_tasks.sstables.statistics_file import Cache
from sweep_tasks.sstables.tombstones import FileSummary
from sweep_tasks.store.contract import PhysicalTable

# ---------------------------------------------------------------------------------------------------------------------
# Candidates whose compaction dropped almost nothing, or that the server declined or failed to compact. They are kept,
# so that they are not retried before something has changed.
#
# They are stored beside the measurements, two files for each node. Like a measurement this is something that this
# machine has found out about the files of one node; losing it costs one more attempt.
# ---------------------------------------------------------------------------------------------------------------------

FRUITLESS, DECLINED = "fruitless", "declined"


class FailedAttempts:
    """Candidates of one node, each with the cause that was found at the last attempt."""

    def __init__(self, folder: Path, node: str, what: str = FRUITLESS) -> None:
        self._file = folder / f"{node}.{what}.json"

    def causes(self) -> dict[str, str]:
        """Return the causes of failed attempts, by the file of the candidate."""
        try:
            kept = json.loads(self._file.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return kept if isinstance(kept, dict) else {}

    def add(self, causes: dict[str, str]) -> None:
        if causes:
            self._write(self.causes() | causes)

    def forget_gone(self, within: Sequence[str], existing: Container[str]) -> None:
        """Remove entries of files in some folders that no longer exist."""
        known = self.causes()
        gone = [file for file in known if file.startswith(tuple(within)) and file not in existing]
        kept = {file: cause for file, cause in known.items() if file not in gone}
        if kept != known:
            self._write(kept)

    def _write(self, causes: dict[str, str]) -> None:
        make_private_folder(self._file.parent)
        write_whole(self._file, json.dumps(causes), PRIVATE_FILE)


# ---------------------------------------------------------------------------------------------------------------------
# The measurement of a node, added up from its files: how many tombstones may be dropped, how many wait for gc_grace,
# and the partitions whose readers step over the most dead cells.
#
# Files are added one by one and not kept. Of partitions only the runs of dead cells are kept, under their tokens, and
# only the worst are reported, those nearest to failing reads first.
# ---------------------------------------------------------------------------------------------------------------------

WORST = 20
"""Runs that are reported although no read is about to fail."""
MOST_NEAR = 100
"""Runs near failing that are reported one by one; all are counted."""
GONE, UNREADABLE = "gone", "unreadable"


class FileCounts:
    def __init__(self, node: str, now_s: int, thresholds: ThresholdsByTable, near_share: Fraction) -> None:
        """`near_share`: a run is near failing at this share of the length at which reads fail."""
        self._node = node
        self._now_s = now_s
        self._thresholds = thresholds
        self._near_share = near_share
        self._tables: dict[str, TableFigures] = {}
        self._runs: defaultdict[str, PartitionRuns] = defaultdict(PartitionRuns)
        self._problems: dict[str, list[str]] = {GONE: [], UNREADABLE: []}
        self._left_out: list[LeftOut] = []

    def table(self, name: str, gc_grace_s: int) -> None:
        self._tables[name] = TableFigures(gc_grace_s=gc_grace_s)

    def add(self, file: FileSummary) -> None:
        figures = TableFigures(
            files=1,
            bytes=file.bytes,
            droppable=file.droppable,
            waiting=file.waiting,
            droppable_from_s=file.droppable_from_s,
            gc_grace_s=self._tables[file.table].gc_grace_s,
        )
        self.count(file.table, figures)
        self._runs[file.table].add(file.file, file.runs)

    def count(self, table: str, more: TableFigures) -> None:
        known = self._tables[table]
        self._tables[table] = TableFigures(
            files=known.files + more.files,
            bytes=known.bytes + more.bytes,
            droppable=known.droppable + more.droppable,
            waiting=known.waiting + more.waiting,
            droppable_from_s=_later(known.droppable_from_s, more.droppable_from_s),
            gc_grace_s=known.gc_grace_s,
        )

    def leave_out(self, kind: str, problem: str, file: str | None, reason: str | None) -> None:
        self._problems[kind].append(problem)
        self._left_out.append(LeftOut(kind=kind, file=file, reason=reason))

    def measurement(self, statistics: Path | None) -> Measurement:
        """`statistics`: the file with a line for each measured file, if files were measured."""
        tables = self._tables.values()
        runs = list(self._notable_runs())
        near = [each for each in runs if each.near_failing]
        others = [each for each in runs if not each.near_failing]
        return Measurement(
            node=self._node,
            at_s=self._now_s,
            files=sum(each.files for each in tables),
            bytes=sum(each.bytes for each in tables),
            droppable=sum(each.droppable for each in tables),
            waiting=sum(each.waiting for each in tables),
            droppable_from_s=max((each.droppable_from_s for each in tables if each.droppable_from_s), default=None),
            gone=tuple(self._problems[GONE]),
            unreadable=tuple(self._problems[UNREADABLE]),
            left_out=tuple(self._left_out),
            statistics=str(statistics) if statistics else None,
            tables=self._tables,
            longest_runs=(*nsmallest(MOST_NEAR, near, key=_rank), *nsmallest(WORST, others, key=_rank)),
            near_failing=len(near),
        )

    def _notable_runs(self) -> Iterator[DeadRun]:
        for table, runs in self._runs.items():
            for each in runs.found():
                run = self._dead_run(table, each)
                if run.near_failing or run.reads is not Reads.FINE:
                    yield run

    def _dead_run(self, table: str, run: Combined) -> DeadRun:
        """A server steps over all tombstones, and counts against its threshold those that gc_grace still holds."""
        thresholds = self._thresholds.of(table)
        fails_at = thresholds.run_fail
        return DeadRun(
            table=table,
            token=run.token,
            longest_run=run.longest,
            held=run.held,
            files=run.files,
            file=run.file,
            reads=reads_over(run.longest, thresholds),
            fails_at=fails_at,
            near_failing=fails_at > 0 and reaches(run.held, fails_at, self._near_share),
        )


def _rank(run: DeadRun) -> tuple[Fraction, int, str, int]:
    """The nearest to failing first, which is not always the longest: a table may have thresholds of its own."""
    near = Fraction(run.held, run.fails_at) if run.fails_at > 0 else Fraction(0)
    return -near, -run.longest_run, run.table, run.token


def _later(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)


# ---------------------------------------------------------------------------------------------------------------------
# Measuring the files of one node: those of the store's tables, each read once, several at a time.
#
# The statistics of each file are a line in a file of the node, beside the cached measurements. The new lines replace
# the previous ones when they are complete. Files that can't be measured are named in the measurement and left out.
# ---------------------------------------------------------------------------------------------------------------------


class FileOutcome(NamedTuple):
    """The outcome of measuring one file: its line and its summary as JSON, or why there is none. Text only, since Spark
    workers hand it to the driver as a row."""

    line: str | None = None
    file_summary: str | None = None
    kind: str | None = None
    problem: str | None = None
    file: str | None = None
    reason: str | None = None


Files = Sequence[tuple[SSTable, Identity]]
Measuring = Callable[["RoundContext", Files], Iterable[FileOutcome]]
"""All files, in any order."""


@dataclass(frozen=True, slots=True)
class RoundContext:
    """A node with some of its tables at one moment, and where its statistics are kept."""

    node: Node
    tables: dict[str, PhysicalTable]
    now_s: int
    cache: Path
    statistics: Path
    """Where the lines go."""

    def files(self) -> dict[SSTable, Identity]:
        if not self.node.data:
            raise BadValue(
                "setting compaction_nodes",
                f"{self.node.name} names no data folder, so its files can't be read; 'sweepflow compaction measure' "
                "shows what sweeps have counted there",
                reason="no_data_folder",
            )
        found: dict[SSTable, Identity] = {}
        for keyspace in {table.keyspace for table in self.tables.values()}:
            names = {table.name for table in self.tables.values() if table.keyspace == keyspace}
            found |= sstables_in(self.node.access, self.node.data, keyspace, names)
        return found

    def flush(self) -> None:
        (keyspace,) = {table.keyspace for table in self.tables.values()}
        self.node.nodetool("flush", keyspace, *(table.name for table in self.tables.values()), changes=True)

    def measure(self, sstable: SSTable, identity: Identity) -> FileOutcome:
        table = self.tables[sstable.qualified_table]
        kept = Cache(self.cache / "sstables")
        try:
            found = measure_sstable(
                sstable, self.node.tools, table.gc_grace_s, self.now_s, cache=kept, identity=identity
            )
        except (SSTableGone, SSTableUnreadable) as error:
            kind = GONE if isinstance(error, SSTableGone) else UNREADABLE
            return FileOutcome(kind=kind, problem=str(error), file=str(error.file), reason=error.reason)
        return FileOutcome(found.json_line(), found.summary().to_json())

    def check_folders(self) -> None:
        """Refuse a data folder that does not exist: that is a wrong setting, not a folder without files."""
        there = self.node.access.states(self.node.data)
        for folder in self.node.data:
            if folder not in there:
                raise BadValue(
                    "setting compaction_nodes",
                    f"{self.node.name} has no folder {folder}; name its data folders",
                    reason="missing_folder",
                )


def tables_of(settings: Settings, names: Iterable[str] = ()) -> dict[str, PhysicalTable]:
    """Tables by their names in Cassandra, with the keyspace; all tables of the store if none is named. The setting
    `compaction_tables` may name no other tables."""
    with borrow_store(settings) as store:
        tombstones = store.capabilities.tombstones
        if tombstones is None:
            raise no_tombstones(settings.store.partition(":")[0])
        found = tombstones.physical_tables()
    check_tables(settings, found.values())
    qualified = {table.qualified: table for table in found.values()}
    wanted = [_found(name, found, qualified) for name in names]
    return {table.qualified: table for table in wanted} if wanted else qualified


def measure_files(context: RoundContext, settings: Settings, measuring: Measuring) -> Measurement:
    """Measure the files, write their lines, and forget what was kept about files that no longer exist."""
    files = context.files()
    context.check_folders()
    summary = summary_for(context, settings)
    with _lines_of(context) as out:
        for outcome in measuring(context, list(files.items())) if files else ():
            if outcome.line is None or outcome.file_summary is None:
                summary.leave_out(outcome.kind or UNREADABLE, outcome.problem or "", outcome.file, outcome.reason)
            else:
                summary.add(FileSummary.from_json(outcome.file_summary))
                out.write(f"{outcome.line}\n")
    _forget_gone(context, files)
    return summary.measurement(context.statistics)


def summary_for(context: RoundContext, settings: Settings) -> FileCounts:
    """Return an empty summary for the tables of the round."""
    near_share = Fraction(settings.compaction_near_fail_share)
    summary = FileCounts(context.node.name, context.now_s, thresholds_in(settings, context.tables.values()), near_share)
    for name, table in sorted(context.tables.items()):
        summary.table(name, table.gc_grace_s)
    return summary


def in_threads(at_once: int) -> Measuring:
    """Measure several files at once. Most of the work is done by sstabledump, which is a process of its own."""

    def measuring(context: RoundContext, files: Files) -> Iterator[FileOutcome]:
        with ThreadPoolExecutor(at_once) as pool:
            yield from pool.map(lambda each: context.measure(*each), files)

    return measuring


@contextmanager
def _lines_of(context: RoundContext) -> Iterator[TextIO]:
    try:
        with whole_file(context.statistics, PRIVATE_FILE) as out:
            yield out
    except OSError as error:
        problem = f"{context.statistics} can't be written: {error.strerror}; name a file in a folder that exists"
        raise BadValue("to", problem) from error


def _found(name: str, tables: dict[TableRef, PhysicalTable], qualified: dict[str, PhysicalTable]) -> PhysicalTable:
    if name in qualified:
        return qualified[name]
    table = tables.get(TableRef.stored(name))
    if table is None:
        raise UnknownTable(name)
    return table


def failed_attempts(context: RoundContext, what: str = FRUITLESS) -> FailedAttempts:
    return FailedAttempts(context.cache / "compaction", context.node.name, what)


def _forget_gone(context: RoundContext, files: dict[SSTable, Identity]) -> None:
    folders = [
        folder / table.keyspace / table.name for folder in context.node.data for table in context.tables.values()
    ]
    for what in (FRUITLESS, DECLINED):
        existing = {str(sstable.data) for sstable in files}
        failed_attempts(context, what).forget_gone([f"{folder}-" for folder in folders], existing)
    labels = [f"{context.node.access.label(folder)}-" for folder in folders]
    Cache(context.cache / "sstables").forget_gone(labels, {identity.path for identity in files.values()})
