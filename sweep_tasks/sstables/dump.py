"""Reading the contents of an SSTable from Cassandra's own sstabledump, and the sizes of its entries in bytes."""

from __future__ import annotations

import io
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from struct import Struct
from struct import error as TooShort  # noqa: N812
from typing import IO, Any, TypedDict, cast

from sweep_tasks.errors import BadValue, SSTableUnreadable
from sweep_tasks.processes import Needs, inherited_environment
from sweep_tasks.sstables.files import STATISTICS, SSTable

# ---------------------------------------------------------------------------------------------------------------------
# The entries of an SSTable, one after the other.
#
# The dump is JSON, and a partition in it may be larger than memory: so no more of the text is held than one row takes.
# The text is the user's data: neither it nor the error messages of the tool appear in an error.
# ---------------------------------------------------------------------------------------------------------------------

PARTITION = "partition"


class DeletionInfo(TypedDict):
    """Times are printed as text: microseconds of the write, seconds of the clock."""

    marked_deleted: str
    local_delete_time: str


class Timed(TypedDict, total=False):
    """The write time of a row or a cell, and when it expires."""

    tstamp: str
    ttl: int
    expires_at: str


class DumpedCell(Timed, total=False):
    value: object
    deletion_info: DeletionInfo


class Bound(TypedDict, total=False):
    """The start or the end of a deleted range."""

    type: str
    """`inclusive` or `exclusive`."""
    clustering: list[object]
    deletion_info: DeletionInfo


class DumpEntry(TypedDict, total=False):
    """The head of a partition, a row, or a bound of a deleted range, as far as it is used here. The shape is what
    Cassandra 5.0 prints and is not checked: whatever takes an entry apart does so inside `understood`."""

    type: str
    key: list[str]
    position: int
    clustering: list[object]
    deletion_info: DeletionInfo
    liveness_info: Timed
    cells: list[DumpedCell]
    start: Bound
    end: Bound


Dumped = tuple[str, DumpEntry]
"""`partition` and its head, or the type of an entry and the entry; entries follow the head of their partition."""
Read = Callable[[int], str]
"""Returns at most this many characters, fewer only at the end."""

_AT_ONCE = 64 * 1024
_BETWEEN = re.compile(r"[\s,:]*")
_DECODER = json.JSONDecoder()
_EXCEPTION = re.compile(r"\b(?:[\w$]+\.)*([A-Z]\w*(?:Exception|Error))\b")


@dataclass(frozen=True, slots=True)
class Tools:
    """The commands that start Cassandra's tools on the machine with the files."""

    sstabledump: tuple[str, ...] = ("sstabledump",)


class MalformedDump(Exception):
    """The text is not a dump, or only a part of one. Does not leave this package."""


