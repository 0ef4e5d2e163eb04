"""The report of the demo: what a sweep did to a store, as one document and as tables for people.

For each strategy and shard it has what was read, removed, parked and blocked, and the progress; then the store before
and after the sweep; then what is still kept, and why. The tables show nothing that the document does not contain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any, Self

from pydantic import BaseModel, ConfigDict
from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.coordination.clock_history import ClockHistory
from sweep_tasks.demo.measure import Kept, KeptReason, Measured, kept
from sweep_tasks.diagnosis.lag import lag_s, swept_up_to
from sweep_tasks.model import SweepStrategy
from sweep_tasks.store.contract import Store
from sweep_tasks.sweep.summary import Summary
from sweep_tasks.texts import duration

_MEANINGS = {
    KeptReason.NEWEST: "live: the newest version",
    KeptReason.RETENTION: "within retention: replaced less than {retention} ago",
    KeptReason.OPEN_TRANSACTION: "needed by the open transaction of {by} ({ago})",
    KeptReason.PROTECTED: "protected by the record {by}",
    KeptReason.BLOCKED: "blocked by the transaction started at {by}, which committed after the sweep timestamp",
    KeptReason.QUEUED: "queued: the next sweep removes them",
    KeptReason.PARKED: "parked: waiting for replicas",
    KeptReason.NOT_COMMITTED: "never committed: a later sweep removes them",
    KeptReason.SENTINEL: "sentinels: they show readers of old snapshots that a version was removed",
    KeptReason.NO_QUEUE_ENTRY: "not in the queue: {by} is never swept, or they were written before there was a queue",
}
_LONGER_RETENTION = "within the longer retention of {by}: replaced less than {retention} ago"


class SweptShard(BaseModel, defer_build=True):
    """The summary of one shard's sweep, with what the demo has measured. Other fields of the summary are kept."""

    model_config = ConfigDict(frozen=True, extra="allow")

    strategy: SweepStrategy
    shard: int
    entries: int
    parked: int
    blocked: int
    progress: int
    stopped: str | None
    seconds: dict[str, float]
    removed: int
    lag_s: int | None


class StoreFigures(BaseModel, defer_build=True):
    """What a store contains, and how long it takes to read all of it."""

    model_config = ConfigDict(frozen=True)

    versions: int
    versions_by_table: dict[str, int]
    cells: int
    queue_entries: int
    dedicated_rows: int
    parked: int
    bytes_used: int | None
    bytes_free: int | None
    scan_s: float

    @classmethod
    def of(cls, measured: Measured) -> Self:
        return cls(
            versions=sum(measured.versions.values()),
            versions_by_table={str(table): number for table, number in measured.versions.items()},
            cells=measured.cells,
            queue_entries=measured.queue_entries,
            dedicated_rows=measured.dedicated_rows,
            parked=measured.parked,
            bytes_used=measured.size.used if measured.size else None,
            bytes_free=measured.size.free if measured.size else None,
            scan_s=round(measured.scan_s, 4),
        )


class KeptVersions(BaseModel, defer_build=True):
    """How many versions are kept for one reason, and the reason in words."""

    model_config = ConfigDict(frozen=True)

    reason: KeptReason
    by: str | None
    versions: int
    says: str


class DemoReport(BaseModel, defer_build=True):
    """The whole report. What a command adds to it is left out of the document unless it is given."""

    model_config = ConfigDict(frozen=True)

    store: str = ""
    shards: tuple[SweptShard, ...]
    before: StoreFigures
    after: StoreFigures
    kept: tuple[KeptVersions, ...]
    engine: str = ""
    airflow: bool = False
    moments: dict[str, int] = {}
    """By table, the number of snapshots that were compared before and after the sweep."""

    def document(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_unset=True)


def report_on(
    store: Store,
    settings: Settings,
    clock: Clock,
    summaries: Collection[Summary],
    before: Measured,
    after: Measured,
) -> DemoReport:
    now_ms = clock.now_ms()
    lags = {
        (each.strategy, each.shard): None if each.moment_ms is None else lag_s(each.moment_ms, now_ms)
        for each in swept_up_to(store)
    }
    shards = []
    for summary in summaries:
        queue = summary.strategy, summary.shard
        removed = before.by_shard.get(queue, 0) - after.by_shard.get(queue, 0)
        shards.append(SweptShard(**summary.document(), removed=removed, lag_s=lags.get(queue)))
    return DemoReport(
        shards=tuple(shards),
        before=StoreFigures.of(before),
        after=StoreFigures.of(after),
        kept=_explain(store, settings, now_ms, kept(store, settings, clock)),
    )


