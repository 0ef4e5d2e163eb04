"""`sweepflow protect`, `sweepflow release` and `sweepflow protections`.

What a protection holds back is shown as numbers. The rows of its targets are shown in hexadecimal, as they were given;
the rows of the entries that it holds are not shown.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Annotated, Any, NamedTuple

import typer
from rich.filesize import decimal
from rich.table import Column, Table

from sweep_tasks.cli.command import Command, Console, command, escape, moment_ms
from sweep_tasks.cli.options import JsonOption, ReasonOption, StoreOption, YesOption, pass_options_on
from sweep_tasks.clock import SystemClock, from_ms
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.diagnosis.held_back import MOST, HeldBack, HeldByRecord
from sweep_tasks.diagnosis.status import Usage
from sweep_tasks.errors import BadValue
from sweep_tasks.journal.actors import acting_for
from sweep_tasks.metrics.samples import tally_operations_in_block
from sweep_tasks.metrics.tally import COMMAND, TaskAttempt
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.protecting import create_record, new_record
from sweep_tasks.protection.reconciliation import age_s, expired
from sweep_tasks.protection.records import Mode, Record
from sweep_tasks.texts import duration

_COLUMNS = ("id", "owner", "age", "protects", "state", "holds back")


@dataclass(frozen=True, slots=True)
class ShownProtection:
    """A record as the commands show it. Its fields are the keys of the JSON document."""

    id: str
    ts: int
    mode: str
    state: str
    moving_to: int | None
    owner: str
    meta: dict[str, str]
    targets: list[str]
    created: str | None
    age_s: int | None
    expires: str | None
    expired: bool

    @classmethod
    def of(cls, record: Record, now_ms: int) -> ShownProtection:
        return cls(
            id=record.id,
            ts=record.ts,
            mode=record.mode.value,
            state=record.state.value,
            moving_to=record.held_ts,
            owner=record.meta_type,
            meta=dict(record.meta),
            targets=[str(target) for target in record.targets],
            created=str(from_ms(record.created_ms)) if record.created_ms else None,
            age_s=age_s(record, now_ms),
            expires=str(from_ms(record.expires_ms)) if record.expires_ms is not None else None,
            expired=expired(record, now_ms),
        )

    def document(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def protects(self) -> str:
        return f"{self.mode} {self.ts} in {self.listed}"

    @property
    def listed(self) -> str:
        first, *others = self.targets
        return f"{first} and {len(others)} more" if len(others) > 2 else ", ".join(self.targets)

    @property
    def age(self) -> str:
        return "unknown" if self.age_s is None else duration(self.age_s)

    @property
    def status(self) -> str:
        state = self.state if self.moving_to is None else f"moving to {self.moving_to}"
        if self.expired:
            return f"{state}, expired"
        return f"{state}, until {self.expires[:16]}" if self.expires else state


class HeldProtection(NamedTuple):
    """A protection with what it holds back."""

    protection: ShownProtection
    held: HeldByRecord

    def document(self) -> dict[str, Any]:
        return self.protection.document() | self.held._asdict() | {"blocking": self.held.blocking}


def print_sentence(out: Console, sentence: str) -> None:
    out.print(escape(sentence), highlight=False)


def print_all(out: Console, found: list[HeldProtection], usage: Mapping[str, Usage]) -> None:
    if not found:
        out.print("nothing is protected; 'sweepflow protect TARGET' protects what is visible now")
        return
    shown = Table(*(Column(name, overflow="fold") for name in _COLUMNS))
    for each, held in found:
        holds = f"{_entries(held)} entries, {_size(held)}" if held.blocking else "nothing, not blocking"
        shown.add_row(*map(escape, (each.id, each.owner, each.age, each.protects, each.status, holds)))
    out.print(shown)
    uses = (f"{use.used} of {use.limit or 'any number of'} {what}" for what, use in usage.items())
    print_sentence(out, f"in use: {', '.join(uses)}")


def print_one(out: Console, found: HeldProtection) -> None:
    each, held = found
    properties: dict[str, str | list[str]] = {
        "id": each.id,
        "timestamp": f"{each.mode} {each.ts}",
        "targets": each.targets,
        "state": each.status,
        "owner": each.owner,
        "details": ", ".join(f"{key}={value}" for key, value in each.meta.items()) or "-",
        "age": each.age,
        "entries held back": _entries(held),
        "versions held back": f"{held.versions:,}",
        "their size": _size(held),
        "blocking": "yes" if held.blocking else "no",
    }
    shown = Table(show_header=False)
    for name, value in properties.items():
        shown.add_row(name, "\n".join(map(escape, value if isinstance(value, list) else [value])))
    out.print(shown)


def held_back(held: HeldByRecord) -> str:
    """Describe the entries that wait for a record, and the versions that wait for it alone."""
    return f"{_entries(held)} entries with {held.versions:,} versions ({_size(held)})" if held.entries else "nothing"


def _entries(held: HeldByRecord) -> str:
    return f"{'at least ' if held.at_least else ''}{held.entries:,}"


def _size(held: HeldByRecord) -> str:
    return f"{'at least ' if held.at_least else ''}{decimal(held.bytes)}"


# --- the commands -----------------------------------------------------------------------------------------------------

app = typer.Typer(help="Protected timestamps: list them with what each holds back, or move one.", rich_markup_mode=None)

IdArgument = Annotated[str, typer.Argument(metavar="ID")]
MostOption = Annotated[
    int, typer.Option("--most", min=1, metavar="N", help="Read at most this many entries and versions of each.")
]


def protect(
    ctx: typer.Context,
    targets: Annotated[
        list[str],
        typer.Argument(metavar="TARGET...", help="shop.orders, shop.*, rows in hexadecimal: 'shop.orders[61:7a)'."),
    ],
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="TIMESTAMP", help="Protect what is visible then; default: a fresh timestamp."),
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="Use a fresh timestamp; the default.")] = False,
    mode: Annotated[Mode, typer.Option(help="Protect what is visible at the timestamp, or at it and after.")] = Mode.AT,
    record_id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Default: generated.")] = None,
    owner: Annotated[
        str | None, typer.Option(metavar="TYPE", help="What decides whether it is still needed; manual: an operator.")
    ] = None,
    meta: Annotated[
        list[str] | None, typer.Option("--meta", metavar="KEY=VALUE", help="Details that the owner is asked about.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="Release it then: 90m, 12h, 7d, 2027-01-31T18:00:00Z.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Protect what is visible at a timestamp, in some tables or rows, until the protection is released."""
    with command(ctx, store, as_json) as run:
        if now and at is not None:
            raise BadValue("at", "a timestamp and --now can't be combined; give one of them")
        record = new_record(
            targets,
            record_id=record_id,
            mode=mode,
            owner=owner,
            meta=_details(meta or ()),
            expires_at=from_ms(moment_ms(expires, "expires", _now_ms())) if expires else None,
        )
        with _tally_as_task(run, "protect"):
            created = create_record(_catalog(run), record, TimestampService(run.store).fresh, at)
            found = ShownProtection.of(created, _now_ms())
        last = TimestampService(run.store).greatest()
        ahead = f"; this is in the future, the last timestamp handed out is {last}" if found.ts > last else ""
        run.answer(found.document(), lambda out: print_sentence(out, f"{found.id} protects {found.protects}{ahead}"))


