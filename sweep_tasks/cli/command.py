"""What every command shares: which store, how to answer, and how to fail.

People get tables and colours on stdout; `--json` gives exactly one JSON document there. Logs and errors for people go
to stderr. An error is one sentence with the way out, never a traceback; its kind is the exit code.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from sweep_tasks.catalog import Catalog
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.errors import BadValue, SweepflowError
from sweep_tasks.logs import configure_logs
from sweep_tasks.opening import open_store
from sweep_tasks.store import Store

EXIT_DEFECT = 70

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="memory:, sqlite:///relative/path, sqlite:////absolute/path (default: setting SWEEPFLOW_STORE)",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, remove nothing.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


class Command:
    """One run of a command."""

    def __init__(self, store_url: str | None, as_json: bool) -> None:
        self.as_json = as_json
        self.out = Console(soft_wrap=True)
        self._store_url = store_url
        self._settings: Settings | None = None
        self._store: Store | None = None

    @property
    def settings(self) -> Settings:
        if self._settings is None:
            given = {"store": self._store_url} if self._store_url else {}
            self._settings = load_settings(**given)
            configure_logs(self._settings.log_format)
        return self._settings

    def use_store(self, url: str) -> None:
        self._store_url, self._settings = url, None

    @property
    def store(self) -> Store:
        if self._store is None:
            self._store = open_store(self.settings.store, self.settings)
        return self._store

    @property
    def catalog(self) -> Catalog:
        return Catalog(self.store)

    def answer(self, document: dict[str, Any], for_people: Callable[[Console], None]) -> None:
        if self.as_json:
            print(json.dumps(document))
        else:
            for_people(self.out)

    def confirm(self, question: str, yes: bool) -> None:
        """Ask a person; a script has said what it means by running the command."""
        if not yes and not self.as_json and sys.stdin.isatty() and not typer.confirm(question):
            raise typer.Exit(1)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


@contextmanager
def command(
    ctx: typer.Context, store: str | None, as_json: bool, default_store: str | None = None
) -> Iterator[Command]:
    """Options may stand before the command's name or behind it; behind wins."""
    shared: dict[str, Any] = ctx.obj or {}
    run = Command(store or shared.get("store") or default_store, as_json or shared.get("as_json", False))
    configure_logs()
    try:
        yield run
    except SweepflowError as error:
        _tell(run, error.code, str(error), error.field, error.reason)
        raise typer.Exit(error.exit_code) from error
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        if shared.get("traceback"):
            traceback.print_exc()
        _tell(
            run,
            "defect",
            f"sweepflow met an unexpected {type(error).__name__}: this is a defect; "
            "'sweepflow --traceback …' shows where, please report it",
        )
        raise typer.Exit(EXIT_DEFECT) from None
    finally:
        run.close()


def lines_of(file: Path) -> Iterator[str]:
    """The lines of a file, or of standard input for `-`."""
    if str(file) == "-":
        yield from sys.stdin
        return
    try:
        with file.open(encoding="utf-8") as lines:
            yield from lines
    except (OSError, UnicodeDecodeError) as error:
        raise BadValue(
            "file",
            f"{file} can't be read: {getattr(error, 'strerror', None) or 'not UTF-8'}",
            reason="not_utf8" if isinstance(error, UnicodeDecodeError) else "unreadable",
        ) from error


def _tell(run: Command, code: str, message: str, field: str | None = None, reason: str | None = None) -> None:
    if run.as_json:
        known = {name: value for name, value in (("field", field), ("reason", reason)) if value}
        print(json.dumps({"error": code, "message": message, **known}))
    else:
        Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(message)}", highlight=False)
