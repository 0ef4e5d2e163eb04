"""`sweepflow tables`: create, list, show, change, set-strategy, drop, truncate."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from sweep_tasks.cli.command import Command, DryRunOption, JsonOption, StoreOption, YesOption, command
from sweep_tasks.cli.times import seconds
from sweep_tasks.errors import BadValue
from sweep_tasks.legacy.candidates import not_by_turns
from sweep_tasks.legacy.progress import Runs
from sweep_tasks.model import ConflictHandling, ScanReason, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.sweep.deletions import Deletions

app = typer.Typer(help="The tables of a store.", no_args_is_help=True, rich_markup_mode=None)

NameArgument = Annotated[str, typer.Argument(metavar="NAMESPACE.NAME")]
_DEFAULT = "default"
_LEFT = {
    ScanReason.UNQUEUED: "what was written while it was swept by nothing has no queue entries",
    ScanReason.MARKERS: "sentinels and delete markers of its time as a conservative table are left in it",
}


@app.command()
def create(
    ctx: typer.Context,
    name: NameArgument,
    strategy: Annotated[
        SweepStrategy, typer.Option(help="How it is swept; nothing: never.")
    ] = SweepStrategy.CONSERVATIVE,
    conflicts: Annotated[
        ConflictHandling, typer.Option(help="What happens to the second of two writers of a cell.")
    ] = ConflictHandling.FIRST_COMMITTER_WINS,
    retention: Annotated[
        str | None, typer.Option(metavar="TIME", help="Keep overwritten versions this long: 90m, 12h, 7d.")
    ] = None,
    look_before_delete: Annotated[
        bool, typer.Option("--look-before-delete", help="Read first, so that first writes get no tombstone.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a table."""
    with command(ctx, store, as_json) as run:
        table = TableRef.parse(name)
        metadata = TableMetadata(strategy, conflicts, _seconds(retention), look_before_delete)
        run.catalog.create(table, metadata)
        run.answer(_described(table, metadata), lambda out: out.print(f"{table} created ({strategy})"))


