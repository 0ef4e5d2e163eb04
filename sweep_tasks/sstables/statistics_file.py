"""Reading statistics of files from JSON lines, and caching what was measured between runs."""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError
from pydantic_core import ErrorDetails

from sweep_tasks.errors import BadValue
from sweep_tasks.files import PRIVATE_FILE, make_private_folder, write_whole
from sweep_tasks.model import GREATEST_TOKEN, LEAST_TOKEN
from sweep_tasks.sstables.files import UNCOMPRESSED_BLOCK, Identity
from sweep_tasks.sstables.statistics import Block, FileStatistics, Spread
from sweep_tasks.sstables.tombstones import MeasuredFile

# ---------------------------------------------------------------------------------------------------------------------
# Statistics of files as JSON lines, one file each, read one line at a time.
#
#     {"file": "a", "blocks": [[tombstones, tombstone_bytes, total_bytes], …]}
#
# A line with a wrong value is refused, and so is one with an unknown field: a misspelled `pending` would send a file to
# compaction that the engine is about to compact.
# ---------------------------------------------------------------------------------------------------------------------

WholeNumber = Annotated[StrictInt, Field(ge=0)]
Token = Annotated[StrictInt, Field(ge=LEAST_TOKEN, le=GREATEST_TOKEN)]
Text = Annotated[StrictStr, Field(min_length=1)]


class StatisticsLine(BaseModel, defer_build=True):
    """One line as it is written. A field that is left out is not known; null is not allowed, except for `proof`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: Text
    blocks: list[tuple[WholeNumber, WholeNumber, WholeNumber]]
    clean_blocks: WholeNumber = 0
    table: Text = ""
    pending: StrictBool = False
    longest_run: WholeNumber = 0
    tombstones: WholeNumber = 0
    keys: WholeNumber = 0
    first_token: Token = 0
    last_token: Token = 0
    read_tombstones: WholeNumber = 0
    proof: dict[str, Any] | None = None

    def statistics(self) -> FileStatistics:
        given = self.model_fields_set
        return FileStatistics(
            file=self.file,
            blocks=[Block(*each) for each in self.blocks],
            clean_blocks=self.clean_blocks,
            table=self.table if "table" in given else None,
            pending=self.pending,
            longest_run=self.longest_run if "longest_run" in given else None,
            tombstones=self.tombstones if "tombstones" in given else None,
            spread=Spread(self.keys, self.first_token, self.last_token) if "keys" in given else None,
            read_tombstones=self.read_tombstones if "read_tombstones" in given else None,
            proof=self.proof,
        )


FIELDS = (
    "file", "table", "blocks", "clean_blocks", "pending", "longest_run", "tombstones", "keys", "first_token",
    "last_token", "read_tombstones", "proof",
)  # fmt: skip
"""In the order in which an error lists them."""
_SPREAD = ("keys", "first_token", "last_token")
_BLOCK = "[tombstones, tombstone_bytes, total_bytes]"
_REMEDY = "write one object a line"


class _Rule(NamedTuple):
    """How a field that breaks its type is reported."""

    problem: str
    reason: str | None = None


_TEXT = _Rule("must be a string of Unicode characters that is not empty", "not_text")
_COUNT = _Rule("must be a whole number, 0 or more; leave it out if it is not known", "not_a_count")
_TOKEN = _Rule(f"must be a whole number from {LEAST_TOKEN} to {GREATEST_TOKEN}", "out_of_range")
_RULES = {
    "file": _TEXT,
    "table": _TEXT,
    "blocks": _Rule(f"must be a list of {_BLOCK}", "not_a_list"),
    "pending": _Rule("must be true or false; left out means false"),
    "first_token": _TOKEN,
    "last_token": _TOKEN,
    "proof": _Rule("must be an object, as it was measured; leave it out if it is not known"),
}


class BadLine(BadValue):
    """A line can't be used. `field`: the wrong field, or `line` if the whole line is wrong."""

    def __init__(
        self, line: int, field: str | None, problem: str, *, reason: str | None = None, shown: str | None = None
    ) -> None:
        """`shown`: the field with control characters escaped, where the writer of the line chose its name."""
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


class BadJsonLine(BadLine):
    code = "bad_json"


class NotJson(BadJsonLine):
    def __init__(self, line: int, error: json.JSONDecodeError) -> None:
        super().__init__(line, None, f"is not JSON: {error.msg} at column {error.colno}; {_REMEDY}", reason="not_json")
        self.column = error.colno


class UnknownLineField(BadLine):
    code = "unknown_field"

    def __init__(self, line: int, name: str) -> None:
        field = _shortened(name)
        problem = f"is not a field; leave it out, or use {', '.join(FIELDS)}"
        super().__init__(line, field, problem, shown=ascii(field))
        self.known = FIELDS


def read_statistics(lines: Iterable[str]) -> Iterator[FileStatistics]:
    """Read statistics line by line, without blank lines. The first bad line ends it with an error that names line and
    field."""
    first_seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        file = _parse(number, line).statistics()
        earlier = first_seen.setdefault(file.file, number)
        if earlier != number:
            raise RepeatedFile(number, earlier)
        yield file


def _parse(at: int, line: str) -> StatisticsLine:
    fields = _fields(at, line)
    try:
        parsed = StatisticsLine.model_validate(fields)
    except ValidationError as error:
        raise _bad_line(at, error) from None  # it quotes the line
    _check_text(at, parsed)
    _check_blocks(at, parsed)
    _check_spread(at, parsed)
    return parsed


