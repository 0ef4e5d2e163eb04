"""The report of a round."""

from __future__ import annotations

from typing import Any

from sweep_tasks.compaction.documents import (
    BlockedCompaction,
    CompactionResult,
    DeadRun,
    LeftOut,
    Measurement,
    PlannedCompaction,
    RoundPlan,
    RoundReport,
    RoundResult,
    ServerState,
)
from sweep_tasks.compaction.planning import BlockedCandidate
from sweep_tasks.compaction.proof import Blocked, Blocker
from sweep_tasks.compaction.reports import blocked_compaction, near_failing, report
from sweep_tasks.compaction.rules import CandidateReason
from sweep_tasks.sstables.statistics import Reads

NODE = "cassandra7"


def measured(
    droppable: int, waiting: int = 0, from_s: int | None = None, runs: Any = (), unreadable: Any = ()
) -> Measurement:
    counts: dict[str, Any] = {"droppable": droppable, "waiting": waiting, "droppable_from_s": from_s}
    return Measurement(node=NODE, at_s=7, **counts, longest_runs=tuple(runs), unreadable=tuple(unreadable))


def compaction(dropped: int | None, **more: Any) -> CompactionResult:
    known: dict[str, Any] = {"candidate": "a", "table": "ks.t", "reason": "dense", "files": ["a", "b"]}
    known |= {"outcome": "done", "bytes_read": 70, "bytes_written": 7, "points_before": 30, "points_after": 10}
    known |= {"bytes_expected": 75, "tombstones_expected": 0, "points_expected": 40}
    return CompactionResult.model_validate({**known, "dropped": dropped, **more})


def done(*compactions: CompactionResult, blocked: Any = (), **more: Any) -> RoundResult:
    return RoundResult(node=NODE, at_s=7, compactions=compactions, blocked=tuple(blocked), **more)


def blocked(blocker: str, tombstones: int) -> BlockedCompaction:
    by = Blocked(Blocker(blocker))
    return blocked_compaction(BlockedCandidate("c", "ks.u", CandidateReason.DENSE, by, tombstones))


def planned(*compactions: PlannedCompaction) -> RoundPlan:
    idle = ServerState(pending=0, running=0, repairing=False)
    return RoundPlan(node=NODE, at_s=7, budget_bytes=1_000, server=idle, compactions=compactions)


def output(found: RoundReport, code: str) -> str:
    """The one sentence of that code. Every sentence has a code, and names the node, or else a table."""
    sentences = list(zip(found.sentence_codes, found.sentences, strict=True))
    assert all(NODE in sentence for each, sentence in sentences if each != "near_failing")
    (sentence,) = [sentence for each, sentence in sentences if each == code]
    return sentence


NOTHING = planned()
PLANNED = planned(
    PlannedCompaction(
        candidate="a", table="ks.t", reason=CandidateReason.DENSE, rank=1, files=("a", "b"), bytes=75, tombstones=100,
        points=40, flush=False,
    )
)  # fmt: skip


def test_expected_and_actual_results_are_shown_side_by_side() -> None:
    found = report(measured(100), PLANNED, done(compaction(90)), measured(10))
    assert (found.dropped, found.expected.dropped) == (90, 100)
    assert (found.bytes_rewritten, found.expected.bytes) == (70, 75)
    assert (found.points_no_longer_read, found.expected.points) == (20, 40)
    assert found.tombstones.document() == {"before": 100, "after": 10}


def test_what_is_kept_adds_up_to_what_is_there() -> None:
    reported = done(compaction(90, kept={"overlap": 3, "gc_grace": 6}), blocked=[blocked("overlap_too_large", 8)])
    found = report(measured(100), PLANNED, reported, measured(30, waiting=6, from_s=1_800_000_000))
    assert found.kept == {"not_dense": 19, "overlap_too_large": 8, "gc_grace": 6, "overlap": 3}
    assert sum(found.kept.values()) == 30 + 6
    assert found.droppable_from_s == 1_800_000_000
    assert "2027-01-15 08:00:00 UTC" in output(found, "gc_grace_until")


