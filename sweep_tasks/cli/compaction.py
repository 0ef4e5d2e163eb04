"""`sweepflow compaction plan`, `ranges` and `vacuum`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import pendulum
import typer
from rich.table import Column, Table

from sweep_tasks.cli import node_compaction
from sweep_tasks.cli.command import Command, Console, command, escape, lines_of
from sweep_tasks.cli.options import DryRunOption, JsonOption, StoreOption, YesOption
from sweep_tasks.clock import SystemClock, from_ms
from sweep_tasks.compaction.documents import SweptTable
from sweep_tasks.compaction.reports import file_verdict
from sweep_tasks.compaction.rules import AssessedFile, CandidateReason, plan
from sweep_tasks.errors import BadValue, UnknownTable
from sweep_tasks.model import TableRef
from sweep_tasks.sstables.statistics import Reads, thresholds_in
from sweep_tasks.sstables.statistics_file import read_statistics
from sweep_tasks.store import Store
from sweep_tasks.store.contract import Size
from sweep_tasks.tables.deletions import DeleteKind, Deletions

# ---------------------------------------------------------------------------------------------------------------------
# `sweepflow compaction vacuum`: for SQLite, which has free pages instead of tombstones.
# ---------------------------------------------------------------------------------------------------------------------

_COSTS = {
    "vacuum": "the whole file is rewritten: other processes can't write meanwhile, and it needs twice the space in use",
    "incremental_vacuum": "free pages are cut off the end of the file; other processes can write in between",
}


def vacuum(
    ctx: typer.Context,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Return the space that deletes left inside a SQLite file to the disk. What is stored stays the same.

    SQLite has no tombstones, so there is nothing to compact: deletes take effect at once, only the file keeps its size.
    """
    with command(ctx, store, as_json) as run:
        can = run.store.capabilities
        if found := can.vacuum:
            how, before = found.how_to_vacuum(), found.size()
            if not dry_run and before.free:
                run.confirm(f"{_COSTS[how]}. Continue?", yes)
            vacuumed = found.vacuum() if not dry_run and before.free else None
            after = vacuumed.after if vacuumed else before
            done = VacuumResult.of(how, before, after, dry_run, waiting=bool(vacuumed and vacuumed.waiting))
        elif can.tombstones is None:
            done = VacuumResult.of(None, None, None, dry_run)
        else:
            raise BadValue("store", _elsewhere(run.store), reason="has_tombstones")
        run.answer(asdict(done), lambda out: _print(out, done))


def _elsewhere(store: Store) -> str:
    return f"{type(store).__name__} has tombstones and nothing to vacuum; 'sweepflow compaction run' compacts its files"


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """The answer of the command. Its fields are the keys of the JSON document."""

    tombstones: int
    how: str | None
    """None for a store without a file."""
    dry_run: bool
    bytes_used: int
    bytes_free: int
    bytes_freed: int
    waiting_for_readers: bool

    @classmethod
    def of(
        cls, how: str | None, before: Size | None, after: Size | None, dry_run: bool, waiting: bool = False
    ) -> VacuumResult:
        return cls(
            tombstones=0,
            how=how,
            dry_run=dry_run,
            bytes_used=after.used if after else 0,
            bytes_free=before.free if before else 0,
            bytes_freed=sum(before) - sum(after) if before and after else 0,
            waiting_for_readers=waiting,
        )


def _print(out: Console, done: VacuumResult) -> None:
    if done.how is None:
        out.print("a store in memory has no tombstones and no file: nothing to compact, nothing to vacuum")
        return
    out.print("SQLite has no tombstones: there is nothing to compact")
    used, free = _size(done.bytes_used), _size(done.bytes_free)
    if not done.bytes_free:
        out.print(f"no page of the file is free ({used} in use): there is nothing to return to the disk")
    elif done.dry_run:
        out.print(
            f"{free} of the file are free, {used} in use; without --dry-run they are returned to the disk: ", end=""
        )
        out.print(_COSTS[done.how])
    else:
        out.print(f"{_size(done.bytes_freed)} returned to the disk, {used} are in use ({done.how})")
    if done.waiting_for_readers:
        out.print("the file shrinks when its current readers have finished")


