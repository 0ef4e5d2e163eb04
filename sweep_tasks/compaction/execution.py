"""Inspecting a node, and compacting one set of its files and measuring the result."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sweep_tasks.compaction.documents import CompactionOutcome, CompactionResult
from sweep_tasks.compaction.node_files import DECLINED, RoundContext, failed_attempts
from sweep_tasks.compaction.nodetool import NodeTableState, ServerActivity, blocker_in, inspect_server
from sweep_tasks.compaction.planning import (
    Compaction,
    CompactionPlan,
    EarlierAttempts,
    cause_of,
    declined_cause,
    planned,
    with_all_blocked,
)
from sweep_tasks.compaction.proof import Blocker, KnownFile, TableFiles, droppable_in
from sweep_tasks.compaction.reports import DescribeBlocked, blocked_compaction
from sweep_tasks.compaction.rules import AssessedFile
from sweep_tasks.compaction.rules import plan as plan_statistics
from sweep_tasks.errors import BadValue, NodetoolFailed
from sweep_tasks.sstables.files import Identity, SSTable
from sweep_tasks.sstables.nodes import FileMetadata, joined, meet, metadata_of
from sweep_tasks.sstables.statistics import FileStatistics, ThresholdsByTable
from sweep_tasks.sstables.statistics_file import read_statistics
from sweep_tasks.sstables.tombstones import FileFacts

# ---------------------------------------------------------------------------------------------------------------------
# The state of a node at one moment, as far as a plan needs it: its files, its tables, and its running work.
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeState:
    server: ServerActivity
    verdicts: list[AssessedFile]
    tables: dict[str, TableFiles]
    """The tables with a candidate."""
    plan: CompactionPlan


def inspect_and_plan(context: RoundContext, thresholds: ThresholdsByTable, budget: int) -> NodeState:
    """Nothing is planned while the server has compactions of its own to do, or a repair runs: those have priority."""
    server = inspect_server(context.node, context.tables)
    measured: list[FileFacts] = []
    verdicts = plan_statistics(_statistics(context, server, measured), thresholds)
    tables = {verdict.table for verdict in verdicts if verdict.worth_it and verdict.table}
    facts = table_facts(context, server, tables, measured)
    tried = EarlierAttempts(
        failed_attempts(context).causes(), failed_attempts(context, DECLINED).causes(), context.now_s
    )
    found = planned(verdicts, facts, budget, tried)
    blocker = blocker_in(server.work, server.repairing)
    return NodeState(server, verdicts, facts, with_all_blocked(found, blocker) if blocker else found)


def table_facts(
    context: RoundContext, server: ServerActivity, tables: Collection[str], measured: Iterable[FileFacts]
) -> dict[str, TableFiles]:
    """Facts about the files that exist now. A measurement of a file that was replaced meanwhile does not count."""
    if not tables:
        return {}
    existing = replace(context, tables={name: context.tables[name] for name in tables}).files()
    facts = {each.identity: each for each in measured}
    metadata = metadata_of(context.node, [sstable.data for sstable in existing])
    files: dict[str, dict[str, KnownFile]] = {name: {} for name in tables}
    for sstable, identity in existing.items():
        if sstable.data in metadata:
            known = KnownFile(identity, metadata[sstable.data], facts.get(identity))
            files[sstable.qualified_table][str(sstable.data)] = known
    return {name: _table(context, server.tables.get(name, NodeTableState()), name, files[name]) for name in tables}


def _table(context: RoundContext, state: NodeTableState, name: str, files: dict[str, KnownFile]) -> TableFiles:
    table = context.tables[name]
    return TableFiles(name, table.gc_grace_s, table.compaction, state.compacting, files)


def known_facts(context: RoundContext) -> Iterator[FileFacts]:
    """The facts of all files of the last measurement."""
    return (FileFacts.from_json(each.proof) for each in read_statistics(_lines(context.statistics)) if each.proof)


def _statistics(context: RoundContext, server: ServerActivity, measured: list[FileFacts]) -> Iterator[FileStatistics]:
    """The statistics of these tables, one file at a time, as each is as large as its file has blocks. The facts for a
    proof are small and are added to `measured`."""
    for each in read_statistics(_lines(context.statistics)):
        state = server.tables.get(each.table or "")
        if each.table in context.tables and state is not None:
            pending = each.table in server.work.tables
            if each.proof is not None:
                measured.append(FileFacts.from_json(each.proof))
            yield replace(each, pending=pending, read_tombstones=state.read_tombstones, proof=None)


def _lines(statistics: Path) -> Iterator[str]:
    try:
        with statistics.open(encoding="utf-8") as lines:
            yield from lines
    except FileNotFoundError:
        raise BadValue("statistics", f"{statistics} does not exist; measure the node first") from None


# ---------------------------------------------------------------------------------------------------------------------
# Which new files are the output of a compaction, and which have another origin. Pure: metadata of files in.
#
# A file covers segments of the commit log: those of the flush that wrote it, or those of all files it was compacted
# from, joined (tested on Cassandra 5.0.9, size-tiered, leveled and unified). No two flushes of a table cover the same.
# So a new file that covers exactly what the sources covered is their output; one that covers nothing of it is not; and
# one that covers more was made from them and others, in a second compaction. Files streamed from other nodes cover
# nothing: then only write times are left to compare.
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outputs:
    made: Mapping[str, Identity] = field(default_factory=dict)
    """The files that the compaction wrote."""
    none_of_it: bool = False
    """All sources still exist, and nothing was written."""
    unclear: bool = False
    """A new file has other sources as well, or was removed again."""
    certain: bool = True
    """Only a compaction of the sources can have written these files."""


def outputs_of(
    sources_left: int,
    sources: Sequence[FileMetadata],
    new: Mapping[str, Identity],
    metadata: Mapping[str, FileMetadata | None],
) -> Outputs:
    """`metadata`: that of the new files; None for a file that was removed before it could be read."""
    covered = joined(interval for source in sources for interval in source.covers)
    whole = all(source.covers for source in sources)
    first = min(source.min_timestamp for source in sources)
    last = max(source.max_timestamp for source in sources)
    made: dict[str, Identity] = {}
    unclear = 0 < sources_left < len(sources)
    for name, identity in new.items():
        known = metadata.get(name)
        if known is None:
            unclear = True
        elif known.covers == covered and first <= known.min_timestamp <= known.max_timestamp <= last:
            made[name] = identity
        elif meet(known.covers, covered):
            unclear = True
    if sources_left == len(sources) and not made and not unclear:
        return Outputs(none_of_it=True)
    without_trace = bool(new) and not (made or covered)
    return Outputs(made, unclear=unclear or without_trace, certain=whole)


# ---------------------------------------------------------------------------------------------------------------------
# Compacting one set of files, and measuring its output.
#
# First the files are checked, since the server may have compacted them itself. Running work is never interrupted: a
# user-defined compaction waits in the server's queue. Cassandra removes the replaced files a moment after it is done.
#
# Cassandra does not report which files a compaction wrote; flushes and other compactions of the table write files at
# the same time. They are distinguished by the segments of the commit log that they cover (above). Where that is not
# conclusive, the outcome is unknown.
# ---------------------------------------------------------------------------------------------------------------------

WORTH_IT = 10
"""A compaction that drops less than one in this many of the expected tombstones is fruitless."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait until the compacted files are removed. A reader may hold them. If no new file has appeared
    either, the server has declined the compaction."""

    replaced_s: float = 60.0
    nothing_new_s: float = 10.0
    check_again_s: float = 0.2


PATIENT = Patience()


@dataclass(frozen=True, slots=True)
class ExecutedCompaction:
    compaction: Compaction
    outcome: CompactionOutcome
    before: tuple[FileFacts, ...] | None = ()
    after: tuple[FileFacts, ...] | None = ()
    """The facts of the files before and after; None if they are not known."""
    kept: Mapping[str, int] | None = None
    made: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def dropped(self) -> int | None:
        if self.before is None or self.after is None:
            return None
        return max(0, _tombstones(self.before) - _tombstones(self.after))

    def document(self) -> CompactionResult:
        compaction, before, after = self.compaction, self.before, self.after
        return CompactionResult(
            candidate=compaction.candidate,
            table=compaction.table,
            reason=compaction.reason,
            files=compaction.files,
            outcome=self.outcome,
            problem=self.problem,
            bytes_expected=compaction.bytes,
            bytes_read=compaction.bytes if before is None else _bytes(before),
            bytes_written=None if after is None else _bytes(after),
            tombstones_expected=compaction.tombstones,
            tombstones_before=None if before is None else _tombstones(before),
            tombstones_after=None if after is None else _tombstones(after),
            dropped=self.dropped,
            kept=dict(self.kept or {}),
            points_expected=compaction.points,
            points_before=None if before is None else _points(before),
            points_after=None if after is None else _points(after),
            made=self.made,
        )


@dataclass(frozen=True, slots=True)
class ReadyPlan:
    """A plan that was just made, and how to carry it out."""

    plan: CompactionPlan
    server: ServerActivity
    compact: Callable[[Compaction], ExecutedCompaction]
    describe_blocked: DescribeBlocked = blocked_compaction


def compact_files(
    context: RoundContext, compaction: Compaction, table: TableFiles, patience: Patience = PATIENT
) -> ExecutedCompaction:
    """Compact files and measure the result. `table`: its state when the compaction was proven. Nothing is done unless
    the files are still the same."""
    before = _current_files(context, compaction.table)
    known = [table.files[name] for name in compaction.files]
    if [before.get(name) for name in compaction.files] != [each.identity for each in known]:
        return ExecutedCompaction(compaction, CompactionOutcome.GONE)
    try:
        context.node.nodetool("compact", "--user-defined", *compaction.files, changes=True)
    except NodetoolFailed:
        _remember_declined(context, compaction, table)  # or the next run would start with it again and fail
        raise
    outputs = _wait_for_outputs(context, compaction, known, before, patience)
    if outputs.none_of_it:
        _remember_declined(context, compaction, table)
        return ExecutedCompaction(compaction, CompactionOutcome.DECLINED)
    was = tuple(each.facts for each in known if each.facts is not None)
    after = None if outputs.unclear else _measured(context, outputs.made)
    if after is None:
        return ExecutedCompaction(compaction, CompactionOutcome.UNKNOWN, was, None, made=tuple(outputs.made))
    kept = _kept(context, compaction, table, after)
    result = ExecutedCompaction(compaction, CompactionOutcome.DONE, was, tuple(after.values()), kept, tuple(after))
    return _remember_fruitless(context, result, after) if _dropped_little(result) and outputs.certain else result


def _remember_declined(context: RoundContext, compaction: Compaction, table: TableFiles) -> None:
    candidate = compaction.candidate
    failed_attempts(context, DECLINED).add({candidate: declined_cause(candidate, table, context.now_s)})


def _dropped_little(result: ExecutedCompaction) -> bool:
    return (result.dropped or 0) * WORTH_IT < result.compaction.tombstones


def _wait_for_outputs(
    context: RoundContext,
    compaction: Compaction,
    known: list[KnownFile],
    before: Mapping[str, Identity],
    patience: Patience,
) -> Outputs:
    """Wait until the compacted files are removed, or the patience is over, and find the files that were written."""
    began = time.monotonic()
    while True:
        existing = _current_files(context, compaction.table)
        left = [name for name in compaction.files if name in existing]
        new = {name: identity for name, identity in existing.items() if name not in before}
        waited_s = time.monotonic() - began
        if not left or waited_s > (patience.replaced_s if new else patience.nothing_new_s):
            break
        time.sleep(patience.check_again_s)
    by_path = metadata_of(context.node, [Path(name) for name in new]) if new else {}
    metadata = {name: by_path.get(Path(name)) for name in new}
    return outputs_of(len(left), [each.metadata for each in known], new, metadata)


def _measured(context: RoundContext, files: Mapping[str, Identity]) -> dict[str, FileFacts] | None:
    """Measure the written files; None if one was replaced meanwhile or can't be read, so that the sum is not known."""
    found: dict[str, FileFacts] = {}
    for name, identity in files.items():
        line = context.measure(SSTable.at(Path(name), context.node.access), identity).line
        if line is None:
            return None
        found[name] = FileFacts.from_json(json.loads(line)["proof"])
    return found


