"""What a round has done: tombstones dropped, those kept by what keeps them, and partitions that readers will fail on.

Pure: the documents of the other steps in, one more out. What is kept adds up to what was measured in the end; what no
blocker answers for lies in files that are not dense enough to be worth a compaction. What is not known is said to be
so, and counts as nothing: how much a compaction dropped whose files were compacted again before anybody could look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

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


class Statement(NamedTuple):
    """One thing that is said of a round: as a word for scripts, and for people."""

    code: str
    sentence: str


def report(before: Given, planned: Given, done: Given, after: Given) -> Document:
    compactions = done["compactions"]
    kept = _kept(done, after)
    near = near_in(after)
    statements = [
        *_of_unread(done, after),
        *_of_done(done, after),
        *_of_kept(done, kept, after),
        *(Statement(NEAR_FAILING, near_failing(each)) for each in near),
    ]
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
        "left_out": list(after.get("left_out", ())),
        "ranges": planned.get("ranges", []),
        NEAR_FAILING: near,
        "sentences": [each.sentence for each in statements],
        "sentence_codes": [each.code for each in statements],
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


def _of_unread(done: Given, after: Given) -> list[Statement]:
    if not after["unreadable"]:
        return []
    return [Statement("unreadable", f"{done['node']}: {unread(after['unreadable'])}")]


def _of_done(done: Given, after: Given) -> list[Statement]:
    node = done["node"]
    found = [_of_compaction(node, each) for each in done["compactions"]]
    if done["stopped"]:
        found.append(Statement("stopped", f"{node}: stopped, {done['stopped'].replace('_', ' ')}"))
    if not found and done["blocked"]:
        number = len(done["blocked"])
        sentence = f"{node}: nothing is compacted, all {number} that are worth it are kept from it"
        found.append(Statement("all_blocked", sentence))
    if not found and after["unreadable"]:
        sentence = f"{node}: nothing to compact among the files that could be read"
        found.append(Statement("nothing_to_compact_in_readable", sentence))
    return found or [Statement("nothing_to_compact", f"{node}: nothing to compact")]


def _of_compaction(node: str, compaction: Given) -> Statement:
    number = len(compaction["files"])
    outcome = compaction["outcome"]
    what = f"{node}: {compaction['table']}: {f'{number} files' if number else 'a range of the ring'}"
    if outcome == Outcome.PLANNED:
        return Statement(outcome, f"{what} would be compacted, {compaction['tombstones_expected']} tombstones would go")
    if outcome == Outcome.FAILED:
        return Statement(outcome, f"{what}, failed: {compaction['problem']}")
    if compaction["dropped"] is None:
        return Statement("dropped_unknown", f"{what}, compacted; how many tombstones that dropped is not known")
    return Statement(outcome, f"{what}, {outcome}, {compaction['dropped']} tombstones dropped")


def _of_kept(done: Given, kept: Mapping[str, int], after: Given) -> list[Statement]:
    node = done["node"]
    said = [
        Statement("kept", f"{node}: {count} tombstones stay, {cause.replace('_', ' ')}")
        for cause, count in kept.items()
    ]
    if after["droppable_from_s"]:
        moment = shown_moment(after["droppable_from_s"])
        said.append(Statement("gc_grace_until", f"{node}: gc_grace will have passed for all at {moment}"))
    return said
