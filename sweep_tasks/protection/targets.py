"""What a protection covers: tables by name or by pattern, whole or a range of their rows. Pure.

shop.orders             a table
shop.*                  every table of a namespace, those made later included
shop.orders[61:7a)      rows from one up to another, in hexadecimal; either may be left out
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

from sweep_tasks.errors import BadValue
from sweep_tasks.model import EVERYTHING, MAX_NAME_BYTES, Span, TableRef

_STAR = "*"
_TEXT = re.compile(r"(?P<table>[^\[]+)(?:\[(?P<start>[0-9a-f]*):(?P<end>[0-9a-f]*)\))?\Z")
_PATTERN_PART = re.compile(r"[A-Za-z0-9_*]+\Z")


class Target(NamedTuple):
    table: TableRef
    """Of the system's tables none is ever covered. A `*` stands for any characters of a name."""
    rows: Span = EVERYTHING

    @classmethod
    def parse(cls, text: str) -> Target:
        found = _TEXT.match(text)
        if found is None:
            raise _bad()
        start, end = (bytes.fromhex(_even(found[name] or "")) for name in ("start", "end"))
        return cls(_table(found["table"]), checked_rows(Span(start, end), "target"))

    @property
    def is_pattern(self) -> bool:
        return _STAR in self.table.namespace or _STAR in self.table.name

    def covers(self, table: TableRef) -> bool:
        if not self.is_pattern:
            return self.table == table
        named = fnmatchcase(table.namespace, self.table.namespace) and fnmatchcase(table.name, self.table.name)
        return named and not table.is_system

    def among(self, tables: Iterable[TableRef]) -> set[TableRef]:
        return {table for table in tables if self.covers(table)}

    def __str__(self) -> str:
        rows = f"[{self.rows.start.hex()}:{self.rows.end.hex()})"
        return str(self.table) if self.rows == EVERYTHING else f"{self.table}{rows}"


def checked_rows(rows: Span, field: str) -> Span:
    if max(len(rows.start), len(rows.end)) > MAX_NAME_BYTES or (rows.end and rows.end <= rows.start):
        raise BadValue(field, "rows must run from one to a later one; an empty end is the end of the table")
    return rows


def _table(text: str) -> TableRef:
    if _STAR not in text:
        return TableRef.parse(text)
    namespace, dot, name = text.partition(".")
    if not dot or not _PATTERN_PART.match(namespace) or not _PATTERN_PART.match(name):
        raise _bad()
    return TableRef(namespace, name)


def _even(digits: str) -> str:
    if len(digits) % 2:
        raise _bad()
    return digits


def _bad() -> BadValue:
    return BadValue(
        "target",
        "write namespace.name, with * for any characters, and for some rows only [from:to) in hexadecimal",
        reason="malformed",
    )
