"""`sweepflow compaction ranges`: where on the ring sweeps have left tombstones, for nodes whose files can't be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pendulum
import typer
from rich.console import Console
from rich.table import Column, Table

from sweep_tasks.cli.command import Command, JsonOption, StoreOption, command
from sweep_tasks.clock import SystemClock, from_ms
from sweep_tasks.errors import BadValue, UnknownTable
from sweep_tasks.model import TableRef
from sweep_tasks.sweep.deletions import Deletions
from sweep_tasks.sweep.tally import Kind

_SHOWN = 20


def show_ranges(
    ctx: typer.Context,
    table: Annotated[str | None, typer.Option(metavar="NAMESPACE.NAME", help="Only this one.")] = None,
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="What is left on this node; none: on one never compacted.")
    ] = None,
    at_least: Annotated[
        int | None, typer.Option(min=1, help="Tombstones that make a range worth showing; none: compaction_run_warn.")
    ] = None,
    done: Annotated[
        bool, typer.Option("--done", help="Remember that the ranges shown were compacted on that node just now.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say where on the ring sweeps have left tombstones, by what they counted: no file is read.

    For nodes whose files can't be read from here: each line is a 'nodetool compact -st … -et …' there.
    """
    with command(ctx, store, as_json) as run:
        if done and not node:
            raise BadValue("done", "needs --node: a compaction is of one node")
        if run.store.tokens([]) is None:
            run.answer({"ring": False, "tables": []}, _print_no_ring)
            return
        wanted = at_least or max(1, run.settings.compaction_run_warn)
        found = list(_found(run, table, node, wanted, done))
        run.answer({"ring": True, "node": node, "at_least": wanted, "tables": found}, lambda out: _print(out, found))


def _found(run: Command, table: str | None, node: str | None, at_least: int, done: bool) -> Iterator[dict[str, Any]]:
    from sweep_tasks.compaction.by_ranges import described, swept_of
    from sweep_tasks.store.cassandra.store import CassandraStore

    assert isinstance(run.store, CassandraStore)  # noqa: S101 (the one store with a ring)
    physical, now_ms = run.store.physical_tables(), SystemClock().now_ms()
    for each in _tables(run, table):
        swept = swept_of(run.store, physical[each], node, now_ms, at_least) if each in physical else None
        if swept is None:
            continue
        if done and node:
            for found in swept.dense:
                Deletions(run.store).compacted(
                    each, node, physical[each].gc_grace_s, now_ms, found.first_token, found.last_token
                )
        yield {
            "table": str(each),
            "since": from_ms(swept.left.since_ms).to_date_string(),
            **{f"{kind}": swept.left.tally.by_kind[kind].deleted for kind in Kind},
            "gc_grace_s": physical[each].gc_grace_s,
            "dense": [{k: v for k, v in told.items() if k != "table"} for told in described(swept, len(swept.dense))],
        }


def _tables(run: Command, name: str | None) -> list[TableRef]:
    tables = list(run.catalog.list())
    if name is None:
        return tables
    wanted = TableRef.parse(name)
    if wanted not in tables:
        raise UnknownTable(wanted)
    return [wanted]


def _print_no_ring(out: Console) -> None:
    out.print("this store has no ring and no tombstones: nothing is counted by ranges")
    out.print("'sweepflow compaction vacuum --dry-run' says what there is to free")


def _print(out: Console, tables: list[dict[str, Any]]) -> None:
    if not tables:
        out.print(f"no sweep has left anything that is known of, as of {pendulum.now('UTC').to_date_string()}")
        return
    shown = Table(
        Column("table", overflow="fold"), Column("tokens", no_wrap=True), "tombstones", Column("past gc_grace", width=8)
    )
    for each in tables:
        ranges = sorted(each["dense"], key=lambda found: -found["tombstones"])
        for found in ranges[:_SHOWN]:
            tokens = f"{found['first_token']} … {found['last_token']}"
            shown.add_row(each["table"], tokens, str(found["tombstones"]), str(found["droppable"]))
        if len(ranges) > _SHOWN:
            shown.add_row(each["table"], f"and {len(ranges) - _SHOWN} more", "", "")
    if shown.row_count:
        out.print(shown)
    for each in tables:
        out.print(
            f"{each['table']}, since {each['since']}: {each['ranges']} ranges and {each['versions']} single versions "
            f"deleted, {each['sentinels']} sentinels written"
        )