def test_a_run_that_did_nothing_is_reported_with_what_stopped_it() -> None:
    quiet = report(measured(0), NOTHING, done(), measured(0))
    assert (quiet.kept, quiet.sentence_codes) == ({}, ("nothing_to_compact",))
    assert output(quiet, "nothing_to_compact")
    stopped = report(measured(0), PLANNED, done(stopped="server_busy"), measured(0))
    assert (stopped.stopped, stopped.sentence_codes) == ("server_busy", ("stopped",))
    assert all(word in output(stopped, "stopped") for word in ["server", "busy"])


def test_files_that_could_not_be_read_are_no_files_without_tombstones() -> None:
    problems = ["a is damaged", "b is damaged"]
    left_out = tuple(LeftOut(kind="unreadable", file=file, reason="exit_127") for file in "ab")
    after = measured(0, unreadable=problems).model_copy(update={"left_out": left_out})
    found = report(measured(0), NOTHING, done(), after)
    assert (found.unreadable, found.left_out) == (tuple(problems), left_out)
    assert found.sentence_codes == ("unreadable", "nothing_to_compact_in_readable")
    assert all(each in output(found, "unreadable") for each in ("2", problems[0]))


def test_work_done_before_the_stop_is_reported() -> None:
    reported = done(compaction(90), stopped="repair", blocked=[blocked("repair", 5)])
    found = report(measured(100), PLANNED, reported, measured(5))
    assert found.sentence_codes == ("done", "stopped", "kept")
    assert all(each in output(found, "done") for each in ("ks.t", "2", "done", "90"))
    assert "repair" in output(found, "stopped")
    assert (found.kept, found.stopped) == ({"repair": 5}, "repair")


def test_a_fully_blocked_run_is_not_reported_as_having_nothing_to_do() -> None:
    found = report(measured(8), NOTHING, done(blocked=[blocked("budget", 8)]), measured(8))
    assert (found.sentence_codes, found.kept) == (("all_blocked", "kept"), {"budget": 8})
    assert "1" in output(found, "all_blocked")
    assert all(each in output(found, "kept") for each in ("8", "budget"))


def test_what_the_server_declined_was_not_rewritten_and_is_kept_by_that() -> None:
    reported = compaction(0, outcome="declined", tombstones_expected=100, bytes_read=0, points_before=0, points_after=0)
    found = report(measured(100), PLANNED, done(reported), measured(100))
    assert (found.bytes_rewritten, found.kept) == (0, {"declined": 100})


def test_unknown_figures_count_as_zero_and_are_marked() -> None:
    reported = compaction(None, outcome="unknown", tombstones_expected=100, points_after=None)
    found = report(measured(100), PLANNED, done(reported, compaction(7)), measured(0))
    assert (found.dropped, found.not_known, found.points_no_longer_read) == (7, 1, 20)
    assert found.sentence_codes == ("dropped_unknown", "done")
    assert all(each in output(found, "dropped_unknown") for each in ("ks.t", "2"))


def test_a_failure_is_reported_with_its_cause() -> None:
    reported = compaction(0, outcome="failed", problem="no room", tombstones_expected=9)
    found = report(measured(9), PLANNED, done(reported, stopped="failed"), measured(9))
    assert (found.failed, found.kept) == (("no room",), {"failed": 9})
    assert "no room" in output(found, "failed")


def test_partitions_near_failing_are_reported_by_their_token_only() -> None:
    run = DeadRun(
        table="ks.t", token=-42, longest_run=300_000, held=60_000, fails_at=100_000, file="f", reads=Reads.FAILING,
        near_failing=True,
    )  # fmt: skip
    runs = (run, run.model_copy(update={"near_failing": False, "held": 1_000}))
    found = report(measured(0), PLANNED, done(), measured(0, runs=runs))
    assert found.near_failing == runs[:1]
    sentence = output(found, "near_failing")
    assert all(each in sentence for each in ("ks.t", "-42", "300000", "60000", "100000"))
    in_many = near_failing(run.model_copy(update={"files": 17}))
    assert ("17" in in_many, "17" in sentence) == (True, False)


def test_what_a_dry_run_would_drop_is_not_called_kept() -> None:
    would = compaction(0, outcome="planned", tombstones_expected=90, points_before=0, points_after=0, bytes_read=0)
    found = report(measured(100), PLANNED, done(would, dry_run=True), measured(100))
    assert (found.dropped, found.kept) == (0, {"not_dense": 10})
    assert found.sentence_codes == ("planned", "kept")
    assert all(each in output(found, "planned") for each in ("ks.t", "2", "90"))