def _bad_line(at: int, error: ValidationError) -> BadLine:
    """One error for the line: an unknown field first, then a missing one, then the first wrong value."""
    found = sorted(error.errors(include_url=False, include_input=False), key=_severity)[0]
    field, *place = found["loc"]
    name = str(field)
    if found["type"] == "extra_forbidden":
        return UnknownLineField(at, name)
    if name == "blocks" and place:
        return _bad_block(at, found)
    if found["type"] == "missing":
        return BadLine(at, name, "is missing; every line needs file and blocks", reason="missing")
    rule = _RULES.get(name, _COUNT)
    return BadLine(at, name, rule.problem, reason=rule.reason)


def _severity(error: ErrorDetails) -> int:
    if error["type"] == "extra_forbidden":
        return 0
    return 1 if error["type"] == "missing" and len(error["loc"]) == 1 else 2


def _bad_block(at: int, error: ErrorDetails) -> BadLine:
    _, number, *place = error["loc"]
    if not place or error["type"] == "missing":
        return BadLine(at, f"blocks[{number}]", f"must be {_BLOCK}")
    name = Block._fields[int(place[0])]
    return BadLine(at, f"blocks[{number}], {name}", "must be a whole number, 0 or more", reason="not_a_count")


def _check_text(at: int, line: StatisticsLine) -> None:
    """JSON can name half of a surrogate pair, which is no character."""
    for name, value in (("file", line.file), ("table", line.table)):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadLine(at, name, _TEXT.problem, reason=_TEXT.reason) from None


def _check_blocks(at: int, line: StatisticsLine) -> None:
    for number, (_, tombstone_bytes, total_bytes) in enumerate(line.blocks):
        if tombstone_bytes > total_bytes:
            raise BadLine(
                at,
                f"blocks[{number}], tombstone_bytes",
                "are more than total_bytes, which they are a part of; give both as they are before compression",
                reason="out_of_range",
            )


def _check_spread(at: int, line: StatisticsLine) -> None:
    missing = [name for name in _SPREAD if name not in line.model_fields_set]
    if len(missing) == len(_SPREAD):
        return
    if missing:
        problem = f"is missing; {', '.join(_SPREAD)} belong together, give all or none"
        raise BadLine(at, missing[0], problem, reason="missing")
    if line.first_token > line.last_token:
        problem = "is less than first_token; a file runs from its least to its greatest"
        raise BadLine(at, "last_token", problem, reason="before_first")


def _fields(at: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line, object_pairs_hook=_once_each)
    except BadValue as error:
        field = _shortened(error.field)
        problem = "is given twice; give it once"
        raise BadJsonLine(at, field, problem, reason="duplicate", shown=ascii(field)) from error
    except json.JSONDecodeError as error:
        raise NotJson(at, error) from error
    except (ValueError, RecursionError) as error:
        problem = f"is not JSON that can be read: too many digits or brackets; {_REMEDY}"
        raise BadJsonLine(at, None, problem, reason="too_complex") from error
    if not isinstance(found, dict):
        problem = f"is not a JSON object; {_REMEDY}, with file and blocks"
        raise BadJsonLine(at, None, problem, reason="not_an_object")
    return found


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise BadValue(name, "is given twice")
        found[name] = value
    return found


def _shortened(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:37]}..."


# ---------------------------------------------------------------------------------------------------------------------
# The cache of measurements: one small file for each SSTable, in a folder that several processes may share.
#
# An entry is found by the path of its SSTable and used only if that is still the same file. It is written atomically;
# if two processes measure the same SSTable at once, their results are equal and either one stays.
# ---------------------------------------------------------------------------------------------------------------------

_FORMAT = 3
"""Increased whenever something else is counted, or counted in another way."""
_SUFFIX = ".json"


class Cache:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser()

    def find(self, identity: Identity, uncompressed_block: int = UNCOMPRESSED_BLOCK) -> MeasuredFile | None:
        kept = self._read(self._file(identity.path))
        if kept is None or kept.get("format") != [_FORMAT, uncompressed_block] or kept.get("identity") != [*identity]:
            return None
        try:
            return MeasuredFile.from_json(kept["measured"])
        except (KeyError, TypeError, ValueError):
            return None  # damaged: the file is measured again, and the entry overwritten

    def keep(self, identity: Identity, measured: MeasuredFile, uncompressed_block: int = UNCOMPRESSED_BLOCK) -> None:
        format_ = [_FORMAT, uncompressed_block]
        content = {"format": format_, "identity": identity, "measured": measured.as_json()}
        try:
            make_private_folder(self.folder)
            write_whole(self._file(identity.path), json.dumps(content, separators=(",", ":")), PRIVATE_FILE)
        except OSError as error:
            raise BadValue(
                "folder", f"measurements can't be kept in {self.folder}: {error.strerror}; name another folder"
            ) from error

    def forget_gone(self, within: Sequence[str], existing: Container[str]) -> int:
        """Remove the entries of SSTables in some folders that no longer exist; returns how many."""
        gone = [file for file in self.folder.glob(f"*{_SUFFIX}") if self._is_gone(file, tuple(within), existing)]
        for file in gone:
            file.unlink(missing_ok=True)
        return len(gone)

    def _is_gone(self, file: Path, within: tuple[str, ...], existing: Container[str]) -> bool:
        identity = (self._read(file) or {}).get("identity")
        path = str(identity[0]) if isinstance(identity, list) and identity else ""
        return not path or (path.startswith(within) and path not in existing)

    def _file(self, path: str) -> Path:
        return self.folder / f"{sha256(os.fsencode(path)).hexdigest()[:32]}{_SUFFIX}"

    @staticmethod
    def _read(file: Path) -> dict[str, Any] | None:
        try:
            kept = json.loads(file.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return kept if isinstance(kept, dict) else None
