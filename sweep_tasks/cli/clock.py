"""`sweepflow clock`: the clock samples of a store, and the hosts whose samples are refused."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.table import Table

from sweep_tasks.cli.command import Command, Console, command, date_ms, escape
from sweep_tasks.cli.options import DryRunOption, JsonOption, ReasonOption, StoreOption, YesOption
from sweep_tasks.clock import Clock, SystemClock, from_ms
from sweep_tasks.coordination.clock_history import ClockHistory, check_not_ahead
from sweep_tasks.coordination.clock_problems import ClockProblem, clock_problems
from sweep_tasks.coordination.clock_samples import ClockRecord, RefusedSample
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import BadValue, NotFound
from sweep_tasks.journal.actors import acting_for
from sweep_tasks.texts import duration

app = typer.Typer(
    help="The clock samples, from which sweeps compute the age of data.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("show")
def show(ctx: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show the last clock sample, and the hosts whose samples are refused. Changes nothing."""
    with command(ctx, store, as_json) as run:
        found = _read(run, SystemClock())
        run.answer(found.document(), lambda out: _print(out, found))


@app.command("confirm")
def confirm(
    ctx: typer.Context,
    host: Annotated[
        str | None, typer.Argument(metavar="[HOST]", help="The host, if samples of several hosts wait.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Accept it even if it is ahead of this host's clock.")] = False,
    reason: ReasonOption = "",
    yes: YesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Accept a sample that was refused because it is ahead: its clock is right, and the store was not used meanwhile.

    If instead a clock that was behind has been corrected, use 'discard --above' with the time at which it went wrong.
    """
    with command(ctx, store, as_json) as run:
        clock, step_max_s = SystemClock(), run.settings.clock_step_max_s
        clock_history = ClockHistory(run.store)
        record = clock_history.clock_record()
        wanted = _pending(record, host)
        if not force:
            check_not_ahead(wanted, clock, step_max_s)  # before the question; it is checked again when it is answered
        last_ms = record.wall_ms if record else 0
        passed = duration((wanted.wall_ms - last_ms) // 1000)
        ahead = f" It is {_moment(clock.now_ms())} here." if force else ""
        run.confirm(f"did {passed} pass since the last sample, until {_moment(wanted.wall_ms)}?{ahead}", yes)
        with acting_for(reason=reason):
            confirmed = clock_history.confirm(wanted.uptime.boot, clock, step_max_s, force)
            clock_history.record_now(TimestampService(run.store), clock, step_max_s)
        found = _read(run, clock)
        document = {"host": wanted.uptime.host, **confirmed._asdict()} | found.document()
        run.answer(document, lambda out: out.print(f"accepted; the last sample is now {_moment(found.last_ms)}"))


@app.command("discard")
def discard(
    ctx: typer.Context,
    above: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Remove samples later than this date; default: the time of this host."),
    ] = None,
    dry_run: DryRunOption = False,
    reason: ReasonOption = "",
    yes: YesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove wrong samples, those later than a time, and record the time of this host instead.

    Run it on a host whose clock is right. It is safe: without samples less is swept, not more.
    """
    with command(ctx, store, as_json) as run:
        clock, clock_history = SystemClock(), ClockHistory(run.store)
        above_ms = clock.now_ms() if above is None else date_ms(above, "above")
        discarded = clock_history.discard(above_ms, dry_run=True)
        if not dry_run and discarded.samples:
            now = _moment(clock.now_ms())
            run.confirm(f"remove {discarded.samples} samples later than {_moment(above_ms)}? It is {now} here.", yes)
            with acting_for(reason=reason):
                discarded = clock_history.discard(above_ms)
                clock_history.record_now(TimestampService(run.store), clock, step_max_s=0)
        found = _read(run, clock)
        document = {"discarded": discarded.samples, "above_ms": above_ms, "dry_run": dry_run} | found.document()
        done = "would be removed" if dry_run else "removed"
        run.answer(
            document,
            lambda out: out.print(f"{discarded.samples} samples {done}; the last one is {_moment(found.last_ms)}"),
        )


def _pending(record: ClockRecord | None, host: str | None) -> RefusedSample:
    pending = record.pending() if record else []
    found = [each for each in pending if host in (None, each.uptime.host)]
    if not found:
        raise NotFound(
            "sample: no sample waits for confirmation; 'sweepflow clock show' shows what is refused", field="host"
        )
    if len(found) > 1 and host is None:
        hosts = ", ".join(sorted({each.uptime.host for each in found}))
        raise BadValue("host", f"samples of several hosts wait: {hosts}; name the one that is right", reason="several")
    return found[0]


@dataclass(frozen=True, slots=True)
class ClockState:
    """The last clock sample, and the problems with clocks as this host sees them."""

    last_ms: int | None
    last_ts: int | None
    last_host: str | None
    here: str
    now_ms: int
    step_max_s: int
    problems: list[ClockProblem]
    pending: list[str]
    """Hosts whose samples wait for confirmation."""

    def document(self) -> dict[str, Any]:
        problems = [each.document() | {"sentence": each.sentence, "do": each.do} for each in self.problems]
        return asdict(self) | {"problems": problems}


def _read(run: Command, clock: Clock) -> ClockState:
    record, here = ClockHistory(run.store).clock_record(), clock.uptime().host
    last_host = (
        next((each.uptime.host for each in record.anchors if each.wall_ms == record.wall_ms), None) if record else None
    )
    step_max_s = run.settings.clock_step_max_s
    return ClockState(
        last_ms=record.wall_ms if record else None,
        last_ts=record.ts if record else None,
        last_host=last_host,
        here=here,
        now_ms=clock.now_ms(),
        step_max_s=step_max_s,
        problems=clock_problems(record, clock.now_ms(), here, step_max_s),
        pending=[each.uptime.host for each in record.pending()] if record else [],
    )


def _print(out: Console, found: ClockState) -> None:
    by = f", by {found.last_host}" if found.last_host else ""
    here = f"{found.here} shows {_moment(found.now_ms)}"
    out.print(f"last sample: {_moment(found.last_ms)}{escape(by)}; {escape(here)}", highlight=False)
    if not found.problems:
        out.print("no clock is refused")
        return
    shown = Table("code", "host", "by", "since")
    for each in found.problems:
        shown.add_row(each.code, escape(each.host), duration(each.by_ms // 1000), _moment(each.since_ms))
    out.print(shown)
    for do in dict.fromkeys(each.do for each in found.problems):
        out.print(f"  [cyan]→[/] {escape(do)}", highlight=False)


def _moment(wall_ms: int | None) -> str:
    return "none" if wall_ms is None else f"{from_ms(wall_ms).to_datetime_string()} UTC"
