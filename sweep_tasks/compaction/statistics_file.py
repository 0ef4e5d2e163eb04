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
_SPREAD = ("keys", "first_token", "last_token")


class BadJson(BadValue):
    code = "bad_json"


class UnknownField(BadValue):
    code = "unknown_field"


def read_statistics(lines: Iterable[str]) -> Iterator[FileStatistics]:
    """Blank lines are skipped. The first line that can't be used ends it, with an error that names line and field."""
    first_seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        file = _statistics(f"line {number}", line)
        earlier = first_seen.setdefault(file.file, number)
        if earlier != number:
            raise BadValue(
                f"line {number}, file",
                f"is the same as in line {earlier}; give each file once, and names that differ, such as whole paths",
            )
        yield file


def _statistics(where: str, line: str) -> FileStatistics:
    fields = _fields(where, line)
    for name in fields:
        if name not in FIELDS:
            raise UnknownField(f"{where}, {_shown(name)}", f"is not a field; leave it out, or use {', '.join(FIELDS)}")
    for name in ("file", "blocks"):
        if name not in fields:
            raise BadValue(f"{where}, {name}", "is missing; every line needs file and blocks")
    return FileStatistics(
        file=_text(where, fields, "file"),
        blocks=_blocks(f"{where}, blocks", fields["blocks"]),
        clean_blocks=_count(where, fields, "clean_blocks") or 0,
        table=_text(where, fields, "table") if "table" in fields else None,
        pending=_flag(where, fields, "pending"),
        longest_run=_count(where, fields, "longest_run"),
        tombstones=_count(where, fields, "tombstones"),
        spread=_spread(where, fields),
        read_tombstones=_count(where, fields, "read_tombstones"),
        proof=_object(where, fields, "proof"),
    )


def _fields(where: str, line: str) -> dict[str, Any]:
    way_out = "write one object a line"
    try:
        found = json.loads(line, object_pairs_hook=_once_each)
    except BadValue as error:
        raise BadJson(f"{where}, {_shown(error.field)}", "is given twice; give it once") from error
    except json.JSONDecodeError as error:
        raise BadJson(where, f"is not JSON: {error.msg} at column {error.colno}; {way_out}") from error
    except (ValueError, RecursionError) as error:
        raise BadJson(where, f"is not JSON that can be read: too many digits or brackets; {way_out}") from error
    if not isinstance(found, dict):
        raise BadJson(where, f"is not a JSON object; {way_out}, with file and blocks")
    return found


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise BadValue(name, "is given twice")
        found[name] = value
    return found


def _text(where: str, fields: Fields, name: str) -> str:
    value = fields[name]
    if not isinstance(value, str) or not value or not _encodable(value):
        raise BadValue(f"{where}, {name}", "must be a string of Unicode characters that is not empty")
    return value


def _flag(where: str, fields: Fields, name: str) -> bool:
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise BadValue(f"{where}, {name}", "must be true or false; left out means false")
    return value


def _count(where: str, fields: Fields, name: str) -> int | None:
    if name not in fields:
        return None
    value = fields[name]
    if type(value) is not int or value < 0:
        raise BadValue(f"{where}, {name}", "must be a whole number, 0 or more; leave it out if it is not known")
    return value


def _object(where: str, fields: Fields, name: str) -> Fields | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, dict):
        raise BadValue(f"{where}, {name}", "must be an object, as it was measured; leave it out if it is not known")
    return value


def _blocks(where: str, value: Any) -> list[Block]:
    if not isinstance(value, list):
        raise BadValue(where, f"must be a list of {_BLOCK}")
    return [_block(where, number, each) for number, each in enumerate(value)]


def _block(where: str, number: int, value: Any) -> Block:
    if not isinstance(value, list) or len(value) != 3:
        raise BadValue(f"{where}[{number}]", f"must be {_BLOCK}")
    for name, each in zip(Block._fields, value, strict=True):
        if type(each) is not int or each < 0:  # true and false are numbers to Python, not here
            raise BadValue(f"{where}[{number}], {name}", "must be a whole number, 0 or more", reason="not_a_count")
    block = Block(*value)
    if block.tombstone_bytes > block.total_bytes:
        raise BadValue(
            f"{where}[{number}], tombstone_bytes",
            "are more than total_bytes, which they are a part of; give both as they are before compression",
        )
    return block


def _spread(where: str, fields: Fields) -> Spread | None:
    given = [name for name in _SPREAD if name in fields]
    if not given:
        return None
    for name in _SPREAD:
        if name not in fields:
            raise BadValue(f"{where}, {name}", f"is missing; {', '.join(_SPREAD)} go together, give all or none")
    first, last = (_token(where, fields, name) for name in ("first_token", "last_token"))
    if first > last:
        raise BadValue(f"{where}, last_token", "is less than first_token; a file runs from its least to its greatest")
    return Spread(_count(where, fields, "keys") or 0, first, last)


def _token(where: str, fields: Fields, name: str) -> int:
    value = fields[name]
    if type(value) is not int or not LEAST_TOKEN <= value <= GREATEST_TOKEN:
        raise BadValue(f"{where}, {name}", f"must be a whole number from {LEAST_TOKEN} to {GREATEST_TOKEN}")
    return value


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(name: str) -> str:
    """A field's name as it was given, fit for a terminal."""
    return ascii(name if len(name) <= 40 else f"{name[:37]}...")