def _kept(
    context: RoundContext, compaction: Compaction, table: TableFiles, after: Mapping[str, FileFacts]
) -> dict[str, int]:
    """Tombstones that were not dropped, by what keeps them."""
    waiting = sum(each.waiting for each in after.values())
    droppable = sum(each.tombstones for each in after.values())
    kept = {Blocker.GC_GRACE.value: waiting} if waiting else {}
    if droppable:
        kept[_keeper(context, compaction, table)] = droppable
    return kept


def _keeper(context: RoundContext, compaction: Compaction, table: TableFiles) -> str:
    """What keeps tombstones that were proven droppable: something the proof can't see, such as cells in memory."""
    if droppable_in(compaction.files, table) < droppable_in(table.files, table):
        return "overlap"
    in_memory = inspect_server(context.node, [compaction.table]).tables[compaction.table].memtable_cells
    return "memtable" if in_memory else "unknown"


def _remember_fruitless(
    context: RoundContext, result: ExecutedCompaction, made: Mapping[str, FileFacts]
) -> ExecutedCompaction:
    """Record the written files, so that they are not compacted again until something changes."""
    name = result.compaction.table
    measured = (*known_facts(context), *made.values())
    now = table_facts(context, inspect_server(context.node, [name]), [name], measured)[name]
    failed_attempts(context).add({file: cause_of(file, now) for file in made if file in now.files})
    return replace(result, outcome=CompactionOutcome.FRUITLESS)


def _current_files(context: RoundContext, table: str) -> dict[str, Identity]:
    files = replace(context, tables={table: context.tables[table]}).files()
    return {str(sstable.data): identity for sstable, identity in files.items()}


def _bytes(files: tuple[FileFacts, ...]) -> int:
    return sum(each.identity.size for each in files)


def _tombstones(files: tuple[FileFacts, ...]) -> int:
    return sum(each.tombstones + each.waiting for each in files)


def _points(files: tuple[FileFacts, ...]) -> int:
    return sum(each.keys for each in files)
