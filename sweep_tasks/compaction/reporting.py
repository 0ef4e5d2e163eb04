"""What a round has done: tombstones dropped, those kept by what keeps them, and partitions that readers will fail on.

Pure: the documents of the other steps in, one more out. What is kept adds up to what was measured in the end; what no
blocker answers for lies in files that are not dense enough to be worth a compaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from sweep_tasks.compaction.execution import Outcome
from sweep_tasks.compaction.proof import Blocker
from sweep_tasks.compaction.sentences import shown_moment
from sweep_tasks.compaction.summary import Document

NOT_DENSE = "not_dense"
NEAR_FAILING = "near_failing"
Given = Mapping[str, Any]


def report(before: Given, planned: Given, done: Given, after: Given) -> Document:
    compactions = done["compactions"]
    kept = _kept(done, after)
    near = [each for each in after["longest_runs"] if each["near_failing"]]
    return {
        "node": done["node"],
        "dry_run": done["dry_run"],
        "stopped": done["stopped"],
        "dropped": sum(each["dropped"] for each in compactions),
        "kept": kept,
        "droppable_from_s": after["droppable_from_s"],
        "points_no_longer_read": sum(max(0, each["points_before"] - each["points_after"]) for each in compactions),
        "bytes_rewritten": sum(each["bytes_read"] for each in compactions),
        "expected": {
            "dropped": sum(each["tombstones"] for each in planned["compactions"]),
            "bytes": sum(each["bytes"] for each in planned["compactions"]),
        },
        "tombstones": {"before": _tombstones(before), "after": _tombstones(after)},
        "outcomes": dict(Counter(each["outcome"] for each in compactions)),
        NEAR_FAILING: near,
        "sentences": [*_done_sentences(done), *_kept_sentences(done, kept, after), *map(_near_sentence, near)],
    }


def _kept(done: Given, after: Given) -> dict[str, int]:
    """gc_grace holds whatever waits for it; what could go is held by the blockers of its files, and else by nothing."""
    kept: Counter[str] = Counter()
    for each in done["compactions"]:
        kept.update({cause: count for cause, count in each["kept"].items() if cause != Blocker.GC_GRACE})
    for each in done["blocked"]:
        kept[each["blocker"]] += each["tombstones"]
    going = sum(each["tombstones_expected"] for each in done["compactions"] if each["outcome"] == Outcome.PLANNED)
    kept[NOT_DENSE] = max(0, after["droppable"] - kept.total() - going)
    kept[Blocker.GC_GRACE.value] += after["waiting"]
    return {cause: count for cause, count in kept.most_common() if count}


def _tombstones(measured: Given) -> int:
    return int(measured["droppable"] + measured["waiting"])


def _done_sentences(done: Given) -> list[str]:
    node = done["node"]
    if done["stopped"]:
        return [f"{node}: stopped, {done['stopped'].replace('_', ' ')}"]
    found = [f"{node}: {_done_sentence(each)}" for each in done["compactions"]]
    return found or [f"{node}: nothing to compact"]


def _done_sentence(compaction: Given) -> str:
    files = f"{compaction['table']}: {len(compaction['files'])} files"
    if compaction["outcome"] == Outcome.PLANNED:
        return f"{files} would be compacted, {compaction['tombstones_expected']} tombstones would go"
    return f"{files}, {compaction['outcome']}, {compaction['dropped']} tombstones dropped"


def _kept_sentences(done: Given, kept: Mapping[str, int], after: Given) -> list[str]:
    said = [f"{done['node']}: {count} tombstones stay, {cause.replace('_', ' ')}" for cause, count in kept.items()]
    if after["droppable_from_s"]:
        said.append(f"{done['node']}: gc_grace will have passed for all at {shown_moment(after['droppable_from_s'])}")
    return said


def _near_sentence(run: Given) -> str:
    return (
        f"{run['table']}: the partition at token {run['token']} has {run['longest_run']} dead cells in a row; "
        f"reads over it fail at {run['fails_at']}"
    )
