"""`sweepflow status`: what is behind, what causes it, and what to do."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sweep_tasks.cli.command import Command, Console, command, escape, seconds
from sweep_tasks.cli.options import JsonOption, StoreOption
from sweep_tasks.clock import SystemClock
from sweep_tasks.diagnosis.problems import Verdict
from sweep_tasks.diagnosis.status import ShardBacklog, ShardStatus, Status
from sweep_tasks.diagnosis.status import status as read_status
from sweep_tasks.errors import EXITS_BY_VERDICT, BadValue, SweepflowError
from sweep_tasks.metrics.samples import take_sample
from sweep_tasks.metrics.tally import LastSweep
from sweep_tasks.queue.progress import NEVER_SWEPT
from sweep_tasks.texts import duration, printable

_COLOURS = {Verdict.OK: "green", Verdict.ATTENTION: "yellow", Verdict.BEHIND: "red"}
HEADLINES = {
    Verdict.OK: "up to date",
    Verdict.ATTENTION: "needs attention",
    Verdict.BEHIND: "behind",
}
OUTDATED = "not up to date since"
_MOST_PROTECTIONS = 10
_MOST_SHARDS = 16


def status(
    ctx: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    every: Annotated[str, typer.Option(metavar="TIME", help="Refresh interval of --watch: 5s, 1m.")] = "5s",
    count: Annotated[bool, typer.Option("--count", help="Count parked and quarantined entries now.")] = False,
    every_shard: Annotated[
        bool, typer.Option("--all", help="Show all shards, not only those with the greatest lag.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show up to when the store is swept, what is behind, and what to do about it.

    Exit codes: 0 up to date; 6 something needs attention; 7 a shard is behind its objective.
    """
    with command(ctx, store, as_json) as run:
        if watch and run.as_json:
            raise BadValue("watch", "can't be combined with --json; run the command repeatedly instead")
        every_s = seconds(every, "every")
        if not every_s:
            raise BadValue("every", "is 0; give 1s or more", reason="zero")
        found = _read(run, count)
        if watch:
            found = _watch(run, found, every_s, every_shard)
        run.answer(found.document(), lambda out: out.print(shown(found, every_shard)))
        code = EXITS_BY_VERDICT[found.health.verdict]
        if code:
            raise typer.Exit(code)


def _read(run: Command, count: bool = False) -> Status:
    clock = SystemClock()
    if count:
        take_sample(run.store, clock)
    return read_status(run.store, run.settings, clock)


def _watch(run: Command, found: Status, every_s: float, every_shard: bool) -> Status:
    """Show the status until Ctrl-C, and return the last one. If the store stops answering, show that and retry."""
    try:
        with Live(shown(found, every_shard), console=Console(), screen=True) as live:
            while True:
                time.sleep(every_s)
                try:
                    found = _read(run)
                    live.update(shown(found, every_shard), refresh=True)
                except SweepflowError as error:
                    live.update(Group(_outdated(found, error), shown(found, every_shard)), refresh=True)
    except KeyboardInterrupt:
        return found


def _outdated(found: Status, error: SweepflowError) -> Text:
    return Text(f"{OUTDATED} {found.now[:19]}: {printable(str(error))}\n", style="bold red reverse")


# --- for people -------------------------------------------------------------------------------------------------------


def shown(found: Status, every_shard: bool = False) -> RenderableType:
    parts: list[RenderableType] = [_headline(found), *_shards(found, every_shard)]
    if found.protection_records:
        parts.append(_protections(found))
    return Group(*parts, _summary(found))


def _headline(found: Status) -> Text:
    verdict = found.health.verdict
    text = Text(f"{HEADLINES[verdict]}\n", style=f"bold {_COLOURS[verdict]}")
    for each in found.health.problems:
        text.append(f"  {printable(each.sentence)}\n", style=_COLOURS[each.verdict])
        text.append(f"    → {printable(each.do)}\n", style="default")
    return text


def _shards(found: Status, every_shard: bool) -> list[RenderableType]:
    """Show the shards by their lag relative to the objective, the greatest first, up to a limit."""
    worst = sorted(found.shards, key=lambda each: -(each.lag_s or 0) / found.objectives[each.strategy])
    if every_shard or len(worst) <= _MOST_SHARDS:
        return [_table(found, worst)]
    behind = sum(each.behind for each in worst[_MOST_SHARDS:])
    more = f"and {len(worst) - _MOST_SHARDS} more shards, {behind} of them behind; --all shows all"
    return [_table(found, worst[:_MOST_SHARDS]), Text(more)]


def _table(found: Status, shards: list[ShardStatus]) -> Table:
    table = Table("strategy", "shard", "progress", "threshold", "lag", "entries (estimate)", "parked", "last run")
    for each in shards:
        table.add_row(
            each.strategy,
            str(each.shard),
            "never" if each.progress == NEVER_SWEPT else str(each.progress),
            str(found.thresholds[each.strategy]),
            Text(_lag(each), style="red" if each.behind else "default"),
            backlog_shown(each.backlog),
            _number(each.parked),
            _last_run(each.last_run, found.now_ms),
        )
    return table


def backlog_shown(backlog: ShardBacklog) -> str:
    return f"{'at least ' if backlog.at_least else ''}{_number(backlog.entries_estimated)}"


def _lag(shard: ShardStatus) -> str:
    if shard.lag_s is None:
        return "unknown"
    lag = duration(shard.lag_s) if shard.lag_s else "none"
    return f"at least {lag}" if shard.lag_at_least else lag


def _last_run(run: LastSweep | None, now_ms: int) -> str:
    if run is None:
        return "-"
    ended = f"{duration(max(0, now_ms - run.ended_ms) // 1000)} ago"
    return f"{ended}, stopped: {run.stopped}" if run.stopped else ended


def _protections(found: Status) -> Table:
    table = Table("protection", "owner", "age", "protects", "holds back")
    records = found.protection_records
    for each in records[:_MOST_PROTECTIONS]:
        age = "unknown" if each.age_s is None else duration(each.age_s)
        protects = f"{each.mode} {each.ts} in {', '.join(each.tables[:3])}"
        held = "not counted" if each.entries_held is None else f"{each.entries_held:,} entries"
        table.add_row(*map(escape, (each.id, each.owner, age, protects, held)))
    if len(records) > _MOST_PROTECTIONS:
        table.add_row(f"and {len(records) - _MOST_PROTECTIONS} more", "", "", "'sweepflow protections'", "")
    return table


def _summary(found: Status) -> Text:
    oldest = found.oldest_open_transaction
    holding = f", the oldest held by {printable(oldest.owner)}, timestamp {oldest.lease}" if oldest else ""
    if oldest and oldest.since is not None and oldest.age_s is not None:
        least = "at least " if oldest.age_at_least else ""
        holding += f", since {oldest.since[:19]} ({least}{duration(oldest.age_s)})"
    counted = ""
    if found.parked and found.quarantined and found.counted:
        parked, quarantined = (_total(each.total, each.at_least) for each in (found.parked, found.quarantined))
        counted = f"; {parked} parked, {quarantined} quarantined (counted {found.counted[:19]})"
    return Text(
        f"last timestamp {found.timestamp}; {found.open_transactions} open transactions{holding}; "
        f"{found.protections} protections{counted}"
    )


def _total(number: int, at_least: bool) -> str:
    return f"{'at least ' if at_least else ''}{number:,}"


def _number(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"
