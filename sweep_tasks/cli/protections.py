"""`sweepflow protect`, `sweepflow release` and `sweepflow protections`."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Annotated, Any

import typer

from sweep_tasks.cli.command import Command, JsonOption, StoreOption, YesOption, command
from sweep_tasks.cli.protection_shown import described, figures, held_back, listed, print_all, print_one, say
from sweep_tasks.cli.times import moment_ms
from sweep_tasks.clock import SystemClock
from sweep_tasks.errors import AlreadySwept, BadValue
from sweep_tasks.journal import NO_REASON, Journal, me
from sweep_tasks.observation.entering import operations_entered
from sweep_tasks.observation.tally import COMMAND, Try
from sweep_tasks.protection.catalog import ProtectionCatalog, Verdict
from sweep_tasks.protection.owners import EXPIRY
from sweep_tasks.protection.records import MANUAL, Mode, Record
from sweep_tasks.protection.targets import Target
from sweep_tasks.sweep.held import MOST, HeldBack
from sweep_tasks.timestamps.service import TimestampService

app = typer.Typer(help="Protected timestamps: list them with what each holds back, or move one.", rich_markup_mode=None)

_ATTEMPTS = 5
"""A sweep that goes as far as it may can overtake a timestamp that was just taken; hardly five times in a row."""

IdArgument = Annotated[str, typer.Argument(metavar="ID")]
MostOption = Annotated[
    int, typer.Option("--most", min=1, metavar="N", help="Look at so many entries and versions of each, no more.")
]


def protect(
    ctx: typer.Context,
    targets: Annotated[
        list[str],
        typer.Argument(metavar="TARGET...", help="shop.orders, shop.*, rows in hexadecimal: 'shop.orders[61:7a)'."),
    ],
    at: Annotated[
        int | None, typer.Option("--at", metavar="TIMESTAMP", help="What is visible then; a fresh one if left out.")
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="A fresh timestamp, as if --at were left out.")] = False,
    mode: Annotated[Mode, typer.Option(help="What is visible at the timestamp, or at it and after.")] = Mode.AT,
    record_id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Made up if left out.")] = None,
    owner: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Whom to ask whether it is still needed; manual: a person.")
    ] = None,
    meta: Annotated[
        list[str] | None, typer.Option("--meta", metavar="KEY=VALUE", help="What that owner is asked about.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="Released then: 90m, 12h, 7d, 2027-01-31T18:00:00Z.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep what is visible at a timestamp, in some tables or rows, until it is released."""
    with command(ctx, store, as_json) as run:
        if now and at is not None:
            raise BadValue("at", "a timestamp and --now exclude each other; give one of them")
        kind = owner or (EXPIRY if expires else MANUAL)
        if kind == EXPIRY and not expires:
            raise BadValue("expires", f"owner {EXPIRY!r} goes by it; give --expires as well", reason="missing")
        record = Record(
            record_id or f"{kind}-{secrets.token_hex(4)}",
            at or 0,
            mode,
            tuple(map(Target.parse, targets)),
            meta_type=kind,
            meta=_details(meta or ()),
            expires_ms=moment_ms(expires, "expires", _now_ms()) if expires else None,
        )
        with _counted(run, "protect"):
            document = described(_protected(run, record, at), _now_ms())
        last = TimestampService(run.store).greatest()
        ahead = f"; it is yet to come, the last timestamp handed out is {last}" if document["ts"] > last else ""
        run.answer(document, lambda out: say(out, _protects(document) + ahead))


