"""What a sweep did to a store, as one document, and the same for people.

Per strategy and shard what was read, removed, parked and blocked, and how far it got; the store before and after; what
is still kept, and why. People see nothing that the document does not hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.demo.kept import Kept, Reason, kept
from sweep_tasks.demo.measure import Measured
from sweep_tasks.durations import short
from sweep_tasks.model import SweepStrategy
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.lag import lag_s, swept_up_to
from sweep_tasks.timestamps.puncher import Puncher

Document = dict[str, Any]

_MEANINGS = {
    Reason.NEWEST: "live: what readers of today see",
    Reason.RETENTION: "within retention: replaced less than {retention} ago",
    Reason.OPEN_TRANSACTION: "needed by the open transaction of {by} ({ago})",
    Reason.PROTECTED: "protected by the record {by}",
    Reason.BLOCKED: "behind the transaction started at {by}, which committed after the sweep timestamp",
    Reason.QUEUED: "queued: nothing holds them, the next sweep takes them",
    Reason.PARKED: "parked: waiting for replicas",
    Reason.NOT_COMMITTED: "never committed: their sweep is still to come",
    Reason.SENTINEL: "sentinels: they tell readers of the past that something is gone",
    Reason.NO_QUEUE_ENTRY: "{by} is never swept, or was written before there was a queue",
}
_LONGER_RETENTION = "within the longer retention of {by}: replaced less than {retention} ago"


def document(
    store: Store,
    settings: Settings,
    clock: Clock,
    summaries: Collection[Mapping[str, Any]],
    before: Measured,
    after: Measured,
) -> Document:
    now_ms = clock.now_ms()
    progress = {
        (each.strategy, each.shard): None if each.moment_ms is None else lag_s(each.moment_ms, now_ms)
        for each in swept_up_to(store)
    }
    shards = []
    for summary in summaries:
        queue = SweepStrategy(summary["strategy"]), int(summary["shard"])
        removed = before.by_shard.get(queue, 0) - after.by_shard.get(queue, 0)
        shards.append({**summary, "removed": removed, "lag_s": progress.get(queue)})
    return {
        "shards": shards,
        "before": before.document(),
        "after": after.document(),
        "kept": _explained(store, settings, now_ms, kept(store, settings, clock)),
    }


def _explained(store: Store, settings: Settings, now_ms: int, counted: Counter[Kept]) -> list[Document]:
    retentions = {str(table): found.retention_s for table, found in store.tables().items()}
    puncher = Puncher(store)

    def says(why: Kept) -> str:
        by, retention, ago = why.by or "", settings.retention_s, ""
        text = _MEANINGS[why.reason]
        if why.reason is Reason.RETENTION and why.by:
            text, retention = _LONGER_RETENTION, retentions[why.by] or 0
        if why.reason is Reason.OPEN_TRANSACTION:
            moment = puncher.moment_of(int(by.rpartition(" ")[2]))
            ago = "for an unknown time" if moment is None else f"{short((now_ms - moment) // 1000)} ago"
        return text.format(by=by, retention=short(retention), ago=ago)

    return [
        {"reason": why.reason.value, "by": why.by, "versions": number, "says": says(why)}
        for why, number in counted.most_common()
    ]


# --- for people -------------------------------------------------------------------------------------------------


def render(report: Document) -> Group:
    return Group(
        _heading("What the sweep did"),
        _shards(report["shards"]),
        _heading("The store, before and after"),
        _before_and_after(report["before"], report["after"]),
        _heading(f"The {report['after']['versions']:,} versions that are still kept, and why"),
        _kept(report["kept"]),
    )


def show(out: Console, report: Document) -> None:
    out.print(render(report))


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _table(*columns: str) -> Table:
    """Words to the left, figures to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for column in columns:
        name = column.removeprefix(">")
        table.add_column(name, justify="right" if column != name else "left", no_wrap=True)
    return table


def _shards(shards: list[Document]) -> Table:
    table = _table("strategy", ">shard", ">read", ">removed", ">parked", ">blocked", "got to", "ended", ">took")
    for shard in shards:
        figures = (f"{shard[name]:,}" for name in ("entries", "removed", "parked", "blocked"))
        lag = shard["lag_s"]
        table.add_row(
            shard["strategy"],
            str(shard["shard"]),
            *figures,
            f"{shard['progress']}" + ("" if lag is None else f", {short(lag)} ago"),
            shard["stopped"] or "done",
            f"{sum(shard['seconds'].values()):.1f} s",
        )
    return table


def _before_and_after(before: Document, after: Document) -> Table:
    table = _table("", ">before", ">after", ">")

    def row(name: str, was: float | None, now: float | None, shown: str = ",", unit: str = "") -> None:
        if was is None or now is None:
            return
        change = f"{(now - was) / was:+.0%}" if was and now != was else ""
        table.add_row(name, f"{was:{shown}}{unit}", f"{now:{shown}}{unit}", change)

    for name, was in before["versions_by_table"].items():
        row(f"versions in {name}", was, after["versions_by_table"][name])
    table.add_section()
    row("versions", before["versions"], after["versions"])
    row("cells", before["cells"], after["cells"])
    row("entries in the queue", before["queue_entries"], after["queue_entries"])
    row("large transactions' rows in it", before["dedicated_rows"], after["dedicated_rows"])
    row("entries parked", before["parked"], after["parked"])
    table.add_section()
    if before["bytes_used"] is not None:
        for name, shown in (("bytes_used", "bytes in use"), ("bytes_free", "free in the file, for new data")):
            row(shown, before[name] / 1_000_000, after[name] / 1_000_000, ".1f", " MB")
    row("reading every cell once", before["scan_s"] * 1000, after["scan_s"] * 1000, ".0f", " ms")
    return table


def _kept(reasons: list[Document]) -> Table:
    table = _table(">versions", "why")
    table.columns[1].no_wrap = False
    for each in reasons:
        table.add_row(f"{each['versions']:,}", each["says"])
    return table