def _size(number: int) -> str:
    return f"{number / 1024 / 1024:.1f} MiB" if number >= 1024 * 1024 else f"{number / 1024:.1f} KiB"


# ---------------------------------------------------------------------------------------------------------------------
# `sweepflow compaction ranges`: where on the ring sweeps have left tombstones, for nodes whose files can't be read.
# ---------------------------------------------------------------------------------------------------------------------

_SHOWN = 20


def show_ranges(
    ctx: typer.Context,
    table: Annotated[str | None, typer.Option(metavar="NAMESPACE.NAME", help="Only this table.")] = None,
    node: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What is left on this node; default: on a node never compacted."),
    ] = None,
    at_least: Annotated[
        int | None,
        typer.Option(min=1, help="Fewest tombstones of a range to show; default: compaction_run_warn."),
    ] = None,
    done: Annotated[
        bool, typer.Option("--done", help="Record that the ranges shown were compacted on that node just now.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show where on the ring sweeps have left tombstones, from their own counts: no file is read.

    For nodes whose files can't be read from here: run 'nodetool compact -st … -et …' there for each line.
    """
    with command(ctx, store, as_json) as run:
        if done and not node:
            raise BadValue("done", "needs --node: a compaction is done on one node")
        if run.store.tokens([]) is None:
            run.answer({"ring": False, "tables": []}, _print_no_ring)
            return
        wanted = at_least or max(1, run.settings.compaction_run_warn)
        found = list(_find_and_record(run, table, node, wanted, done))
        tables = [each.document() for each in found]
        run.answer(
            {"ring": True, "node": node, "at_least": wanted, "tables": tables}, lambda out: _print_ranges(out, found)
        )


def _find_and_record(
    run: Command, table: str | None, node: str | None, at_least: int, done: bool
) -> Iterator[SweptTable]:
    from sweep_tasks.compaction.ranges import described, swept_of

    tombstones = run.store.capabilities.tombstones
    physical, now_ms = tombstones.physical_tables() if tombstones else {}, SystemClock().now_ms()
    for each in _tables(run, table):
        swept = swept_of(run.store, physical[each], node, now_ms, at_least) if each in physical else None
        if swept is None:
            continue
        if done and node:
            for found in swept.dense:
                Deletions(run.store).record_compaction(
                    each, node, physical[each].gc_grace_s, now_ms, found.first_token, found.last_token
                )
        deleted = swept.left.tally.by_kind
        yield SweptTable(
            table=str(each),
            since=from_ms(swept.left.since_ms).to_date_string(),
            ranges=deleted[DeleteKind.RANGES].deleted,
            versions=deleted[DeleteKind.VERSIONS].deleted,
            sentinels=deleted[DeleteKind.SENTINELS].deleted,
            gc_grace_s=physical[each].gc_grace_s,
            dense=tuple(described(swept, len(swept.dense))),
        )


def _tables(run: Command, name: str | None) -> list[TableRef]:
    tables = list(run.catalog.list())
    if name is None:
        return tables
    wanted = TableRef.parse(name)
    if wanted not in tables:
        raise UnknownTable(wanted)
    return [wanted]


def _print_no_ring(out: Console) -> None:
    out.print("this store has no ring and no tombstones, so there are no ranges")
    out.print("'sweepflow compaction vacuum --dry-run' shows how much space can be freed")


def _print_ranges(out: Console, tables: list[SweptTable]) -> None:
    if not tables:
        out.print(f"no tombstones of sweeps are known, as of {pendulum.now('UTC').to_date_string()}")
        return
    shown = Table(
        Column("table", overflow="fold"), Column("tokens", no_wrap=True), "tombstones", Column("past gc_grace", width=8)
    )
    for each in tables:
        ranges = sorted(each.dense, key=lambda found: -found.tombstones)
        for found in ranges[:_SHOWN]:
            tokens = f"{found.first_token} … {found.last_token}"
            shown.add_row(each.table, tokens, str(found.tombstones), str(found.droppable))
        if len(ranges) > _SHOWN:
            shown.add_row(each.table, f"and {len(ranges) - _SHOWN} more", "", "")
    if shown.row_count:
        out.print(shown)
    for each in tables:
        out.print(
            f"{each.table}, since {each.since}: {each.ranges} ranges and {each.versions} single versions "
            f"deleted, {each.sentinels} sentinels written"
        )


# ---------------------------------------------------------------------------------------------------------------------
# `sweepflow compaction plan`: which files deserve a compaction, from their statistics.
#
# The commands that measure and compact the files of nodes are in `node_compaction.py`.
# ---------------------------------------------------------------------------------------------------------------------

app = typer.Typer(help="Compact files that are full of tombstones.", no_args_is_help=True, rich_markup_mode=None)

WORDS = {
    CandidateReason.DENSE: "enough of its blocks are dense",
    CandidateReason.LONG_RUN: "readers step over a long run of dead cells",
    CandidateReason.OVERLAP: "many tombstones compared with the keys in the same range",
    CandidateReason.READ: "a read of its table met many tombstones",
    CandidateReason.SWEPT: "sweeps have deleted many versions there",
    CandidateReason.BELOW_THRESHOLD: "too few of its blocks are dense",
    CandidateReason.EMPTY: "it has no blocks",
    CandidateReason.SWITCHED_OFF: "switched off by the settings",
    CandidateReason.PENDING: "the engine itself is about to compact it",
}


app.command()(node_compaction.measure)
app.command()(node_compaction.run)
app.command("ranges")(show_ranges)
app.command()(vacuum)


@app.callback()
def root() -> None:
    """Compact files that are full of tombstones."""


@app.command("plan")
def show_plan(
    ctx: typer.Context,
    stats: Annotated[
        Path, typer.Option(metavar="FILE", help="Statistics, a JSON line for each file; - reads standard input.")
    ],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which files would be compacted, in what order, and why the others would not. Compacts nothing.

    A line is {"file":NAME,"table"?:NAME,"blocks":[[tombstones,tombstone_bytes,total_bytes],…],"pending"?:true}.
    """
    with command(ctx, store, as_json) as run:
        verdicts = plan(read_statistics(_readable(stats)), thresholds_in(run.settings))
        run.answer(
            {"plan": [file_verdict(each).document() for each in verdicts]}, lambda out: _print_plan(out, verdicts)
        )


def _readable(stats: Path) -> Iterator[str]:
    try:
        yield from lines_of(stats)
    except UnicodeDecodeError as error:
        raise BadValue("stats", "standard input is not UTF-8; write JSON lines in UTF-8") from error


def _print_plan(out: Console, verdicts: list[AssessedFile]) -> None:
    if not verdicts:
        out.print("there are no files, so there is nothing to plan")
        return
    shown = Table("rank", Column("file", overflow="fold"), "dense blocks", Column("why", overflow="fold"))
    for each in verdicts:
        shown.add_row(str(each.rank or "-"), escape(each.file), _share(each), _why(each))
    out.print(shown)
    eligible = sum(each.eligible for each in verdicts)
    out.print(f"{eligible} of {len(verdicts)} files would be compacted{', in this order' if eligible > 1 else ''}")


def _share(verdict: AssessedFile) -> str:
    dense, blocks = verdict.density
    return f"{dense} of {blocks} ({float(verdict.density.ratio):.1%})" if blocks else "-"


def _why(verdict: AssessedFile) -> str:
    """The reason, and that reads fail if they do, whatever the reason is."""
    words = WORDS[verdict.reason]
    if verdict.reads is Reads.FAILING:
        return f"{words}; reads fail: {verdict.longest_run} dead cells in a row"
    return words
