"""Plans and results as documents, and the report of a round in figures and in sentences. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from sweep_tasks.compaction.documents import (
    BlockedCompaction,
    CompactionOutcome,
    CompactionResult,
    DeadRun,
    ExpectedFigures,
    FileVerdict,
    Measurement,
    NodeFileVerdict,
    PlannedCompaction,
    RoundPlan,
    RoundReport,
    RoundResult,
    ServerState,
    TombstoneCounts,
)
from sweep_tasks.compaction.nodetool import ServerActivity
from sweep_tasks.compaction.planning import BlockedCandidate, Compaction
from sweep_tasks.compaction.proof import Blocked, Blocker
from sweep_tasks.compaction.rules import AssessedFile

# ---------------------------------------------------------------------------------------------------------------------
# Sentences about what keeps tombstones, each ending with what can be done about it.
# ---------------------------------------------------------------------------------------------------------------------

_SENTENCES = {
    Blocker.GC_GRACE: "gc_grace has not passed",
    Blocker.OVERLAP_TOO_LARGE: (
        "older files that may hold the same rows keep its tombstones, and rewriting them together exceeds the budget "
        "of this run (compaction_budget_bytes); run it with a larger budget when the node has little load"
    ),
    Blocker.TOO_LARGE: (
        "it is larger than the budget of this run (compaction_budget_bytes); run it with a larger budget when the node "
        "has little load"
    ),
    Blocker.ONLY_PURGE_REPAIRED: (
        "its table drops only repaired tombstones (only_purge_repaired_tombstones) and it is not repaired; "
        "run an incremental repair"
    ),
    Blocker.REPAIR: "a repair is running, or has marked files and not finished with them; wait for it to end",
    Blocker.OLD_SENTINELS: (
        "files with sentinels at write time -1, from an earlier version, keep its tombstones and can't be compacted "
        "together with it; compact the whole table once"
    ),
    Blocker.COMPACTION_DISABLED: (
        "compaction is disabled for its table; run 'nodetool enableautocompaction' or set 'enabled': true in its schema"
    ),
    Blocker.STRATEGY: "the compaction strategy of its table is not one of Cassandra 5.0, so its effect is not known",
    Blocker.TIME_WINDOWS: (
        "files of other time windows keep its tombstones, and windows are not merged; the tombstones are dropped when "
        "those windows expire"
    ),
    Blocker.APART: (
        "older files keep its tombstones that Cassandra does not compact together with it: they are in another data "
        "folder, or repaired while it is not; repair the table"
    ),
    Blocker.NOTHING_DROPPABLE: "it has no tombstones",
    Blocker.NOT_MEASURED: "it is new, or could not be read; the next run measures it",
    Blocker.FRUITLESS: "an earlier compaction of it dropped almost nothing, and nothing has changed since",
    Blocker.DECLINED: (
        "the server did not compact it when asked to, or failed to, and its log says why; it is retried when the files "
        "around it have changed, or next week"
    ),
    Blocker.FAILED: "an earlier compaction of this run failed, and none was started after that; the next run resumes",
    Blocker.SERVER_BUSY: "the server has compactions of its own to do, which have priority",
    Blocker.BUDGET: "the budget of this run is used up (compaction_budget_bytes); the next run resumes",
    Blocker.NEXT_ROUND: (
        "files that have to be compacted with it are in another compaction of this run; the next run checks again"
    ),
}


def blocked_sentence(candidate: BlockedCandidate) -> str:
    return f"{_SENTENCES[candidate.by.blocker]}{_until(candidate.by)}"


def remedy(candidate: BlockedCandidate) -> str | None:
    """The command that an operator may run to remove the blocker."""
    if candidate.by.blocker is Blocker.OLD_SENTINELS:
        return f"nodetool compact {candidate.table.replace('.', ' ', 1)}"
    if candidate.by.blocker is Blocker.ONLY_PURGE_REPAIRED:
        return f"nodetool repair {candidate.table.replace('.', ' ', 1)}"
    return None


def near_failing(run: DeadRun) -> str:
    """The sentence for a partition that a server will soon fail to read."""
    where = f"in {run.files} files" if run.files > 1 else "in one file"
    return (
        f"table {run.table}: a partition (token {run.token}) has {run.longest_run} dead cells in a row, "
        f"{where}, {run.held} of them still held by gc_grace; a read fails at {run.fails_at} of those"
    )


def unread(problems: Sequence[str]) -> str:
    """The sentence for files that could not be read: the tombstones in them are not known."""
    files = "a file" if len(problems) == 1 else f"{len(problems)} files"
    return f"{files} could not be read: {problems[0]}"


def shown_moment(at_s: int) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _until(by: Blocked) -> str:
    if by.until_s is None:
        return ""
    first = f", for the first at {shown_moment(by.first_s)}" if by.first_s and by.first_s != by.until_s else ""
    return f"; it will have passed at {shown_moment(by.until_s)}{first}"


# ---------------------------------------------------------------------------------------------------------------------
# From the plan of a step to its documents.
# ---------------------------------------------------------------------------------------------------------------------

DescribeBlocked = Callable[[BlockedCandidate], BlockedCompaction]


def server_state(server: ServerActivity) -> ServerState:
    return ServerState(pending=server.work.pending, running=server.work.running, repairing=server.repairing)


def file_verdict(verdict: AssessedFile) -> FileVerdict:
    """A figure that was not in the statistics of the file is not in the document either."""
    return FileVerdict(
        file=verdict.file,
        ratio=float(verdict.density.ratio),
        eligible=verdict.eligible,
        reason=verdict.reason,
        rank=verdict.rank,
        longest_run=None if verdict.reads is None else verdict.longest_run,
        reads=verdict.reads,
        overlap=None if verdict.overlap is None else float(verdict.overlap),
    )


def node_file_verdict(verdict: AssessedFile) -> NodeFileVerdict:
    return NodeFileVerdict(**dict(file_verdict(verdict)), table=verdict.table)


def planned_compaction(compaction: Compaction, server: ServerActivity) -> PlannedCompaction:
    return PlannedCompaction(
        candidate=compaction.candidate,
        table=compaction.table,
        reason=compaction.reason,
        rank=compaction.rank,
        files=compaction.files,
        bytes=compaction.bytes,
        tombstones=compaction.tombstones,
        points=compaction.points,
        flush=server.tables[compaction.table].memtable_cells > 0,
    )


def blocked_compaction(candidate: BlockedCandidate) -> BlockedCompaction:
    return BlockedCompaction(
        candidate=candidate.candidate,
        table=candidate.table,
        reason=candidate.reason,
        blocker=candidate.by.blocker,
        until_s=candidate.by.until_s,
        sentence=blocked_sentence(candidate),
        files=candidate.by.files,
        command=remedy(candidate),
        tombstones=candidate.tombstones,
        waiting=candidate.waiting,
    )


def block_planned(blocker: Blocker, planned: PlannedCompaction) -> BlockedCompaction:
    """A compaction of the plan that is not started."""
    by = Blocked(blocker)
    return blocked_compaction(
        BlockedCandidate(planned.candidate, planned.table, planned.reason, by, planned.tombstones)
    )


def expected_result(planned: PlannedCompaction) -> CompactionResult:
    """The result that a dry run shows: figures as they are expected, nothing read and nothing written."""
    return CompactionResult(
        candidate=planned.candidate,
        table=planned.table,
        reason=planned.reason,
        files=planned.files,
        outcome=CompactionOutcome.PLANNED,
        bytes_expected=planned.bytes,
        tombstones_expected=planned.tombstones,
        points_expected=planned.points,
    )


# ---------------------------------------------------------------------------------------------------------------------
# The report of a round: tombstones dropped, tombstones kept and by what, and partitions that reads will soon fail on.
#
# What is kept adds up to what was measured at the end; what no blocker accounts for lies in files that are not dense
# enough to deserve a compaction. A figure that is not known counts as zero and is reported as unknown: for example what
# a compaction dropped whose files were compacted again before they could be measured.
# ---------------------------------------------------------------------------------------------------------------------

NOT_DENSE = "not_dense"
NEAR_FAILING = "near_failing"
_WITHOUT_RESULT = {
    CompactionOutcome.GONE: NOT_DENSE,
    CompactionOutcome.DECLINED: Blocker.DECLINED.value,
    CompactionOutcome.FAILED: CompactionOutcome.FAILED.value,
}


class Statement(NamedTuple):
    """One statement about a round: a code for scripts, a sentence for people."""

    code: str
    sentence: str


def report(before: Measurement, planned: RoundPlan, done: RoundResult, after: Measurement) -> RoundReport:
    compactions = done.compactions
    kept = _kept(done, after)
    near = near_failing_runs(after)
    statements = [
        *_about_unreadable(done, after),
        *_about_compactions(done, after),
        *_about_kept(done, kept, after),
        *(Statement(NEAR_FAILING, near_failing(each)) for each in near),
    ]
    return RoundReport(
        node=done.node,
        dry_run=done.dry_run,
        stopped=done.stopped,
        dropped=sum(each.dropped or 0 for each in compactions),
        not_known=sum(each.dropped is None for each in compactions),
        kept=kept,
        droppable_from_s=after.droppable_from_s,
        points_no_longer_read=sum(map(_points_saved, compactions)),
        bytes_rewritten=sum(each.bytes_read for each in compactions),
        expected=ExpectedFigures(
            dropped=sum(each.tombstones for each in planned.compactions),
            bytes=sum(each.bytes for each in planned.compactions),
            points=sum(each.points for each in planned.compactions),
        ),
        tombstones=TombstoneCounts(before=before.droppable + before.waiting, after=after.droppable + after.waiting),
        outcomes=dict(Counter(each.outcome for each in compactions)),
        failed=tuple(each.problem or "" for each in compactions if each.outcome is CompactionOutcome.FAILED),
        unreadable=after.unreadable,
        left_out=after.left_out,
        ranges=planned.ranges or (),
        near_failing=near,
        sentences=tuple(each.sentence for each in statements),
        sentence_codes=tuple(each.code for each in statements),
    )


def near_failing_runs(measured: Measurement) -> tuple[DeadRun, ...]:
    return tuple(each for each in measured.longest_runs if each.near_failing)


def _kept(done: RoundResult, after: Measurement) -> dict[str, int]:
    """All that waits for gc_grace is kept by gc_grace; droppable tombstones are kept by the blockers of their files."""
    kept: Counter[str] = Counter()
    for each in done.compactions:
        kept.update({cause: count for cause, count in each.kept.items() if cause != Blocker.GC_GRACE})
        if cause := _WITHOUT_RESULT.get(each.outcome):
            kept[cause] += each.tombstones_expected
    for blocked in done.blocked:
        kept[blocked.blocker.value] += blocked.tombstones
    planned = sum(each.tombstones_expected for each in done.compactions if each.outcome is CompactionOutcome.PLANNED)
    kept[NOT_DENSE] += max(0, after.droppable - kept.total() - planned)
    kept[Blocker.GC_GRACE.value] += after.waiting
    return {cause: count for cause, count in kept.most_common() if count}


def _points_saved(compaction: CompactionResult) -> int:
    before, after = compaction.points_before, compaction.points_after
    return 0 if before is None or after is None else max(0, before - after)


def _about_unreadable(done: RoundResult, after: Measurement) -> list[Statement]:
    return [Statement("unreadable", f"{done.node}: {unread(after.unreadable)}")] if after.unreadable else []


def _about_compactions(done: RoundResult, after: Measurement) -> list[Statement]:
    found = [_about_compaction(done.node, each) for each in done.compactions]
    if done.stopped:
        found.append(Statement("stopped", f"{done.node}: stopped, {done.stopped.value.replace('_', ' ')}"))
    if not found and done.blocked:
        sentence = f"{done.node}: nothing is compacted, all {len(done.blocked)} candidates are blocked"
        found.append(Statement("all_blocked", sentence))
    if not found and after.unreadable:
        sentence = f"{done.node}: nothing to compact among the files that could be read"
        found.append(Statement("nothing_to_compact_in_readable", sentence))
    return found or [Statement("nothing_to_compact", f"{done.node}: nothing to compact")]


def _about_compaction(node: str, compaction: CompactionResult) -> Statement:
    number, outcome = len(compaction.files), compaction.outcome
    subject = f"{node}: {compaction.table}: {f'{number} files' if number else 'a range of the ring'}"
    if outcome is CompactionOutcome.PLANNED:
        expected = compaction.tombstones_expected
        return Statement(outcome.value, f"{subject} would be compacted, {expected} tombstones would be dropped")
    if outcome is CompactionOutcome.FAILED:
        return Statement(outcome.value, f"{subject}, failed: {compaction.problem}")
    if compaction.dropped is None:
        return Statement("dropped_unknown", f"{subject}, compacted; it is not known how many tombstones were dropped")
    return Statement(outcome.value, f"{subject}, {outcome.value}, {compaction.dropped} tombstones dropped")


def _about_kept(done: RoundResult, kept: Mapping[str, int], after: Measurement) -> list[Statement]:
    statements = [
        Statement("kept", f"{done.node}: {count} tombstones kept, {cause.replace('_', ' ')}")
        for cause, count in kept.items()
    ]
    if after.droppable_from_s:
        moment = shown_moment(after.droppable_from_s)
        statements.append(Statement("gc_grace_until", f"{done.node}: gc_grace will have passed for all at {moment}"))
    return statements
