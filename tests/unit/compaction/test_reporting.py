"""What is said of a round."""

from __future__ import annotations

from typing import Any

from sweep_tasks.compaction.reporting import report


def measured(droppable: int, waiting: int = 0, from_s: int | None = None, runs: Any = ()) -> dict[str, Any]:
    return {"droppable": droppable, "waiting": waiting, "droppable_from_s": from_s, "longest_runs": list(runs)}


def compaction(dropped: int, **more: Any) -> dict[str, Any]:
    told = {"table": "ks.t", "files": ["a", "b"], "outcome": "done", "bytes_read": 70, "bytes_written": 7}
    return {**told, "dropped": dropped, "kept": {}, "points_before": 30, "points_after": 10, **more}


def done(*compactions: Any, blocked: Any = (), **more: Any) -> dict[str, Any]:
    told = {"node": "one", "dry_run": False, "stopped": None, "compactions": list(compactions)}
    return {**told, "blocked": list(blocked), **more}


def blocked(blocker: str, tombstones: int) -> dict[str, Any]:
    return {"table": "ks.u", "blocker": blocker, "tombstones": tombstones, "waiting": 0}


PLANNED = {"compactions": [{"tombstones": 100, "bytes": 75}]}


def test_what_was_expected_and_what_came_of_it_stand_side_by_side() -> None:
    found = report(measured(100), PLANNED, done(compaction(90)), measured(10))
    assert (found["dropped"], found["expected"]["dropped"]) == (90, 100)
    assert (found["bytes_rewritten"], found["expected"]["bytes"]) == (70, 75)
    assert (found["points_no_longer_read"], found["tombstones"]) == (20, {"before": 100, "after": 10})


def test_what_is_kept_adds_up_to_what_is_there() -> None:
    told = done(compaction(90, kept={"overlap": 3, "gc_grace": 6}), blocked=[blocked("overlap_too_large", 8)])
    found = report(measured(100), PLANNED, told, measured(30, waiting=6, from_s=1_800_000_000))
    assert found["kept"] == {"not_dense": 19, "overlap_too_large": 8, "gc_grace": 6, "overlap": 3}
    assert sum(found["kept"].values()) == 30 + 6
    assert "one: gc_grace will have passed for all at 2027-01-15 08:00:00 UTC" in found["sentences"]


def test_nothing_done_is_said_and_by_what_it_was_stopped() -> None:
    quiet = report(measured(0), {"compactions": []}, done(), measured(0))
    assert (quiet["kept"], quiet["sentences"]) == ({}, ["one: nothing to compact"])
    stopped = report(measured(0), PLANNED, done(stopped="server_busy"), measured(0))
    assert stopped["sentences"] == ["one: stopped, server busy"]


def test_partitions_near_failing_are_told_by_their_token_alone() -> None:
    run = {"table": "ks.t", "token": -42, "longest_run": 59_800, "fails_at": 100_000, "file": "f", "reads": "warned"}
    runs = [{**run, "near_failing": True}, {**run, "near_failing": False, "longest_run": 1_000}]
    found = report(measured(0), PLANNED, done(), measured(0, runs=runs))
    assert found["near_failing"] == runs[:1]
    assert (
        "ks.t: the partition at token -42 has 59800 dead cells in a row; reads over it fail at 100000"
        in (found["sentences"])
    )


def test_what_a_dry_run_would_drop_is_not_called_kept() -> None:
    would = compaction(0, outcome="planned", tombstones_expected=90, points_before=0, points_after=0, bytes_read=0)
    found = report(measured(100), PLANNED, done(would, dry_run=True), measured(100))
    assert (found["dropped"], found["kept"]) == (0, {"not_dense": 10})
    assert found["sentences"][0] == "one: ks.t: 2 files would be compacted, 90 tombstones would go"
