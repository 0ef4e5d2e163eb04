"""The `sweepflow` command: its commands by name, and the options of all of them.

A command is imported when it is run, so that `sweepflow --help` takes no longer than Python and Typer, and no command
waits for what only another one needs.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from sweep_tasks.cli.options import JsonOption, SharedOptions, StoreOption
from sweep_tasks.errors import SweepflowError
from sweep_tasks.extras import name_missing_extra


class CommandEntry(NamedTuple):
    """Where a command is, and its line in the list of commands. A test compares the line with the command's help."""

    module: str
    attribute: str
    help: str


COMMANDS = {
    "init": CommandEntry("init", "init", "Create the tables of a store, or upgrade a store of an older version."),
    "demo": CommandEntry("demo", "demo", "Fill a new store with six hours of a shop's history, sweep it, and report."),
    "sweep": CommandEntry("sweep", "sweep", "Sweep the store from this process."),
    "status": CommandEntry(
        "status", "status", "Show up to when the store is swept, what is behind, and what to do about it."
    ),
    "explain": CommandEntry("explain", "explain", "Explain why each version of a cell still exists."),
    "tables": CommandEntry("tables", "app", "The tables of a store."),
    "protect": CommandEntry("protections", "protect", "Protect what is visible at a timestamp."),
    "release": CommandEntry("protections", "release", "Release a protection."),
    "protections": CommandEntry("protections", "app", "Protected timestamps: list them with what each holds back."),
    "pause": CommandEntry("pauses", "pause", "Pause the sweeping of a table, or of everything."),
    "resume": CommandEntry("pauses", "resume", "Resume the sweeping of a table, or of everything."),
    "legacy-sweep": CommandEntry("legacy_sweep", "legacy_sweep", "Sweep a table by scanning all of it."),
    "queue": CommandEntry("queue", "app", "The sweep queue."),
    "compaction": CommandEntry("compaction", "app", "Compact files that are full of tombstones."),
    "doctor": CommandEntry("doctor", "doctor", "Examine a store without changing it."),
    "clock": CommandEntry("clock", "app", "The clock samples, from which sweeps compute the age of data."),
    "journal": CommandEntry("journal", "app", "The journal: who did what to the store, when and why."),
    "metrics": CommandEntry("metrics", "metrics", "Print all metrics in Prometheus' text format."),
    "scenario": CommandEntry("scenario", "app", "Run scenarios: operations as JSON lines."),
    "airflow": CommandEntry("airflow", "app", "Airflow: its pools, its DAGs, and a local one."),
    "deploy": CommandEntry("deploy", "app", "Prepare a set of containers."),
    "dev": CommandEntry("dev", "app", "Servers on this machine, to try things out."),
}


class Unloaded(TyperCommand):
    """A command that is only listed until it is run."""


class Commands(TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {name: Unloaded(name, help=entry.help) for name, entry in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and isinstance(command, Unloaded):
            try:
                self.commands[name] = command = load(COMMANDS[name], name)
            except SweepflowError as error:
                if ctx.resilient_parsing:  # a shell asks for completions: there are none, and no message
                    return name, command, rest
                raise _report_error(error, bool(ctx.params.get("as_json")) or "--json" in rest) from error
        return name, command, rest


def load(entry: CommandEntry, name: str) -> Any:
    """Import a command, or a group of commands, with its options."""
    gc.disable()  # what is imported stays: looking for garbage in it takes a tenth of the time of a short command
    try:
        with name_missing_extra():
            module = import_module(f"sweep_tasks.cli.{entry.module}")
    finally:
        gc.enable()
    found: typer.Typer | Callable[..., None] = getattr(module, entry.attribute)
    if isinstance(found, typer.Typer):
        loaded: Any = get_group(found)
    else:
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command()(found)
        loaded = get_command(alone)
    loaded.name = name
    return loaded


def _report_error(error: SweepflowError, as_json: bool) -> typer.Exit:
    from sweep_tasks.cli.command import print_error

    print_error(as_json, error)
    return typer.Exit(error.exit_code)


def load_all() -> Any:
    """Return the command with all its commands loaded."""
    whole: Any = get_command(app)
    whole.commands = {name: load(entry, name) for name, entry in COMMANDS.items()}
    return whole


app = typer.Typer(
    name="sweepflow",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"sweepflow {version('sweepflow')}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    store: StoreOption = None,
    as_json: JsonOption = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show the traceback of an unexpected error.")] = False,
    _show_version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version.")
    ] = False,
) -> None:
    """Sweep old versions from multi-version key-value stores.

    Exit codes: 0 done; 1 failed; 2 bad input; 3 not found; 4 the store is missing, not initialised, locked or
    unreachable; 5 conflict (exists already, or another process was first); 6 something needs attention ('status',
    'journal verify'); 7 a shard is behind ('status'); 70 a bug in sweepflow; 130 interrupted by Ctrl-C.
    """
    ctx.obj = SharedOptions(store, as_json, traceback)


def main() -> None:
    app()