@contextmanager
def understood(sstable: SSTable) -> Iterator[None]:
    """Report the file as unreadable if this block fails on an entry that lacks something or has another shape than
    Cassandra prints. The original error may quote the data, so it is dropped."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
        problem = "its dump does not have the format that Cassandra 5.0 prints"
        raise SSTableUnreadable(sstable.data, problem, reason="unknown_dump") from None


def entries_of(sstable: SSTable, tools: Tools, key: str | None = None) -> Iterator[Dumped]:
    """The entries of all partitions, or of the one with this key. If the file is removed meanwhile, this may end early:
    check afterwards that it still exists."""
    with tempfile.TemporaryFile() as complaints:
        only = ["-k", key] if key is not None else []
        command = sstable.access.command([*tools.sstabledump, str(sstable.data), "-t", "-l", *only])
        process = _start_tool(command, complaints)
        whole = False
        try:
            out: IO[bytes] = process.stdout  # type: ignore[assignment]  # it is a pipe
            with io.TextIOWrapper(out, encoding="utf-8", errors="replace") as text:
                with suppress(MalformedDump):
                    yield from parsed(text.read)
                    whole = True
                failed = _exit_code(process, text)
        finally:
            process.kill()
            process.wait()
        if failed or not whole:
            sstable.identity()
            problem, reason = _problem(complaints, failed)
            raise SSTableUnreadable(sstable.data, problem, reason=reason)


def parsed(read: Read) -> Iterator[Dumped]:
    """Parse a dump, which is one array or a line for each partition."""
    text = _Text(read)
    is_array = text.skipped("[")
    if not is_array and text.next() != "{":
        raise MalformedDump
    while text.skipped("{"):
        while text.next() == '"':
            yield from _field(text)
        text.expect("}")
    if is_array:
        text.expect("]")
    if text.next():
        raise MalformedDump


def _field(text: _Text) -> Iterator[Dumped]:
    name = text.value()
    if name != "rows":
        value = text.value()
        if name == PARTITION:
            yield PARTITION, _entry(value)
        return
    text.expect("[")
    while text.next() == "{":
        entry = _entry(text.value())
        kind = entry.get("type")
        if not isinstance(kind, str) or kind == PARTITION:
            raise MalformedDump
        yield kind, entry
    text.expect("]")


def _entry(value: Any) -> DumpEntry:
    if not isinstance(value, dict):
        raise MalformedDump
    return cast(DumpEntry, value)


class _Text:
    """A stream of text of which only the part being parsed is kept."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._buffer = ""
        self._at = 0

    def next(self) -> str:
        """The next character that is no space or separator; empty at the end."""
        while True:
            between = _BETWEEN.match(self._buffer, self._at)
            self._at = between.end() if between else self._at
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._more():
                return ""

    def skipped(self, character: str) -> bool:
        found = self.next() == character
        self._at += found
        return found

    def expect(self, character: str) -> None:
        if not self.skipped(character):
            raise MalformedDump

    def value(self) -> Any:
        if self.next() not in ('"', "{"):  # a number could continue in text that is not read yet
            raise MalformedDump
        while True:
            try:
                value, self._at = _DECODER.raw_decode(self._buffer, self._at)
            except json.JSONDecodeError:
                if not self._more():
                    raise MalformedDump from None
            except (ValueError, RecursionError):  # a number of too many digits, or nested too deeply
                raise MalformedDump from None
            else:
                return value

    def _more(self) -> bool:
        """Read twice as much each time a value does not fit, so that a large one is not parsed many times."""
        rest = self._buffer[self._at :]
        new = self._read(max(_AT_ONCE, len(rest)))
        self._buffer, self._at = rest + new, 0
        return bool(new)


def _start_tool(command: list[str], complaints: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603
            command,
            env=inherited_environment(Needs.NODE_TOOL),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
        )
    except OSError as error:
        raise BadValue(
            "sstabledump",
            f"{command[0]} can't be started: {error.strerror}; name that of this machine's Cassandra",
        ) from error


def _exit_code(process: subprocess.Popen[bytes], text: IO[str]) -> int:
    """The exit code of the tool, which has printed its dump. If it prints much more, it is not waited for."""
    return 0 if len(text.read(_AT_ONCE)) == _AT_ONCE else process.wait()


def _problem(complaints: IO[bytes], exit_code: int) -> tuple[str, str]:
    """A sentence and a reason code: the name of the exception, or `exit_` and the exit code."""
    complaints.seek(0)
    named = exception_in(complaints.read(_AT_ONCE).decode(errors="replace"))
    if named:
        return f"sstabledump ended with {named}", named
    if exit_code:
        return f"sstabledump failed with exit code {exit_code}", f"exit_{exit_code}"
    return "its dump is incomplete", "incomplete"


def exception_in(complaints: str) -> str | None:
    """The name of the last exception in an error message, without its text, which may contain a key."""
    named = _EXCEPTION.findall(complaints)
    return named[-1] if named else None


# ---------------------------------------------------------------------------------------------------------------------
# The sizes of entries in bytes, where the dump does not have them.
#
# The dump has the position of each row but not of the bounds of deleted ranges, and a sweep writes little else: a file
# may hold a hundred thousand of them without a row in between. Their size follows from the format: times are stored as
# differences to the least time of the file, which is in its Statistics.db, as integers of variable length.
# ---------------------------------------------------------------------------------------------------------------------

