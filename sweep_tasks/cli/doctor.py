"""`sweepflow doctor`: examines a store and says what to run."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from sweep_tasks.cli.command import Command, Console, command, escape
from sweep_tasks.cli.options import JsonOption, StoreOption
from sweep_tasks.clock import SystemClock, from_ms
from sweep_tasks.diagnosis.doctor import Doctor
from sweep_tasks.diagnosis.documents import as_document
from sweep_tasks.diagnosis.findings import Finding, Level, findings, unreachable
from sweep_tasks.diagnosis.state import Facts, TableFacts
from sweep_tasks.errors import EXIT_FAILED, EXIT_UNAVAILABLE, StoreError
from sweep_tasks.store import StoreLocation
from sweep_tasks.texts import duration

_MARKS = {Level.STOP: "[bold red]✗[/]", Level.DO: "[bold yellow]![/]", Level.NOTE: "[dim]·[/]"}
_VERDICTS = {Level.STOP: "can't be examined", Level.DO: "needs attention", Level.NOTE: "healthy"}


def doctor(
    ctx: typer.Context,
    sample_seconds: Annotated[
        float, typer.Option(min=0, help="Time for sampling tables; tables that were not reached are listed.")
    ] = 20,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Examine a store without changing it: what was found, what a sweep would remove, and what to run.

    Exit codes: 0 healthy; 1 something needs attention; 4 the store can't be examined.
    """
    with command(ctx, store, as_json) as run:
        location = StoreLocation.parse(run.settings.store)
        facts: Facts | None = None
        try:
            facts = Doctor(run.store, run.settings, SystemClock(), sample_seconds).examine(location)
            found = findings(facts)
        except StoreError as error:
            found = [unreachable(error, str(location))]
        worst = min((each.level for each in found), key=list(Level).index, default=Level.NOTE)
        _answer(run, str(location), facts, found, worst)
        if worst is not Level.NOTE:
            raise typer.Exit(EXIT_UNAVAILABLE if worst is Level.STOP else EXIT_FAILED)


def _answer(run: Command, where: str, facts: Facts | None, found: list[Finding], worst: Level) -> None:
    document: dict[str, Any] = {
        "store": where,
        "verdict": _VERDICTS[worst],
        "level": worst,
        "findings": [as_document(each) for each in found],
        "facts": facts.document() if facts else None,
    }
    run.answer(document, lambda out: _print(out, where, facts, found, worst))


def _print(out: Console, where: str, facts: Facts | None, found: list[Finding], worst: Level) -> None:
    out.print(f"[bold]{escape(where)}[/]: {_VERDICTS[worst]}", highlight=False)
    if facts:
        _print_facts(out, facts)
    for each in found:
        out.print(f"\n{_MARKS[each.level]} [bold]{escape(each.about)}[/] {escape(each.sentence)}", highlight=False)
        if each.run:
            out.print(f"  [cyan]→[/] {escape(each.run)}", highlight=False)


def _print_facts(out: Console, facts: Facts) -> None:
    if facts.tables:
        out.print(_tables(facts.tables))
    estimated = facts.estimated()
    if estimated.versions:
        out.print(
            f"a scan of all tables would remove {estimated.goes_now:,} of about {estimated.versions:,} versions now, "
            f"{estimated.goes_later:,} when retention has passed; in one process it takes "
            f"{duration(round(estimated.scan_seconds))}",
            highlight=False,
        )
    lags = [each.lag_s for each in facts.shards if each.lag_s is not None]
    lag = f"greatest lag {duration(max(lags))}" if lags else "lag not known yet"
    shards, least = len(facts.shards) // 2, "at least " if facts.queued.at_least else ""
    written = "" if facts.tombstones_written is None else f"sweeps have written {facts.tombstones_written:,}; "
    space = f"; {facts.bytes_used:,} bytes in use, {facts.bytes_free:,} free" if facts.bytes_used is not None else ""
    out.print(
        f"queue: {shards} shards for each strategy, {lag}; {least}{facts.queued.number:,} entries\n"
        f"open transactions: {facts.open_transactions}; protections: {facts.protections}; last timestamp "
        f"{facts.timestamp}{space}\ntombstones: {written}{escape(facts.tombstones)}",
        highlight=False,
    )


def _tables(tables: tuple[TableFacts, ...]) -> Table:
    shown = Table("table", "strategy", "versions", "per cell", "garbage", "last scan")
    for each in tables:
        shown.add_row(str(each.table), each.strategy.value, *_sampled(each), _last_scan(each))
    return shown


def _sampled(each: TableFacts) -> tuple[str, str, str]:
    if each.sample is None:
        return "?", "?", "?"
    about = "" if each.sample.share == 1 else "≥ " if each.sample.at_least else "~ "
    estimate = each.sample.estimate()
    return (
        f"{about}{estimate.versions:,}",
        f"{each.sample.versions_per_cell:.1f}",
        f"{about}{estimate.goes_later:,}" if estimate.goes_later else "0",
    )


def _last_scan(each: TableFacts) -> str:
    return "never" if each.last_scan_ms is None else from_ms(each.last_scan_ms).to_date_string()
