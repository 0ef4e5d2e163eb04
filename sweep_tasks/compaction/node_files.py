"""Measuring the files of one node: those of the store's tables, each read once, some at a time.

The lines with what was found go to a file of the node's own, beside the measurements that are kept, and take the place
of the former ones when they are complete. Files that can't be measured are named in the summary and left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple, TextIO

from sweep_tasks.compaction.cache import Cache
from sweep_tasks.compaction.measuring import measure
from sweep_tasks.compaction.nodes import Node
from sweep_tasks.compaction.remembered import DECLINED, FRUITLESS, Remembered
from sweep_tasks.compaction.sstables import Identity, SSTable, sstables_in
from sweep_tasks.compaction.summary import Document, Summary
from sweep_tasks.compaction.thresholds import check_tables, thresholds_in
from sweep_tasks.config import Settings
from sweep_tasks.errors import BadValue, NoTombstones, SSTableGone, SSTableUnreadable, UnknownTable
from sweep_tasks.model import TableRef
from sweep_tasks.opening import borrowed_store
from sweep_tasks.store.cassandra.options import PhysicalTable
from sweep_tasks.store.cassandra.store import CassandraStore
from sweep_tasks.whole_files import whole_file

GONE, UNREADABLE = "gone", "unreadable"


class Outcome(NamedTuple):
    """Of one file: its line and what is summed up of it, or why there is none."""

    line: str | None = None
    brief: str | None = None
    kind: str | None = None
    problem: str | None = None
    file: str | None = None
    reason: str | None = None


Files = Sequence[tuple[SSTable, Identity]]
Measuring = Callable[["Order", Files], Iterable[Outcome]]
"""All files, in any order."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is measured on a node, and how its statistics are kept."""

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
                f"{self.node.name} names no data folder, so its files are out of reach; 'sweepflow compaction measure' "
                "tells what sweeps have counted there",
                reason="no_data_folder",
            )
        found: dict[SSTable, Identity] = {}
        for keyspace in {table.keyspace for table in self.tables.values()}:
            names = {table.name for table in self.tables.values() if table.keyspace == keyspace}
            found |= sstables_in(self.node.reach, self.node.data, keyspace, names)
        return found

    def flush(self) -> None:
        (keyspace,) = {table.keyspace for table in self.tables.values()}
        self.node.nodetool("flush", keyspace, *(table.name for table in self.tables.values()), changes=True)

    def measured(self, sstable: SSTable, identity: Identity) -> Outcome:
        table = self.tables[sstable.qualified_table]
        kept = Cache(self.cache / "sstables")
        try:
            found = measure(sstable, self.node.tools, table.gc_grace_s, self.now_s, cache=kept, identity=identity)
        except (SSTableGone, SSTableUnreadable) as error:
            kind = GONE if isinstance(error, SSTableGone) else UNREADABLE
            return Outcome(kind=kind, problem=str(error), file=str(error.file), reason=error.reason)
        return Outcome(found.json_line(), json.dumps(found.brief()))

    def check_folders(self) -> None:
        """A folder that is not there is a wrong setting, not one without files, be it one of many."""
        there = self.node.reach.stands(self.node.data)
        for folder in self.node.data:
            if folder not in there:
                raise BadValue(
                    "setting compaction_nodes",
                    f"{self.node.name} has no folder {folder}; name its data folders",
                    reason="missing_folder",
                )


def tables_of(settings: Settings, names: Iterable[str] = ()) -> dict[str, PhysicalTable]:
    """By their names in Cassandra, with the keyspace; all of the store if none is named. No other may be in the setting
    that has thresholds for tables."""
    with borrowed_store(settings) as store:
        if not isinstance(store, CassandraStore):
            raise NoTombstones(settings.store.partition(":")[0])
        found = store.physical_tables()
    check_tables(settings, found.values())
    qualified = {table.qualified: table for table in found.values()}
    wanted = [_found(name, found, qualified) for name in names]
    return {table.qualified: table for table in wanted} if wanted else qualified


def measure_files(order: Order, settings: Settings, measuring: Measuring) -> Document:
    """Measures, keeps the lines, returns the summary; forgets what was known of files that are gone."""
    files = order.files()
    order.check_folders()
    summary = summary_for(order, settings)
    with _lines_of(order) as out:
        for outcome in measuring(order, list(files.items())) if files else ():
            if outcome.line is None or outcome.brief is None:
                summary.leave_out(outcome.kind or UNREADABLE, outcome.problem or "", outcome.file, outcome.reason)
            else:
                summary.add(json.loads(outcome.brief))
                out.write(f"{outcome.line}\n")
    _forget_gone(order, files)
    return summary.document(order.statistics)


def summary_for(order: Order, settings: Settings) -> Summary:
    """In which nothing is counted yet."""
    near_share = Fraction(settings.compaction_near_fail_share)
    summary = Summary(order.node.name, order.now_s, thresholds_in(settings, order.tables.values()), near_share)
    for name, table in sorted(order.tables.items()):
        summary.table(name, table.gc_grace_s)
    return summary


def in_threads(at_once: int) -> Measuring:
    """Most of the work is done by the tool that dumps the file, which is a process of its own."""

    def measuring(order: Order, files: Files) -> Iterator[Outcome]:
        with ThreadPoolExecutor(at_once) as pool:
            yield from pool.map(lambda each: order.measured(*each), files)

    return measuring


@contextmanager
def _lines_of(order: Order) -> Iterator[TextIO]:
    try:
        with whole_file(order.statistics) as out:
            yield out
    except OSError as error:
        problem = f"{order.statistics} can't be written: {error.strerror}; name a file in a folder that exists"
        raise BadValue("to", problem) from error


def _found(name: str, tables: dict[TableRef, PhysicalTable], qualified: dict[str, PhysicalTable]) -> PhysicalTable:
    if name in qualified:
        return qualified[name]
    table = tables.get(TableRef.stored(name))
    if table is None:
        raise UnknownTable(name)
    return table


def remembered(order: Order, what: str = FRUITLESS) -> Remembered:
    return Remembered(order.cache / "compaction", order.node.name, what)


def _forget_gone(order: Order, files: dict[SSTable, Identity]) -> None:
    folders = [folder / table.keyspace / table.name for folder in order.node.data for table in order.tables.values()]
    for what in (FRUITLESS, DECLINED):
        standing = {str(sstable.data) for sstable in files}
        remembered(order, what).forget_gone([f"{folder}-" for folder in folders], standing)
    labels = [f"{order.node.reach.label(folder)}-" for folder in folders]
    Cache(order.cache / "sstables").forget_gone(labels, {identity.path for identity in files.values()})