def release(
    ctx: typer.Context,
    record_id: IdArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what it holds back; release nothing.")] = False,
    reason: ReasonOption = "",
    yes: YesOption = False,
    most: MostOption = MOST,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Release a protection. The next sweeps remove what it alone held back."""
    with command(ctx, store, as_json) as run:
        catalog = _catalog(run)
        record = catalog.get(record_id)
        found = _measure(run, [record], most)[0]
        document = found.document() | {"released": not dry_run}
        held = held_back(found.held)
        if dry_run:
            run.answer(document, lambda out: print_sentence(out, f"{record_id} holds back {held}; nothing was changed"))
            return
        run.confirm(f"release {record_id}? It holds back {held}.", yes)
        with _tally_as_task(run, "release"), acting_for(reason=reason):
            catalog.release(record_id, record.version)
        removed = "; the next sweeps remove it" if found.held.entries else ""
        run.answer(document, lambda out: print_sentence(out, f"{record_id} is released, it held back {held}{removed}"))


@app.callback(invoke_without_command=True)
def protections(
    ctx: typer.Context,
    record_id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Show only this one.")] = None,
    most: MostOption = MOST,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the protections: owner, age, targets, and what each holds back."""
    if ctx.invoked_subcommand:
        pass_options_on(ctx, store, as_json)
        return
    with command(ctx, store, as_json) as run:
        catalog = _catalog(run)
        if record_id is not None:
            one = _measure(run, [catalog.get(record_id)], most)[0]
            run.answer(one.document(), lambda out: print_one(out, one))
            return
        meta, records = catalog.state()
        found = _measure(run, sorted(records, key=lambda record: (record.ts, record.id)), most)
        usage = {
            "records": Usage(used=meta.records, limit=run.settings.max_protection_records or None),
            "spans": Usage(used=meta.spans, limit=run.settings.max_protection_spans or None),
        }
        document = {"protections": [each.document() for each in found]}
        used = {what: asdict(use) for what, use in usage.items()}
        run.answer({**document, **used}, lambda out: print_all(out, found, usage))


@app.command()
def move(
    ctx: typer.Context,
    record_id: IdArgument,
    ts: Annotated[int, typer.Argument(metavar="TIMESTAMP")],
    reason: ReasonOption = "",
    yes: YesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move a protection forward. It stays where it is if the new timestamp can no longer be protected."""
    with command(ctx, store, as_json) as run:
        catalog = _catalog(run)
        existing = catalog.get(record_id).ts
        if ts > existing:
            run.confirm(
                f"move {record_id} from {existing} to {ts}? The next sweeps remove what it alone held back in between.",
                yes,
            )
        with _tally_as_task(run, "move"), acting_for(reason=reason):
            catalog.move(record_id, ts).raise_if_refused(ts)
        found = ShownProtection.of(catalog.get(record_id), _now_ms())
        run.answer(found.document(), lambda out: print_sentence(out, f"{found.id} protects {found.protects}"))


def _tally_as_task(run: Command, task: str) -> AbstractContextManager[None]:
    return tally_operations_in_block(run.store, SystemClock(), TaskAttempt(COMMAND, secrets.token_hex(8), task))


def _catalog(run: Command) -> ProtectionCatalog:
    return ProtectionCatalog(run.store, run.settings)


def _now_ms() -> int:
    return SystemClock().now_ms()


def _details(given: Iterable[str]) -> dict[str, str]:
    details: dict[str, str] = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not key or not equals or key in details:
            raise BadValue("meta", "each must be key=value, with different keys")
        details[key] = value
    return details


def _measure(run: Command, records: list[Record], most: int) -> list[HeldProtection]:
    held = HeldBack(run.store, most).per_record(records, _catalog(run).records())
    return [HeldProtection(ShownProtection.of(record, _now_ms()), held[record.id]) for record in records]