def _explain(store: Store, settings: Settings, now_ms: int, counted: Counter[Kept]) -> tuple[KeptVersions, ...]:
    retentions = {str(table): found.retention_s for table, found in store.tables().items()}
    clock_history = ClockHistory(store)

    def says(why: Kept) -> str:
        by, retention, ago = why.by or "", settings.retention_s, ""
        text = _MEANINGS[why.reason]
        if why.reason is KeptReason.RETENTION and why.by:
            text, retention = _LONGER_RETENTION, retentions[why.by] or 0
        if why.reason is KeptReason.OPEN_TRANSACTION:
            moment = None if why.lease_ts is None else clock_history.moment_of(why.lease_ts)
            ago = "for an unknown time" if moment is None else f"{duration((now_ms - moment) // 1000)} ago"
        return text.format(by=by, retention=duration(retention), ago=ago)

    return tuple(
        KeptVersions(reason=why.reason, by=why.by, versions=number, says=says(why))
        for why, number in counted.most_common()
    )


# --- for people -------------------------------------------------------------------------------------------------


def render(report: DemoReport) -> Group:
    return Group(
        _heading("What the sweep did"),
        _shards(report.shards),
        _heading("The store before and after"),
        _before_and_after(report.before, report.after),
        _heading(f"The {report.after.versions:,} versions that are still kept, and why"),
        _kept(report.kept),
    )


def show(out: Console, report: DemoReport) -> None:
    out.print(render(report))


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _table(*columns: str) -> Table:
    """Text is aligned to the left; a column whose name begins with > is aligned to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for column in columns:
        name = column.removeprefix(">")
        table.add_column(name, justify="right" if column != name else "left", no_wrap=True)
    return table


def _shards(shards: Collection[SweptShard]) -> Table:
    table = _table("strategy", ">shard", ">read", ">removed", ">parked", ">blocked", "progress", "ended", ">took")
    for shard in shards:
        table.add_row(
            shard.strategy.value,
            str(shard.shard),
            *(f"{figure:,}" for figure in (shard.entries, shard.removed, shard.parked, shard.blocked)),
            f"{shard.progress}" + ("" if shard.lag_s is None else f", {duration(shard.lag_s)} ago"),
            shard.stopped or "done",
            f"{sum(shard.seconds.values()):.1f} s",
        )
    return table


def _before_and_after(before: StoreFigures, after: StoreFigures) -> Table:
    table = _table("", ">before", ">after", ">")

    def row(name: str, was: float | None, now: float | None, shown: str = ",", unit: str = "") -> None:
        if was is None or now is None:
            return
        change = f"{(now - was) / was:+.0%}" if was and now != was else ""
        table.add_row(name, f"{was:{shown}}{unit}", f"{now:{shown}}{unit}", change)

    for name, was in before.versions_by_table.items():
        row(f"versions in {name}", was, after.versions_by_table[name])
    table.add_section()
    row("versions", before.versions, after.versions)
    row("cells", before.cells, after.cells)
    row("entries in the queue", before.queue_entries, after.queue_entries)
    row("dedicated rows in the queue", before.dedicated_rows, after.dedicated_rows)
    row("parked entries", before.parked, after.parked)
    table.add_section()
    row("in use", _megabytes(before.bytes_used), _megabytes(after.bytes_used), ".1f", " MB")
    row("free in the file, for new data", _megabytes(before.bytes_free), _megabytes(after.bytes_free), ".1f", " MB")
    row("reading every cell once", before.scan_s * 1000, after.scan_s * 1000, ".0f", " ms")
    return table


def _megabytes(size: int | None) -> float | None:
    return None if size is None else size / 1_000_000


def _kept(reasons: Collection[KeptVersions]) -> Table:
    table = _table(">versions", "why")
    table.columns[1].no_wrap = False
    for each in reasons:
        table.add_row(f"{each.versions:,}", each.says)
    return table
