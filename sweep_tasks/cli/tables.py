"""`sweepflow tables`: create, list, show, change, set-strategy, drop and truncate tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.table import Table

from sweep_tasks.cli.command import Command, Console, command, seconds
from sweep_tasks.cli.options import DryRunOption, JsonOption, ReasonOption, StoreOption, YesOption
from sweep_tasks.errors import BadValue
from sweep_tasks.journal.actors import acting_for
from sweep_tasks.legacy.candidates import Unscheduled, why_unscheduled
from sweep_tasks.legacy.progress import Runs, forget_dropped
from sweep_tasks.model import ConflictHandling, ScanDue, ScanReason, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.texts import duration

app = typer.Typer(help="The tables of a store.", no_args_is_help=True, rich_markup_mode=None)

TableNameArgument = Annotated[str, typer.Argument(metavar="NAMESPACE.NAME")]
ForceOption = Annotated[bool, typer.Option("--force", help="Remove it even if protections cover it.")]
_DEFAULT = "default"
_LEFT = {
    ScanReason.UNQUEUED: "versions written while its strategy was nothing have no queue entries",
    ScanReason.MARKERS: "sentinels and delete markers are left from when it was conservative",
    ScanReason.TRUNCATED: "not all of the data from before it was truncated is deleted",
}


@dataclass(frozen=True, slots=True)
class TableProperties:
    """A table as the commands show it. Its fields are the keys of the JSON document."""

    table: str
    strategy: str
    conflicts: str
    retention_s: int | None
    look_before_delete: bool

    @classmethod
    def of(cls, table: TableRef, metadata: TableMetadata) -> TableProperties:
        return cls(
            str(table),
            metadata.strategy.value,
            metadata.conflicts.value,
            metadata.retention_s,
            metadata.look_before_delete,
        )

    def document(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class DueScan:
    """A scan of the table that a change of strategy or a truncation requires."""

    due: ScanDue | None
    unscheduled: Unscheduled | None
    """Why the scheduled scans leave the table out."""

    def document(self) -> dict[str, Any]:
        return {
            "scan_due": None if self.due is None else self.due._asdict(),
            "scan_not_by_turns": self.unscheduled and self.unscheduled.sentence,
            "scan_not_by_turns_code": self.unscheduled and self.unscheduled.value,
        }


@app.command()
def create(
    ctx: typer.Context,
    name: TableNameArgument,
    strategy: Annotated[
        SweepStrategy, typer.Option(help="How the table is swept; nothing: never.")
    ] = SweepStrategy.CONSERVATIVE,
    conflicts: Annotated[
        ConflictHandling, typer.Option(help="What happens to the second of two writers of a cell.")
    ] = ConflictHandling.FIRST_COMMITTER_WINS,
    retention: Annotated[
        str | None, typer.Option(metavar="TIME", help="Keep overwritten versions this long: 90m, 12h, 7d.")
    ] = None,
    look_before_delete: Annotated[
        bool,
        typer.Option("--look-before-delete", help="Read before deleting, so that a first write causes no tombstone."),
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a table."""
    with command(ctx, store, as_json) as run:
        table = TableRef.parse(name)
        metadata = TableMetadata(strategy, conflicts, _seconds(retention), look_before_delete)
        run.catalog.create(table, metadata)
        run.answer(
            TableProperties.of(table, metadata).document(), lambda out: out.print(f"{table} created ({strategy})")
        )