_EPOCH_S = int(datetime(2015, 9, 22, tzinfo=UTC).timestamp())
"""The least times of a file are stored as differences to this day."""
_HEADER = 3
_STATISTICS_AT_MOST = 64 * 1024 * 1024
"""The file has some kilobytes; a larger one is not a Statistics.db."""
_int, _int_pair = Struct(">i"), Struct(">ii")
_CHECKSUM = 4
_ALL = 2**64
_FIXED = 8
"""The size of a clustering value that is a number: in this store's tables those are bigint."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """The least times of a file, to which its other times are relative."""

    min_timestamp: int
    min_deletion_s: int

    def marker(self, entry: DumpEntry, previous: int) -> int:
        """The size of a bound of a deleted range, or of an end that is also the next start. `previous`: the size of the
        entry before it, or of the partition's head."""
        bounds = bounds_of(entry)
        body = vint(previous) + sum(self._deletion(bound["deletion_info"]) for bound in bounds)
        flags, kind, values, header = 1, 1, 2, 1
        return flags + kind + values + header + _clustering(bounds[0]) + vint(body) + body

    def row(self, entry: DumpEntry) -> int:
        """The approximate size of a row: its least overhead and its values."""
        least = 6
        values = sum(_value(cell["value"]) for cell in entry.get("cells", ()) if "value" in cell)
        return least + _clustering(entry) + values

    def _deletion(self, info: DeletionInfo) -> int:
        timestamp = vint((int(info["marked_deleted"]) - self.min_timestamp) % _ALL)
        return timestamp + vint((int(info["local_delete_time"]) - self.min_deletion_s) % _ALL)


def bounds_of(entry: DumpEntry) -> list[Bound]:
    """The bounds in an entry: one, or the end of one range and the start of the next."""
    starts = [entry["start"]] if "start" in entry else []
    return starts + ([entry["end"]] if "end" in entry else [])


def head(version: str, key_bytes: int, is_deleted: bool) -> int:
    """The size of a partition's head: its key and its deletion time. Since Cassandra 5.0 a partition that is not
    deleted takes one byte for the latter."""
    short = not is_deleted and (version >= "oa" or version.startswith("d"))
    return 2 + key_bytes + (1 if short else 12)


def encoding_of(sstable: SSTable) -> Encoding:
    data = sstable.read(STATISTICS, _STATISTICS_AT_MOST)
    if data is None:
        sstable.identity()
        raise SSTableUnreadable(sstable.data, f"its {STATISTICS} is missing", reason="no_statistics")
    try:
        return _read(data)
    except (TooShort, IndexError, KeyError) as error:
        raise SSTableUnreadable(
            sstable.data, f"its {STATISTICS} is not as expected", reason="bad_statistics"
        ) from error


def _read(data: bytes) -> Encoding:
    (parts,) = _int.unpack_from(data)
    start = _int.size + _CHECKSUM
    contents = dict(_int_pair.unpack_from(data, start + number * _int_pair.size) for number in range(parts))
    timestamp, at = read_vint(data, contents[_HEADER])
    deletion, _ = read_vint(data, at)
    return Encoding(_signed(timestamp) + _EPOCH_S * 1_000_000, _signed(deletion) + _EPOCH_S)


def vint(number: int) -> int:
    """The number of bytes of an integer of variable length."""
    return min(9, max(1, -(-number.bit_length() // 7)))


def read_vint(data: bytes, at: int) -> tuple[int, int]:
    """Read an integer of variable length and return it with its end. Its first byte starts with as many ones as bytes
    follow."""
    first = data[at]
    extra = 8 - (first ^ 0xFF).bit_length()
    value = first & (0xFF >> extra)
    return int.from_bytes(bytes([value]) + data[at + 1 : at + 1 + extra]), at + 1 + extra


def _signed(number: int) -> int:
    return number - _ALL if number >= _ALL // 2 else number


def _clustering(holder: DumpEntry | Bound) -> int:
    return sum(_value(each) for each in holder.get("clustering", ()) if each != "*")


def _value(value: object) -> int:
    """The size of a value. Blobs are printed as 0x and hexadecimal digits; an empty one takes a bit of the header."""
    if not isinstance(value, str):
        return _FIXED
    length = (len(value) - 2) // 2 if value.startswith("0x") else len(value.encode())
    return vint(length) + length if length else 0
