"""`sweepflow status`: is anything behind, who holds it up, what does one do?"""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from sweep_tasks.cli.command import Command, JsonOption, StoreOption, command
from sweep_tasks.clock import SystemClock
from sweep_tasks.durations import words
from sweep_tasks.errors import EXIT_ATTENTION, EXIT_BEHIND, BadValue, SweepflowError
from sweep_tasks.observation.health import Verdict
from sweep_tasks.observation.samples import take_sample
from sweep_tasks.observation.status import status as status_of
from sweep_tasks.queue.progress import NEVER_SWEPT

Document = dict[str, Any]
EXIT_CODES = {Verdict.OK: 0, Verdict.ATTENTION: EXIT_ATTENTION, Verdict.BEHIND: EXIT_BEHIND}
_COLOURS = {Verdict.OK: "green", Verdict.ATTENTION: "yellow", Verdict.BEHIND: "red"}
HEADLINES = {
    Verdict.OK: "all is well",
    Verdict.ATTENTION: "somebody should look",
    Verdict.BEHIND: "sweeping is behind",
}
OUTDATED = "not up to date since"
_MOST_PROTECTIONS = 10
_MOST_SHARDS = 16


def status(
    ctx: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.5, metavar="SECONDS", help="How often, with --watch.")] = 5.0,
    count: Annotated[bool, typer.Option("--count", help="Count anew what is parked and set aside.")] = False,
    every_shard: Annotated[bool, typer.Option("--all", help="Every shard, and not only the furthest behind.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """How far everything is swept, what holds it up, and what to do about it.

    Exit codes: 0 all is well; 6 somebody should look; 7 a shard is further behind than its objective allows.
    """
    with command(ctx, store, as_json) as run:
        if watch and run.as_json:
            raise BadValue("watch", "is for people; with --json ask as often as you like")
        document = _read(run, count)
        if watch:
            _watch(run, document, every, every_shard)
        run.answer(document, lambda out: out.print(shown(document, every_shard)))
        code = EXIT_CODES[Verdict(document["health"]["verdict"])]
        if code:
            raise typer.Exit(code)


def _read(run: Command, count: bool = False) -> Document:
    clock = SystemClock()
    if count:
        take_sample(run.store, clock)
    return status_of(run.store, run.settings, clock)


def _watch(run: Command, document: Document, every: float, every_shard: bool) -> None:
    """Ends with Ctrl-C, as one that was asked for once. A store that stops answering is shown, and asked again."""
    try:
        with Live(shown(document, every_shard), console=Console(), screen=True) as live:
            while True:
                time.sleep(every)
                try:
                    document |= _read(run)
                    live.update(shown(document, every_shard), refresh=True)
                except SweepflowError as error:
                    live.update(Group(_outdated(document, error), shown(document, every_shard)), refresh=True)
    except KeyboardInterrupt:
        return


def _outdated(document: Document, error: SweepflowError) -> Text:
    return Text(f"{OUTDATED} {document['now'][:19]}: {error}\n", style="bold red reverse")


# --- for people -------------------------------------------------------------------------------------------------------


def shown(document: Document, every_shard: bool = False) -> RenderableType:
    parts: list[RenderableType] = [_headline(document), *_shards(document, every_shard)]
    if document["protection_records"]:
        parts.append(_protections(document))
    return Group(*parts, _rest(document))


def _headline(document: Document) -> Text:
    verdict = Verdict(document["health"]["verdict"])
    text = Text(f"{HEADLINES[verdict]}\n", style=f"bold {_COLOURS[verdict]}")
    for each in document["health"]["problems"]:
        text.append(f"  {each['sentence']}\n", style=_COLOURS[Verdict(each["verdict"])])
        text.append(f"    → {each['do']}\n", style="default")
    return text


def _shards(document: Document, every_shard: bool) -> list[RenderableType]:
    """The furthest behind first, by what is allowed; of very many those alone."""
    worst = sorted(
        document["shards"], key=lambda each: -(each["lag_s"] or 0) / document["objectives"][each["strategy"]]
    )
    if every_shard or len(worst) <= _MOST_SHARDS:
        return [_table(document, worst)]
    behind = sum(each["behind"] for each in worst[_MOST_SHARDS:])
    more = f"and {len(worst) - _MOST_SHARDS} more shards, {behind} of them behind; --all shows every one"
    return [_table(document, worst[:_MOST_SHARDS]), Text(more)]


def _table(document: Document, shards: list[Document]) -> Table:
    table = Table("strategy", "shard", "progress", "swept up to", "lag", "about so many entries", "parked", "last run")
    for each in shards:
        lag = _lag(each)
        style = "red" if each["behind"] else "default"
        table.add_row(
            each["strategy"],
            str(each["shard"]),
            "never" if each["progress"] == NEVER_SWEPT else str(each["progress"]),
            str(document["thresholds"][each["strategy"]]),
            Text(lag, style=style),
            backlog_shown(each["backlog"]),
            _number(each["parked"]),
            _last_run(each["last_run"], document["now_ms"]),
        )
    return table


def backlog_shown(backlog: Document) -> str:
    return f"{'at least ' if backlog['at_least'] else ''}{_number(backlog['entries_estimated'])}"


def _lag(shard: Document) -> str:
    if shard["lag_s"] is None:
        return "unknown"
    lag = words(shard["lag_s"]) if shard["lag_s"] else "none"
    return f"at least {lag}" if shard["lag_at_least"] else lag


def _last_run(run: Document | None, now_ms: int) -> str:
    if run is None:
        return "-"
    ended = f"{words(max(0, now_ms - run['ended_ms']) // 1000)} ago"
    return f"{ended}, {run['stopped']}" if run["stopped"] else ended


def _protections(document: Document) -> Table:
    table = Table("protection", "owner", "age", "protects", "holds back")
    records = document["protection_records"]
    for each in records[:_MOST_PROTECTIONS]:
        age = "unknown" if each["age_s"] is None else words(each["age_s"])
        protects = f"{each['mode']} {each['ts']} in {', '.join(each['tables'][:3])}"
        held = "not counted" if each["entries_held"] is None else f"{each['entries_held']} entries"
        table.add_row(*map(escape, (each["id"], each["owner"], age, protects, held)))
    if len(records) > _MOST_PROTECTIONS:
        table.add_row(f"and {len(records) - _MOST_PROTECTIONS} more", "", "", "'sweepflow protections'", "")
    return table


def _rest(document: Document) -> Text:
    oldest = document["oldest_open_transaction"]
    holding = f", the oldest held by {oldest['owner']}, timestamp {oldest['lease']}" if oldest else ""
    if oldest and oldest["since"] is not None:
        least = "at least " if oldest["age_at_least"] else ""
        holding += f", since {oldest['since'][:19]} ({least}{words(oldest['age_s'])})"
    counted = ""
    if document["parked"] is not None:
        counted = f"; {_counted(document['parked'])} parked, {_counted(document['quarantined'])} set aside"
        counted += f" (counted {document['counted'][:19]})"
    return Text(
        f"last timestamp {document['timestamp']}; {document['open_transactions']} open transactions{holding}; "
        f"{document['protections']} protections{counted}"
    )


def _counted(figures: Document) -> str:
    return f"{'at least ' if figures['at_least'] else ''}{figures['total']}"


def _number(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"