@app.command("list")
def list_tables(ctx: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the tables."""
    with command(ctx, store, as_json) as run:
        found = run.catalog.list()
        tables = [TableProperties.of(table, metadata) for table, metadata in found.items()]
        run.answer({"tables": [each.document() for each in tables]}, lambda out: _print_tables(out, tables))


@app.command()
def show(ctx: typer.Context, name: TableNameArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show one table: its properties, thresholds, and whether a scan is due."""
    with command(ctx, store, as_json) as run:
        table = TableRef.parse(name)
        known = run.catalog.show(table)
        document = TableProperties.of(table, known.metadata).document() | {
            "past_strategies": sorted(known.metadata.past_strategies),
            "threshold": known.for_readers,
            "thresholds": {strategy.value: ts for strategy, ts in known.by_strategy.items()},
            "truncated_before": known.mark or None,
            **_due_scan(run, table, known.metadata).document(),
        }
        run.answer(document, lambda out: _print_properties(out, document))


@app.command()
def change(
    ctx: typer.Context,
    name: TableNameArgument,
    retention: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Keep overwritten versions this long from now on: 90m, 12h, 7d; or default."),
    ] = None,
    reason: ReasonOption = "",
    yes: YesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change how long a table keeps overwritten versions. Asks before shortening that time."""
    with command(ctx, store, as_json) as run:
        table = TableRef.parse(name)
        if retention is None:
            raise BadValue("retention", f"nothing to change; give --retention 12h, or --retention {_DEFAULT}")
        keep_s = _seconds(retention)
        _confirm_shorter(run, table, keep_s, yes)
        with acting_for(reason=reason):
            run.catalog.change(table, None, keep_s)
        known = run.catalog.show(table)
        document = TableProperties.of(table, known.metadata).document() | {"threshold": known.for_readers}
        kept = "as long as its strategy does" if keep_s is None else f"for {duration(keep_s)}"
        run.answer(document, lambda out: out.print(f"{table} keeps overwritten versions {kept}"))


@app.command("set-strategy")
def set_strategy(
    ctx: typer.Context,
    name: TableNameArgument,
    strategy: Annotated[SweepStrategy, typer.Argument(help="How it is swept from now on; nothing: never.")],
    reason: ReasonOption = "",
    yes: YesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the strategy of a table. Safe at any time, and safe to repeat."""
    with command(ctx, store, as_json) as run:
        table = TableRef.parse(name)
        existing = run.catalog.show(table).metadata.strategy
        if existing is not strategy:
            run.confirm(
                f"sweep {table} as {strategy} instead of {existing}? What may be removed, and when, changes for "
                "everything in it.",
                yes,
            )
        with acting_for(reason=reason):
            before, after = run.catalog.set_strategy(table, strategy)
        scan = _due_scan(run, table, after)
        document = TableProperties.of(table, after).document() | {"before": before.strategy.value} | scan.document()
        run.answer(document, lambda out: _print_strategy(out, table, before, after, scan))


@app.command()
def drop(
    ctx: typer.Context,
    name: TableNameArgument,
    dry_run: DryRunOption = False,
    force: ForceOption = False,
    reason: ReasonOption = "",
    yes: YesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a table and all its data."""
    with command(ctx, store, as_json) as run:
        _remove(run, TableRef.parse(name), "drop", dry_run, force, reason, yes)


@app.command()
def truncate(
    ctx: typer.Context,
    name: TableNameArgument,
    dry_run: DryRunOption = False,
    force: ForceOption = False,
    reason: ReasonOption = "",
    yes: YesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove all data of a table; the table stays."""
    with command(ctx, store, as_json) as run:
        _remove(run, TableRef.parse(name), "truncate", dry_run, force, reason, yes)


def _confirm_shorter(run: Command, table: TableRef, keep_s: int | None, yes: bool) -> None:
    metadata = run.catalog.show(table).metadata
    default_s = run.settings.retention_s if metadata.strategy is SweepStrategy.CONSERVATIVE else 0
    before_s, after_s = (default_s if own is None else own for own in (metadata.retention_s, keep_s))
    if after_s < before_s:
        run.confirm(
            f"lower the retention of {table} from {duration(before_s)} to {duration(after_s)}? The next sweeps remove "
            "what is older than that.",
            yes,
        )


def _remove(run: Command, table: TableRef, what: str, dry_run: bool, force: bool, reason: str, yes: bool) -> None:
    count = run.catalog.count(table)
    held = f"{count.versions:,} versions of {count.cells:,} cells"
    if not dry_run:
        protected = " What protections keep is removed too." if force else ""
        run.confirm(f"{what} {table}, with {held}?{protected} This can't be undone.", yes)
        with acting_for(reason=reason):
            (run.catalog.drop if what == "drop" else run.catalog.truncate)(table, force)
        if what == "drop":
            forget_dropped(run.store, table)
    document = {"table": str(table), "dry_run": dry_run, **count._asdict()}
    done = f"{table} {'dropped' if what == 'drop' else 'truncated'}, {held} removed"
    run.answer(document, lambda out: out.print(f"would remove {held}; nothing was changed" if dry_run else done))


def _seconds(retention: str | None) -> int | None:
    return None if retention in (None, _DEFAULT) else seconds(str(retention), "retention")


def _due_scan(run: Command, table: TableRef, metadata: TableMetadata) -> DueScan:
    due = metadata.scan_due
    return DueScan(due, why_unscheduled(table, run.settings, Runs(run.store).of(table)) if due else None)


def _print_strategy(out: Console, table: TableRef, before: TableMetadata, after: TableMetadata, scan: DueScan) -> None:
    changed = f"was {before.strategy}, is now {after.strategy}" if before != after else f"is {after.strategy} already"
    out.print(f"{table} {changed}", highlight=False)
    if scan.due is None:
        done = (
            "nothing else to do"
            if before == after
            else ("nothing else to do: sweeps process or skip older queue entries by the new strategy")
        )
        out.print(done, highlight=False)
        return
    if scan.unscheduled:
        scheduled = f"; scheduled scans leave it out: {scan.unscheduled.sentence}"
    else:
        scheduled = ", or wait for the DAG legacy_sweep"
    out.print(
        f"{_LEFT[scan.due.why]}; a scan of the table up to timestamp {scan.due.since} removes it, when the sweep "
        f"timestamp has passed that: 'sweepflow legacy-sweep {table}'{scheduled}",
        highlight=False,
    )


def _print_tables(out: Console, tables: list[TableProperties]) -> None:
    if not tables:
        out.print("no tables yet; 'sweepflow tables create NAMESPACE.NAME' creates one")
        return
    shown = Table("table", "strategy", "conflicts", "retention", "look before delete")
    for each in tables:
        retention = "default" if each.retention_s is None else duration(each.retention_s)
        look = "yes" if each.look_before_delete else "no"
        shown.add_row(each.table, each.strategy, each.conflicts, retention, look)
    out.print(shown)


def _print_properties(out: Console, properties: Mapping[str, object]) -> None:
    shown = Table(show_header=False)
    for key, value in properties.items():
        shown.add_row(key.replace("_", " "), "-" if value in (None, [], {}) else _as_text(value))
    out.print(shown)


def _as_text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {each}" for key, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
