"""The fields of operations: each is checked and converted before an operation starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sweep_tasks.errors import BadValue, SweepflowError
from sweep_tasks.model import MAX_NAME_BYTES, MAX_TS, Cell, Span, SweepStrategy, TableRef, checked_name
from sweep_tasks.protection.records import Mode, Target
from sweep_tasks.queue.encoding import MAX_SHARDS

_HEX = re.compile(r"(?:[0-9a-f]{2})*\Z")


class UnknownField(SweepflowError):
    """A field that its operation does not have."""

    code = "unknown_field"


class ScenarioWrite(NamedTuple):
    """One write of a transaction; a value of None is a delete."""

    table: TableRef
    cell: Cell
    value: bytes | None


Check = Callable[[str, Any], Any]
"""Takes the name and the JSON value of a field, and returns the value to use or raises `BadValue`."""


class Field(NamedTuple):
    """How a field is checked, and its default."""

    check: Check
    default: Any = ...
    """`...` means that the field is required."""


def checked(operation: Mapping[str, Any], fields: Mapping[str, Field]) -> dict[str, Any]:
    """Return the checked fields of an operation, or raise an error that names the field."""
    for name in operation:
        if name != "op" and name not in fields:
            raise UnknownField(f"{name}: is not a field of {operation['op']!r}; it takes {', '.join(fields) or 'none'}")
    found: dict[str, Any] = {}
    for name, field in fields.items():
        if name in operation:
            found[name] = field.check(name, operation[name])
        elif field.default is ...:
            raise BadValue(name, f"is missing; {operation['op']!r} needs it")
        else:
            found[name] = field.default
    return found


def integer(least: int, greatest: int) -> Check:
    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= greatest:
            raise BadValue(name, f"must be a whole number from {least} to {greatest}")
        return value

    return check


timestamp = integer(0, MAX_TS - 1)
milliseconds = integer(0, 2**53)
shards = integer(1, MAX_SHARDS)
shard = integer(0, MAX_SHARDS - 1)
positive = integer(1, 2**31)
seconds = integer(0, 2**31)


def commit(name: str, value: Any) -> int | None:
    return None if value is None else int(integer(-1, MAX_TS - 1)(name, value))


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadValue(name, "must be true or false")
    return value


def text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value or not _storable(value):
        raise BadValue(name, "must be a non-empty string of Unicode characters")
    return value


def _storable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def table(name: str, value: Any) -> TableRef:
    return TableRef.parse(text(name, value))


def hexadecimal(name: str, value: Any) -> bytes:
    if not isinstance(value, str) or not _HEX.match(value):
        raise BadValue(name, "must be lowercase hexadecimal with an even number of digits")
    return bytes.fromhex(value)


def cell_name(name: str, value: Any) -> bytes:
    return checked_name(hexadecimal(name, value), name)


def one_of(kind: type[SweepStrategy] | type[Mode]) -> Check:
    def check(name: str, value: Any) -> Any:
        try:
            return kind(value)
        except ValueError as error:
            raise BadValue(name, f"must be one of {', '.join(kind)}") from error

    return check


def queued_strategy(name: str, value: Any) -> SweepStrategy:
    found: SweepStrategy = one_of(SweepStrategy)(name, value)
    if found is SweepStrategy.NOTHING:
        raise BadValue(name, "must be conservative or thorough; tables with the strategy nothing are never swept")
    return found


def writes(name: str, value: Any) -> list[ScenarioWrite]:
    if not isinstance(value, list):
        raise BadValue(name, "must be a list of [table, row, column, value]")
    return [_write(f"{name}[{number}]", each) for number, each in enumerate(value)]


def _write(name: str, value: Any) -> ScenarioWrite:
    if not isinstance(value, list) or len(value) != 4:
        raise BadValue(name, "must be [table, row, column, value]")
    ref, row, column, content = value
    stored = None if content is None else hexadecimal(name, content)
    if stored == b"":
        raise BadValue(name, "has an empty value; use null to delete")
    return ScenarioWrite(table(name, ref), Cell(cell_name(name, row), cell_name(name, column)), stored)


def targets(name: str, value: Any) -> tuple[Target, ...]:
    if not isinstance(value, list) or not value:
        raise BadValue(name, 'must be a list of tables "ns.t" or row ranges ["ns.t", from, to]')
    return tuple(_target(f"{name}[{number}]", each) for number, each in enumerate(value))


def _target(name: str, value: Any) -> Target:
    if isinstance(value, str):
        return Target(table(name, value))
    if not isinstance(value, list) or len(value) != 3:
        raise BadValue(name, 'must be a table "ns.t" or a row range ["ns.t", from, to]')
    start, end = hexadecimal(name, value[1]), hexadecimal(name, value[2])
    if len(start) > MAX_NAME_BYTES or len(end) > MAX_NAME_BYTES or (end and end <= start):
        raise BadValue(name, "the first row must come before the end row; use an empty end for the end of the table")
    return Target(table(name, value[0]), Span(start, end))
