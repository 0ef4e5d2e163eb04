"""What keeps tombstones where they are, in a sentence that ends with what can be done about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sweep_tasks.compaction.planning import Stopped
from sweep_tasks.compaction.proof import Blocked, Blocker

_WORDS = {
    Blocker.GC_GRACE: "gc_grace has not passed",
    Blocker.OVERLAP_TOO_LARGE: (
        "older files that may hold the same rows keep its tombstones, and rewriting them with it is more than "
        "this run may (compaction_budget_bytes); run it with more at a quiet hour"
    ),
    Blocker.TOO_LARGE: (
        "it is larger than what this run may rewrite (compaction_budget_bytes); run it with more at a quiet hour"
    ),
    Blocker.ONLY_PURGE_REPAIRED: (
        "its table drops only repaired tombstones (only_purge_repaired_tombstones) and it is not repaired; "
        "run an incremental repair"
    ),
    Blocker.REPAIR: "a repair is under way, or has marked files that it is not done with; wait for its end",
    Blocker.OLD_SENTINELS: (
        "files with sentinels at write time -1, as they were written once, keep its tombstones and can't go along; "
        "compact the whole table once"
    ),
    Blocker.COMPACTION_DISABLED: (
        "compaction is switched off for its table; 'nodetool enableautocompaction', or 'enabled': true in its schema"
    ),
    Blocker.STRATEGY: "the compaction strategy of its table is not one of Cassandra 5.0, so what it does is not known",
    Blocker.TIME_WINDOWS: (
        "files of other time windows keep its tombstones, and windows are not merged; they go when those windows expire"
    ),
    Blocker.APART: (
        "older files keep its tombstones that Cassandra does not compact together with it: of another data folder, or "
        "repaired where it is not; repair the table"
    ),
    Blocker.NOTHING_DROPPABLE: "it has no tombstones",
    Blocker.NOT_MEASURED: "it is new, or could not be read; the next run measures it",
    Blocker.FRUITLESS: "it was compacted before and next to nothing was dropped, and nothing has changed since",
    Blocker.DECLINED: (
        "the server did not compact it when it was asked to, or failed at it, and its log says why; it is asked again "
        "when the files around it have changed, or next week"
    ),
    Blocker.FAILED: "one before it failed, and none was begun after that; the next run goes on",
    Blocker.SERVER_BUSY: "the server has compactions of its own to do, which go first",
    Blocker.BUDGET: "what this run may rewrite is used up (compaction_budget_bytes); the next run goes on",
    Blocker.NEXT_ROUND: "files that have to go along are in another compaction of this run; the next run looks again",
}


def sentence(stopped: Stopped) -> str:
    return f"{_WORDS[stopped.by.blocker]}{_moment(stopped.by)}"


def command(stopped: Stopped) -> str | None:
    """What an operator may run about it, as it has to be typed."""
    if stopped.by.blocker is Blocker.OLD_SENTINELS:
        return f"nodetool compact {stopped.table.replace('.', ' ', 1)}"
    if stopped.by.blocker is Blocker.ONLY_PURGE_REPAIRED:
        return f"nodetool repair {stopped.table.replace('.', ' ', 1)}"
    return None


def near_failing(run: Mapping[str, Any]) -> str:
    """Of a partition that a server soon gives up reading."""
    where = f"in {run['files']} files" if run.get("files", 1) > 1 else "in one file"
    return (
        f"table {run['table']}: a partition (token {run['token']}) has {run['longest_run']} dead cells in a row, "
        f"{where}, {run['held']} of them still held by gc_grace; a read fails at {run['fails_at']} of those"
    )


def unread(problems: Sequence[str]) -> str:
    """Of files that were left out since nobody could read them: nothing is known of the tombstones in them."""
    files = "a file" if len(problems) == 1 else f"{len(problems)} files"
    return f"{files} could not be read: {problems[0]}"


def shown_moment(at_s: int) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _moment(by: Blocked) -> str:
    if by.until_s is None:
        return ""
    first = f", for the first at {shown_moment(by.first_s)}" if by.first_s and by.first_s != by.until_s else ""
    return f"; it will have passed at {shown_moment(by.until_s)}{first}"
