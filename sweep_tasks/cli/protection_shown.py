"""A protection as a document for scripts and as a line for people.

What it holds back is told in numbers. The rows of its targets are shown in hexadecimal, as they were given; those of
the entries it holds are not shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Column, Table

from sweep_tasks.clock import from_ms
from sweep_tasks.durations import words
from sweep_tasks.protection.reconcile import age_s, expired
from sweep_tasks.protection.records import Record
from sweep_tasks.sweep.held import Held

Document = dict[str, Any]

_COLUMNS = ("id", "owner", "age", "protects", "state", "holds back")


def described(record: Record, now_ms: int) -> Document:
    return {
        "id": record.id,
        "ts": record.ts,
        "mode": record.mode.value,
        "state": record.state.value,
        "moving_to": record.held_ts,
        "owner": record.meta_type,
        "meta": dict(record.meta),
        "targets": [str(target) for target in record.targets],
        "created": str(from_ms(record.created_ms)) if record.created_ms else None,
        "age_s": age_s(record, now_ms),
        "expires": str(from_ms(record.expires_ms)) if record.expires_ms is not None else None,
        "expired": expired(record, now_ms),
    }


def figures(held: Held) -> Document:
    return held._asdict() | {"blocking": held.blocking}


def say(out: Console, sentence: str) -> None:
    out.print(escape(sentence), highlight=False)


def print_all(out: Console, documents: list[Document], used: Mapping[str, Document]) -> None:
    if not documents:
        out.print("nothing is protected; 'sweepflow protect TARGET' keeps what is visible now")
        return
    shown = Table(*(Column(name, overflow="fold") for name in _COLUMNS))
    for each in documents:
        protects = f"{each['mode']} {each['ts']} in {listed(each)}"
        holds = f"{_entries(each)} entries, {_size(each)}" if each["blocking"] else "nothing, not blocking"
        shown.add_row(*map(escape, (each["id"], each["owner"], _age(each), protects, _state(each), holds)))
    out.print(shown)
    uses = (f"{use['used']} of {use['limit'] or 'any number of'} {what}" for what, use in used.items())
    say(out, f"in use: {', '.join(uses)}")


def print_one(out: Console, document: Document) -> None:
    properties = {
        "id": document["id"],
        "timestamp": f"{document['mode']} {document['ts']}",
        "targets": "\n".join(document["targets"]),
        "state": _state(document),
        "owner": document["owner"],
        "details": ", ".join(f"{key}={value}" for key, value in document["meta"].items()) or "-",
        "age": _age(document),
        "entries held back": _entries(document),
        "versions that would go": str(document["versions"]),
        "their bytes": _size(document),
        "blocking": _blocking(document),
    }
    shown = Table(show_header=False)
    for name, value in properties.items():
        shown.add_row(name, escape(value))
    out.print(shown)


def listed(document: Document) -> str:
    first, *others = document["targets"]
    return f"{first} and {len(others)} more" if len(others) > 2 else ", ".join(document["targets"])


def held_back(document: Document) -> str:
    """What waits for a record, and what of it waits for nothing else."""
    if not document["entries"]:
        return "nothing"
    return f"{_entries(document)} entries with {document['versions']} versions ({_size(document)})"


def _age(document: Document) -> str:
    return "unknown" if document["age_s"] is None else words(document["age_s"])


def _state(document: Document) -> str:
    moving = document["moving_to"]
    state = str(document["state"]) if moving is None else f"moving to {moving}"
    if document["expired"]:
        return f"{state}, expired"
    return f"{state}, until {document['expires'][:16]}" if document["expires"] else state


def _entries(document: Document) -> str:
    return f"{'at least ' if document['at_least'] else ''}{document['entries']}"


def _size(document: Document) -> str:
    return f"{'at least ' if document['at_least'] else ''}{decimal(document['bytes'])}"


def _blocking(document: Document) -> str:
    return "yes" if document["blocking"] else "no"
