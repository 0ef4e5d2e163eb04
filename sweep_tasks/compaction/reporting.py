"""What a round has done: tombstones dropped, those kept by what keeps them, and partitions that readers will fail on.

Pure: the documents of the other steps in, one more out. What is kept adds up to what was measured in the end; what no
blocker answers for lies in files that are not dense enough to be worth a compaction. What is not known is said to be
so, and counts as nothing: how much a compaction dropped whose files were compacted again before anybody could look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from sweep_tasks.compaction.execution import Outcome
from sweep_tasks.compaction.proof import Blocker
from sweep_tasks.compaction.sentences import near_failing, shown_moment, unread
from sweep_tasks.compaction.summary import Document

NOT_DENSE = "not_dense"
NEAR_FAILING = "near_failing"
Given = Mapping[str, Any]
_NOTHING_CAME_OF_IT = {
    Outcome.GONE: NOT_DENSE,
    Outcome.DECLINED: Blocker.DECLINED.value,
    Outcome.FAILED: Outcome.FAILED.value,
}


def report(before: Given, planned: Given, done: Given, after: Given) -> Document:
    compactions = done["compactions"]
    kept = _kept(done, after)
    near = near_in(after)
    return {
        "node": done["node"],
        "dry_run": done["dry_run"],
        "stopped": done["stopped"],
        "dropped": sum(each["dropped"] or 0 for each in compactions),
        "not_known": sum(each["dropped"] is None for each in compactions),
        "kept": kept,
        "droppable_from_s": after["droppable_from_s"],
        "points_no_longer_read": sum(map(_points, compactions)),
        "bytes_rewritten": sum(each["bytes_read"] for each in compactions),
        "expected": {
            "dropped": _sum(planned["compactions"], "tombstones"),
            "bytes": _sum(planned["compactions"], "bytes"),
            "points": _sum(planned["compactions"], "points"),
        },
        "tombstones": {"before": _tombstones(before), "after": _tombstones(after)},
        "outcomes": dict(Counter(each["outcome"] for each in compactions)),
        "failed": [each["problem"] for each in compactions if each["outcome"] == Outcome.FAILED],
        "unreadable": list(after["unreadable"]),
        "ranges": planned.get("ranges", []),
        NEAR_FAILING: near,
        "sentences": [
            *_unread_sentences(done, after),
            *_done_sentences(done, after),
            *_kept_sentences(done, kept, after),
            *map(near_failing, near),
        ],
    }


def near_in(measured: Given) -> list[Document]:
    """Of a measurement, the partitions that a server soon gives up reading."""
    return [each for each in measured.get("longest_runs", ()) if each["near_failing"]]


def _kept(done: Given, after: Given) -> dict[str, int]:
    """gc_grace holds whatever waits for it; what could go is held by the blockers of its files, and else by nothing."""
    kept: Counter[str] = Counter()
    for each in done["compactions"]:
        kept.update({cause: count for cause, count in each["kept"].items() if cause != Blocker.GC_GRACE})
        if cause := _NOTHING_CAME_OF_IT.get(each["outcome"]):
            kept[cause] += each["tombstones_expected"]
    for each in done["blocked"]:
        kept[each["blocker"]] += each["tombstones"]
    going = sum(each["tombstones_expected"] for each in done["compactions"] if each["outcome"] == Outcome.PLANNED)
    kept[NOT_DENSE] += max(0, after["droppable"] - kept.total() - going)
    kept[Blocker.GC_GRACE.value] += after["waiting"]
    return {cause: count for cause, count in kept.most_common() if count}


def _sum(documents: Iterable[Given], name: str) -> int:
    return sum(each.get(name, 0) for each in documents)


def _points(compaction: Given) -> int:
    after = compaction["points_after"]
    return 0 if after is None else max(0, compaction["points_before"] - after)


def _tombstones(measured: Given) -> int:
    return int(measured["droppable"] + measured["waiting"])


def _unread_sentences(done: Given, after: Given) -> list[str]:
    return [f"{done['node']}: {unread(after['unreadable'])}"] if after["unreadable"] else []


def _done_sentences(done: Given, after: Given) -> list[str]:
    node = done["node"]
    found = [f"{node}: {_done_sentence(each)}" for each in done["compactions"]]
    if done["stopped"]:
        found.append(f"{node}: stopped, {done['stopped'].replace('_', ' ')}")
    if not found and done["blocked"]:
        found.append(f"{node}: nothing is compacted, all {len(done['blocked'])} that are worth it are kept from it")
    where = " among the files that could be read" if after["unreadable"] else ""
    return found or [f"{node}: nothing to compact{where}"]


def _done_sentence(compaction: Given) -> str:
    number = len(compaction["files"])
    what = f"{compaction['table']}: {f'{number} files' if number else 'a range of the ring'}"
    if compaction["outcome"] == Outcome.PLANNED:
        return f"{what} would be compacted, {compaction['tombstones_expected']} tombstones would go"
    if compaction["outcome"] == Outcome.FAILED:
        return f"{what}, failed: {compaction['problem']}"
    if compaction["dropped"] is None:
        return f"{what}, compacted; how many tombstones that dropped is not known"
    return f"{what}, {compaction['outcome']}, {compaction['dropped']} tombstones dropped"


def _kept_sentences(done: Given, kept: Mapping[str, int], after: Given) -> list[str]:
    said = [f"{done['node']}: {count} tombstones stay, {cause.replace('_', ' ')}" for cause, count in kept.items()]
    if after["droppable_from_s"]:
        said.append(f"{done['node']}: gc_grace will have passed for all at {shown_moment(after['droppable_from_s'])}")
    return said
