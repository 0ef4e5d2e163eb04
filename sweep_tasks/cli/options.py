"""The options that many commands have, and what `sweepflow` itself was given before the name of a command.

Imported at every start of the command, also for `--help`: nothing else may be imported here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import typer

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="memory:, sqlite:///relative/path, sqlite:////absolute/path (default: setting SWEEPFLOW_STORE)",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be removed; remove nothing.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; required without a terminal.")]
ReasonOption = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why; recorded in the journal with your name.")
]


@dataclass(frozen=True, slots=True)
class SharedOptions:
    """Options that were given before the name of the command."""

    store: str | None = None
    as_json: bool = False
    traceback: bool = False

    @classmethod
    def of(cls, ctx: typer.Context) -> SharedOptions:
        return ctx.obj if isinstance(ctx.obj, cls) else cls()


def pass_options_on(ctx: typer.Context, store: str | None, as_json: bool) -> None:
    """Make the options of a command group the defaults of its commands."""
    shared = SharedOptions.of(ctx)
    ctx.obj = replace(shared, store=store or shared.store, as_json=as_json or shared.as_json)
