"""Statistics of files as JSON lines, one file each, read while they come.

    {"file": "a", "blocks": [[tombstones, tombstone_bytes, total_bytes], …]}

A line that says something else than it may is refused, and an unknown field too: a misspelled `pending` would send a
file to compaction that the engine is about to compact.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sweep_tasks.compaction.overlaps import Spread
from sweep_tasks.compaction.rules import Block, FileStatistics
from sweep_tasks.errors import BadValue
from sweep_tasks.model import GREATEST_TOKEN, LEAST_TOKEN

Fields = Mapping[str, Any]

FIELDS = (
    "file", "table", "blocks", "clean_blocks", "pending", "longest_run", "tombstones", "keys", "first_token",
    "last_token", "read_tombstones", "proof",
)  # fmt: skip
_BLOCK = "[tombstones, tombstone_bytes, total_bytes]"
_WAY_OUT = "write one object a line"
_SPREAD = ("keys", "first_token", "last_token")


class BadLine(BadValue):
    """A line can't be used. `field`: the field of it that is wrong, or `line` where that is all of it."""

    def __init__(
        self, line: int, field: str | None, problem: str, *, reason: str | None = None, shown: str | None = None
    ) -> None:
        """`shown`: the field as it is fit for a terminal, where the writer of the line chose its name."""
        named = shown or field
        super().__init__(f"line {line}, {named}" if named else f"line {line}", problem, reason=reason)
        self.line = line
        self.field = "line" if field is None else field


class RepeatedFile(BadLine):
    def __init__(self, line: int, earlier: int) -> None:
        super().__init__(
            line,
            "file",
            f"is the same as in line {earlier}; give each file once, and names that differ, such as whole paths",
            reason="duplicate",
        )
        self.earlier = earlier


class BadJson(BadLine):
    code = "bad_json"


class NotJson(BadJson):
    def __init__(self, line: int, error: json.JSONDecodeError) -> None:
        super().__init__(line, None, f"is not JSON: {error.msg} at column {error.colno}; {_WAY_OUT}", reason="not_json")
        self.column = error.colno


class UnknownField(BadLine):
    code = "unknown_field"

    def __init__(self, line: int, name: str) -> None:
        field = _shortened(name)
        problem = f"is not a field; leave it out, or use {', '.join(FIELDS)}"
        super().__init__(line, field, problem, shown=ascii(field))
        self.known = FIELDS


def read_statistics(lines: Iterable[str]) -> Iterator[FileStatistics]:
    """Blank lines are skipped. The first line that can't be used ends it, with an error that names line and field."""
    first_seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        file = _statistics(number, line)
        earlier = first_seen.setdefault(file.file, number)
        if earlier != number:
            raise RepeatedFile(number, earlier)
        yield file


def _statistics(at: int, line: str) -> FileStatistics:
    fields = _fields(at, line)
    for name in fields:
        if name not in FIELDS:
            raise UnknownField(at, name)
    for name in ("file", "blocks"):
        if name not in fields:
            raise BadLine(at, name, "is missing; every line needs file and blocks", reason="missing")
    return FileStatistics(
        file=_text(at, fields, "file"),
        blocks=_blocks(at, fields["blocks"]),
        clean_blocks=_count(at, fields, "clean_blocks") or 0,
        table=_text(at, fields, "table") if "table" in fields else None,
        pending=_flag(at, fields, "pending"),
        longest_run=_count(at, fields, "longest_run"),
        tombstones=_count(at, fields, "tombstones"),
        spread=_spread(at, fields),
        read_tombstones=_count(at, fields, "read_tombstones"),
        proof=_object(at, fields, "proof"),
    )


def _fields(at: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line, object_pairs_hook=_once_each)
    except BadValue as error:
        field = _shortened(error.field)
        problem = "is given twice; give it once"
        raise BadJson(at, field, problem, reason="duplicate", shown=ascii(field)) from error
    except json.JSONDecodeError as error:
        raise NotJson(at, error) from error
    except (ValueError, RecursionError) as error:
        problem = f"is not JSON that can be read: too many digits or brackets; {_WAY_OUT}"
        raise BadJson(at, None, problem, reason="too_complex") from error
    if not isinstance(found, dict):
        problem = f"is not a JSON object; {_WAY_OUT}, with file and blocks"
        raise BadJson(at, None, problem, reason="not_an_object")
    return found


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise BadValue(name, "is given twice")
        found[name] = value
    return found


def _text(at: int, fields: Fields, name: str) -> str:
    value = fields[name]
    if not isinstance(value, str) or not value or not _encodable(value):
        raise BadLine(at, name, "must be a string of Unicode characters that is not empty", reason="not_text")
    return value


def _flag(at: int, fields: Fields, name: str) -> bool:
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise BadLine(at, name, "must be true or false; left out means false")
    return value


def _count(at: int, fields: Fields, name: str) -> int | None:
    if name not in fields:
        return None
    value = fields[name]
    if type(value) is not int or value < 0:
        problem = "must be a whole number, 0 or more; leave it out if it is not known"
        raise BadLine(at, name, problem, reason="not_a_count")
    return value


def _object(at: int, fields: Fields, name: str) -> Fields | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, dict):
        raise BadLine(at, name, "must be an object, as it was measured; leave it out if it is not known")
    return value


def _blocks(at: int, value: Any) -> list[Block]:
    if not isinstance(value, list):
        raise BadLine(at, "blocks", f"must be a list of {_BLOCK}", reason="not_a_list")
    return [_block(at, number, each) for number, each in enumerate(value)]


def _block(at: int, number: int, value: Any) -> Block:
    if not isinstance(value, list) or len(value) != 3:
        raise BadLine(at, f"blocks[{number}]", f"must be {_BLOCK}")
    for name, each in zip(Block._fields, value, strict=True):
        if type(each) is not int or each < 0:  # true and false are numbers to Python, not here
            raise BadLine(at, f"blocks[{number}], {name}", "must be a whole number, 0 or more", reason="not_a_count")
    block = Block(*value)
    if block.tombstone_bytes > block.total_bytes:
        raise BadLine(
            at,
            f"blocks[{number}], tombstone_bytes",
            "are more than total_bytes, which they are a part of; give both as they are before compression",
            reason="out_of_range",
        )
    return block


def _spread(at: int, fields: Fields) -> Spread | None:
    given = [name for name in _SPREAD if name in fields]
    if not given:
        return None
    for name in _SPREAD:
        if name not in fields:
            problem = f"is missing; {', '.join(_SPREAD)} go together, give all or none"
            raise BadLine(at, name, problem, reason="missing")
    first, last = (_token(at, fields, name) for name in ("first_token", "last_token"))
    if first > last:
        problem = "is less than first_token; a file runs from its least to its greatest"
        raise BadLine(at, "last_token", problem, reason="before_first")
    return Spread(_count(at, fields, "keys") or 0, first, last)


def _token(at: int, fields: Fields, name: str) -> int:
    value = fields[name]
    if type(value) is not int or not LEAST_TOKEN <= value <= GREATEST_TOKEN:
        problem = f"must be a whole number from {LEAST_TOKEN} to {GREATEST_TOKEN}"
        raise BadLine(at, name, problem, reason="out_of_range")
    return value


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shortened(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:37]}..."
