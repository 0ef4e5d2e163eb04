"""`sweepflow init`: create a store, or upgrade one."""

from __future__ import annotations

import typer

from sweep_tasks.cli.command import command
from sweep_tasks.cli.options import JsonOption, StoreOption
from sweep_tasks.store import StoreLocation, initialise_store


def init(ctx: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Create the tables of a store, or upgrade a store of an older version. Safe to repeat."""
    with command(ctx, store, as_json) as run:
        created = initialise_store(run.settings.store, run.settings)
        where = str(StoreLocation.parse(run.settings.store))
        run.answer(
            {"store": where, "created": created},
            lambda out: out.print(f"{where} is {'initialised' if created else 'up to date'}"),
        )