@app.command("list")
def list_tables(ctx: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the tables."""
    with command(ctx, store, as_json) as run:
        found = run.catalog.list()
        documents = [_described(table, metadata) for table, metadata in found.items()]
        run.answer({"tables": documents}, lambda out: _print_tables(out, documents))


@app.command()
def show(ctx: typer.Context, name: NameArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show one table: its properties, and how far it is swept."""
    with command(ctx, store, as_json) as run:
        table = TableRef.parse(name)
        known = run.catalog.show(table)
        document = _described(table, known.metadata) | {
            "past_strategies": sorted(known.metadata.past_strategies),
            "threshold": known.for_readers,
            "thresholds": {strategy.value: ts for strategy, ts in known.by_strategy.items()},
            "truncated_before": known.mark or None,
            "scan_due": _scan_due(known.metadata),
            **_not_by_turns(run, table, known.metadata),
        }
        run.answer(document, lambda out: _print_properties(out, document))


@app.command()
def change(
    ctx: typer.Context,
    name: NameArgument,
    retention: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Keep overwritten versions this long from now on: 90m, 12h, 7d; or default."),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change how long a table keeps what was overwritten."""
    with command(ctx, store, as_json) as run:
        table = TableRef.parse(name)
        if retention is None:
            raise BadValue("retention", f"say what to change: --retention 12h, or --retention {_DEFAULT}")
        keep_s = _seconds(retention)
        run.catalog.change(table, None, keep_s)
        known = run.catalog.show(table)
        document = _described(table, known.metadata) | {"threshold": known.for_readers}
        kept = "as long as its strategy" if keep_s is None else f"for {keep_s} s"
        run.answer(document, lambda out: out.print(f"{table} keeps what is overwritten {kept}"))


@app.command("set-strategy")
def set_strategy(
    ctx: typer.Context,
    name: NameArgument,
    strategy: Annotated[SweepStrategy, typer.Argument(help="How it is swept from now on; nothing: never.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have a table swept by another strategy. Safe at any time, and to repeat."""
    with command(ctx, store, as_json) as run:
        table = TableRef.parse(name)
        before, after = run.catalog.set_strategy(table, strategy)
        due = {"scan_due": _scan_due(after), **_not_by_turns(run, table, after)}
        document = _described(table, after) | {"before": before.strategy.value} | due
        run.answer(document, lambda out: _print_strategy(out, table, before, after, due["scan_not_by_turns"]))


@app.command()
def drop(
    ctx: typer.Context,
    name: NameArgument,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a table and everything in it."""
    with command(ctx, store, as_json) as run:
        _remove(run, TableRef.parse(name), "drop", dry_run, yes)


@app.command()
def truncate(
    ctx: typer.Context,
    name: NameArgument,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove everything in a table; the table stays."""
    with command(ctx, store, as_json) as run:
        _remove(run, TableRef.parse(name), "truncate", dry_run, yes)


def _remove(run: Command, table: TableRef, what: str, dry_run: bool, yes: bool) -> None:
    count = run.catalog.count(table)
    held = f"{count.versions} versions of {count.cells} cells"
    if not dry_run:
        run.confirm(f"{what} {table}, with {held}? This can't be undone.", yes)
        (run.catalog.drop if what == "drop" else run.catalog.truncate)(table)
        if what == "drop":
            Deletions(run.store).forget(table)
            Runs(run.store).forget(table)
    document = {"table": str(table), "dry_run": dry_run, **count._asdict()}
    done = f"{table} {'dropped' if what == 'drop' else 'truncated'}, {held} removed"
    run.answer(document, lambda out: out.print(f"would remove {held}, nothing was changed" if dry_run else done))


def _seconds(retention: str | None) -> int | None:
    return None if retention in (None, _DEFAULT) else seconds(str(retention), "retention")


def _described(table: TableRef, metadata: TableMetadata) -> dict[str, Any]:
    return {
        "table": str(table),
        "strategy": metadata.strategy.value,
        "conflicts": metadata.conflicts.value,
        "retention_s": metadata.retention_s,
        "look_before_delete": metadata.look_before_delete,
    }


def _scan_due(metadata: TableMetadata) -> dict[str, Any] | None:
    """What a change of strategy has left to be done."""
    return None if metadata.scan_due is None else metadata.scan_due._asdict()


def _not_by_turns(run: Command, table: TableRef, metadata: TableMetadata) -> dict[str, Any]:
    """Why a scan that is due is left to a person, as a sentence and as a code."""
    found = not_by_turns(table, run.settings, Runs(run.store).of(table)) if metadata.scan_due else None
    return {"scan_not_by_turns": found and found.sentence, "scan_not_by_turns_code": found and found.value}


def _print_strategy(
    out: Console, table: TableRef, before: TableMetadata, after: TableMetadata, alone: str | None
) -> None:
    changed = f"was {before.strategy}, is {after.strategy} now" if before != after else f"is {after.strategy} already"
    out.print(f"{table} {changed}", highlight=False)
    if after.scan_due is None:
        out.print("nothing is left to do" if before == after else "nothing else is to do: queue entries of before "
                  "are swept, or skipped, as the table is swept now", highlight=False)  # fmt: skip
        return
    by_itself = f"; it has to be asked for: {alone}" if alone else ", or the DAG legacy_sweep by itself"
    out.print(
        f"{_LEFT[after.scan_due.why]}; a scan of the table that goes up to {after.scan_due.since} removes it, once "
        f"sweeps may go that far: 'sweepflow legacy-sweep {table}'{by_itself}",
        highlight=False,
    )


def _print_tables(out: Console, documents: list[dict[str, Any]]) -> None:
    if not documents:
        out.print("no tables yet; 'sweepflow tables create NAMESPACE.NAME' makes one")
        return
    shown = Table("table", "strategy", "conflicts", "retention", "look before delete")
    for document in documents:
        retention = "default" if document["retention_s"] is None else f"{document['retention_s']} s"
        look = "yes" if document["look_before_delete"] else "no"
        shown.add_row(document["table"], document["strategy"], document["conflicts"], retention, look)
    out.print(shown)


def _print_properties(out: Console, document: dict[str, Any]) -> None:
    shown = Table(show_header=False)
    for key, value in document.items():
        shown.add_row(key.replace("_", " "), "-" if value in (None, [], {}) else _as_text(value))
    out.print(shown)


def _as_text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {each}" for key, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