def release(
    ctx: typer.Context,
    record_id: IdArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it holds back, release nothing.")] = False,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why: the journal keeps it, with your name.")] = "",
    yes: YesOption = False,
    most: MostOption = MOST,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give up a protection. What it alone held back goes with the next sweeps."""
    with command(ctx, store, as_json) as run:
        catalog = _catalog(run)
        record = catalog.get(record_id)
        document = _with_figures(run, [record], most)[0] | {"released": not dry_run}
        held = held_back(document)
        if dry_run:
            run.answer(document, lambda out: say(out, f"{record_id} holds back {held}; nothing was changed"))
            return
        run.confirm(f"release {record_id}? It holds back {held}.", yes)
        noted = Journal(run.store).noted(me(), "release", record_id, reason or NO_REASON)
        with _counted(run, "release"), noted:
            catalog.release(record_id, record.version)
        goes = "; it goes with the next sweeps" if document["entries"] else ""
        run.answer(document, lambda out: say(out, f"{record_id} is released, it held back {held}{goes}"))


@app.callback(invoke_without_command=True)
def protections(
    ctx: typer.Context,
    record_id: Annotated[str | None, typer.Option("--id", metavar="ID", help="This one alone.")] = None,
    most: MostOption = MOST,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the protections: owner, age, targets, and what each holds back."""
    if ctx.invoked_subcommand:
        shared: dict[str, Any] = ctx.obj or {}
        ctx.obj = shared | {"store": store or shared.get("store"), "as_json": as_json or shared.get("as_json", False)}
        return
    with command(ctx, store, as_json) as run:
        catalog = _catalog(run)
        if record_id is not None:
            one = _with_figures(run, [catalog.get(record_id)], most)[0]
            run.answer(one, lambda out: print_one(out, one))
            return
        meta, records = catalog.state()
        documents = _with_figures(run, sorted(records, key=lambda record: (record.ts, record.id)), most)
        limits = {"records": run.settings.max_protection_records, "spans": run.settings.max_protection_spans}
        used = {what: {"used": getattr(meta, what), "limit": limit or None} for what, limit in limits.items()}
        run.answer({"protections": documents, **used}, lambda out: print_all(out, documents, used))


@app.command()
def move(
    ctx: typer.Context,
    record_id: IdArgument,
    ts: Annotated[int, typer.Argument(metavar="TIMESTAMP")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move a protection forward. It stays where it is if the new timestamp can no longer be protected."""
    with command(ctx, store, as_json) as run:
        catalog = _catalog(run)
        with _counted(run, "move"):
            _check(catalog.move(record_id, ts), ts)
        document = described(catalog.get(record_id), _now_ms())
        run.answer(document, lambda out: say(out, _protects(document)))


def _counted(run: Command, task: str) -> AbstractContextManager[None]:
    return operations_entered(run.store, SystemClock(), Try(COMMAND, secrets.token_hex(8), task))


def _catalog(run: Command) -> ProtectionCatalog:
    return ProtectionCatalog(run.store, run.settings)


def _now_ms() -> int:
    return SystemClock().now_ms()


def _protected(run: Command, record: Record, at: int | None) -> Record:
    """At the timestamp that was given; or else at the first fresh one that no sweep has overtaken."""
    catalog, timestamps = _catalog(run), TimestampService(run.store)
    for left in reversed(range(1 if at is not None else _ATTEMPTS)):
        ts = timestamps.fresh() if at is None else at
        verdict = catalog.protect(replace(record, ts=ts))
        if verdict.accepted or not left:
            _check(verdict, ts)
            break
    return catalog.get(record.id)


def _protects(document: dict[str, Any]) -> str:
    return f"{document['id']} protects {document['mode']} {document['ts']} in {listed(document)}"


def _check(verdict: Verdict, ts: int) -> None:
    if verdict.earliest is not None:
        raise AlreadySwept(ts, verdict.earliest)


def _details(given: Iterable[str]) -> dict[str, str]:
    details: dict[str, str] = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not key or not equals or key in details:
            raise BadValue("meta", "each must be key=value, with a key of its own")
        details[key] = value
    return details


def _with_figures(run: Command, records: list[Record], most: int) -> list[dict[str, Any]]:
    held = HeldBack(run.store, most).by_each(records, _catalog(run).records())
    return [described(record, _now_ms()) | figures(held[record.id]) for record in records]
