"""What all commands share: the store, answers and errors, progress, and parsing of times.

People get tables and colours on stdout; `--json` prints exactly one JSON document there. Logs and errors for people go
to stderr. An error is one sentence that says what to do, never a traceback; its kind determines the exit code.
"""

from __future__ import annotations

import json
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pendulum
import typer
from rich import console, markup
from rich.console import ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment

from sweep_tasks.cli.options import SharedOptions
from sweep_tasks.clock import to_ms
from sweep_tasks.config import Settings, check_variables, load_settings
from sweep_tasks.connections import open_store
from sweep_tasks.errors import EXIT_DEFECT, EXIT_FAILED, BadValue, SweepflowError
from sweep_tasks.extras import name_missing_extra
from sweep_tasks.logs import configure_logs
from sweep_tasks.store import Store
from sweep_tasks.texts import printable, printable_lines

if TYPE_CHECKING:
    from sweep_tasks.tables.catalog import Catalog


# --- the terminal -----------------------------------------------------------------------------------------------------
# Names, reasons and messages come from users and other programs. Control characters in them are never printed as such:
# colours and cursor movements come only from styles.


class Console(console.Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable_lines(segment.text), segment.style)


def escape(text: str) -> str:
    """Return a text as one line in which nothing is interpreted as markup."""
    return markup.escape(printable(text))


# --- a run of a command -----------------------------------------------------------------------------------------------


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
        from sweep_tasks.tables.catalog import Catalog

        return Catalog(self.store, patience_s=self.settings.emptying_wait_s)

    def answer(self, document: dict[str, Any], for_people: Callable[[Console], None]) -> None:
        if self.as_json:
            print(json.dumps(document))
        else:
            for_people(self.out)

    def confirm(self, question: str, yes: bool) -> None:
        """Ask before anything is removed or a safeguard is lifted. A script has to pass `--yes`. The question goes to
        stderr, because stdout is for the answer."""
        if yes:
            return
        if not sys.stdin or not sys.stdin.isatty():
            problem = f"confirmation is required, and there is no terminal to ask at; give --yes to confirm: {question}"
            raise BadValue("yes", problem, code="not_confirmed", question=question)
        if not typer.confirm(printable(question), err=True):
            raise typer.Exit(EXIT_FAILED)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


@contextmanager
def command(
    ctx: typer.Context, store: str | None, as_json: bool, default_store: str | None = None
) -> Iterator[Command]:
    """Run a command. Options may be given before or after its name; those after the name take precedence."""
    shared = SharedOptions.of(ctx)
    run = Command(store or shared.store or default_store, as_json or shared.as_json)
    configure_logs()
    try:
        check_variables()
        with name_missing_extra():
            yield run
    except SweepflowError as error:
        print_error(run.as_json, error)
        raise typer.Exit(error.exit_code) from error
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        if shared.traceback:
            traceback.print_exc()
        problem = (
            f"unexpected {type(error).__name__}: this is a bug in sweepflow; please report it with the output of "
            "'sweepflow --traceback …'"
        )
        print_error(run.as_json, SweepflowError(problem, code="defect"))
        raise typer.Exit(EXIT_DEFECT) from None
    finally:
        run.close()


def lines_of(file: Path) -> Iterator[str]:
    """Yield the lines of a file, or of standard input for `-`."""
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


def print_error(as_json: bool, error: SweepflowError) -> None:
    if as_json:
        known = {name: value for name, value in (("field", error.field), ("reason", error.reason)) if value}
        print(json.dumps({"error": error.code, "message": str(error), **known}))
    else:
        Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False)


# --- progress ---------------------------------------------------------------------------------------------------------
# A line on stderr for each step that is done, and in a terminal a moving line for the current step.


class ProgressStep:
    """A step of a long command. `done` is printed instead of its name when it has ended."""

    def __init__(self, bar: Progress, name: str, total: float | None) -> None:
        self._bar = bar
        self._task = bar.add_task(name, total=total)
        self.done = name

    def advance_to(self, completed: float) -> None:
        self._bar.update(self._task, completed=completed)

    def now(self, doing: str) -> None:
        self._bar.update(self._task, description=doing)


class Steps:
    def __init__(self) -> None:
        self._console = Console(stderr=True, soft_wrap=True, highlight=False)

    def say(self, line: str) -> None:
        self._console.print(line)

    @contextmanager
    def step(self, name: str, total: float | None = None) -> Iterator[ProgressStep]:
        """Show a step while the block runs. `total` is what it counts up to; None if that is not known."""
        began = time.perf_counter()
        columns = [SpinnerColumn(), TextColumn("{task.description}"), *([BarColumn()] if total else [])]
        interactive = self._console.is_terminal
        if not interactive:
            self.say(f"  {name} …")
        with Progress(
            *columns, TimeElapsedColumn(), console=self._console, transient=True, disable=not interactive
        ) as bar:
            step = ProgressStep(bar, name, total)
            yield step
        self.say(f"[green]✓[/] {step.done} [dim]({time.perf_counter() - began:.1f} s)[/]")


# --- durations and dates ----------------------------------------------------------------------------------------------

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"(\d{1,9})([smhd])\Z")
_EXAMPLES = "90s, 15m, 1h or 30d"


def seconds(text: str, field: str) -> int:
    """Parse a duration. A number without a unit is refused: 90 could mean seconds, minutes or days."""
    _check_unit(text, field)
    match = _DURATION.match(text)
    if match is None:
        raise BadValue(field, f"{text!r} is not a duration; write {_EXAMPLES}", reason="not_a_time")
    return int(match[1]) * _UNITS[match[2]]


def _check_unit(text: str, field: str) -> None:
    if re.fullmatch(r"\d+(\.\d+)?", text):
        raise BadValue(field, f"{text} has no unit; write {_EXAMPLES}", reason="no_unit")


def moment_ms(text: str, field: str, now_ms: int) -> int:
    """Parse a time in the future: a duration from now, or a date as `date_ms` parses it."""
    _check_unit(text, field)
    if _DURATION.match(text):
        return now_ms + seconds(text, field) * 1000
    moment = date_ms(text, field, f"neither a duration ({_EXAMPLES}) nor a date")
    if moment <= now_ms:
        raise BadValue(field, f"{text} is in the past; give a time in the future", reason="past")
    return moment


def date_ms(text: str, field: str, is_what: str = "not a date") -> int:
    """Parse a date with or without a time of day, in UTC unless it has an offset."""
    try:
        parsed = pendulum.parse(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, pendulum.DateTime):
        raise BadValue(field, f"{text!r} is {is_what} (2027-01-31T18:00:00Z)", reason="not_a_time")
    return to_ms(parsed)
