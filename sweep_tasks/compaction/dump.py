"""What is in an SSTable, as Cassandra's own sstabledump prints it, one entry after the other.

The dump is JSON, and a partition in it may be larger than memory: so no more of the text is held than one row takes.
The text is the user's data: nothing of it, nor of what the tool complains about, gets into an error.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from sweep_tasks.compaction.sstables import SSTable
from sweep_tasks.errors import BadValue, SSTableUnreadable

PARTITION = "partition"
Dumped = tuple[str, dict[str, Any]]
"""`partition` and its head, or the type of an entry and the entry; entries follow the head of their partition."""
Read = Callable[[int], str]
"""At most so many characters, fewer only at the end."""

_AT_ONCE = 64 * 1024
_BETWEEN = re.compile(r"[\s,:]*")
_DECODER = json.JSONDecoder()
_EXCEPTION = re.compile(r"\b(?:[\w$]+\.)*([A-Z]\w*(?:Exception|Error))\b")


@dataclass(frozen=True, slots=True)
class Tools:
    """How Cassandra's tools are started where the files are."""

    sstabledump: tuple[str, ...] = ("sstabledump",)


class MalformedDump(Exception):
    """Inside only: what was read is not a dump, or not all of one."""


def entries_of(sstable: SSTable, tools: Tools, key: str | None = None) -> Iterator[Dumped]:
    """Of all partitions, or of the one with this key. A file that goes away meanwhile may end this early or not at all:
    look afterwards whether it is still there."""
    with tempfile.TemporaryFile() as complaints:
        only = ["-k", key] if key is not None else []
        command = sstable.reach.command([*tools.sstabledump, str(sstable.data), "-t", "-l", *only])
        process = _start(command, complaints)
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
    """Of a dump as one array or as a line for each partition."""
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
            yield PARTITION, value
        return
    text.expect("[")
    while text.next() == "{":
        entry = text.value()
        yield entry["type"], entry
    text.expect("]")


class _Text:
    """The text of which only the part at hand is kept."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._buffer = ""
        self._at = 0

    def next(self) -> str:
        """The next character that means something; none at the end."""
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
        if self.next() not in ('"', "{"):  # a number could go on in what was not read yet
            raise MalformedDump
        while True:
            try:
                value, self._at = _DECODER.raw_decode(self._buffer, self._at)
            except json.JSONDecodeError:
                if not self._more():
                    raise MalformedDump from None
            else:
                return value

    def _more(self) -> bool:
        """Twice as much each time a value does not fit, so that a large one is not tried over and over."""
        rest = self._buffer[self._at :]
        new = self._read(max(_AT_ONCE, len(rest)))
        self._buffer, self._at = rest + new, 0
        return bool(new)


def _start(command: list[str], complaints: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints
        )
    except OSError as error:
        raise BadValue(
            "sstabledump", f"{command[0]} can't be started: {error.strerror}; name the one of this machine's Cassandra"
        ) from error


def _exit_code(process: subprocess.Popen[bytes], text: IO[str]) -> int:
    """Of a program that has said all it has to say; one that talks on, of something else, is not waited for."""
    return 0 if len(text.read(_AT_ONCE)) == _AT_ONCE else process.wait()


def _problem(complaints: IO[bytes], exit_code: int) -> tuple[str, str]:
    """In words, and as a reason: the name of the exception, or `exit_` and the exit code."""
    complaints.seek(0)
    named = exception_in(complaints.read(_AT_ONCE).decode(errors="replace"))
    if named:
        return f"sstabledump ended with {named}", named
    if exit_code:
        return f"sstabledump failed with exit code {exit_code}", f"exit_{exit_code}"
    return "its dump is not whole", "incomplete"


def exception_in(complaints: str) -> str | None:
    """Only the name of an exception: what stands behind it may be a key."""
    named = _EXCEPTION.findall(complaints)
    return named[-1] if named else None
