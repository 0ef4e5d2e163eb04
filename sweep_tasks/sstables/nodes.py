"""The nodes of the setting `compaction_nodes`, and the metadata of their files."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from sweep_tasks.config import Settings
from sweep_tasks.errors import NodetoolFailed, NodeUnreachable, NotFound, NotYet
from sweep_tasks.processes import Needs, inherited_environment
from sweep_tasks.sstables.dump import Tools, exception_in
from sweep_tasks.sstables.files import DATA, NodeAccess
from sweep_tasks.store.contract import chunks

# ---------------------------------------------------------------------------------------------------------------------
# The nodes of setting `compaction_nodes`: the folders with their files, and the commands of Cassandra's tools there.
#
# Every tool starts Java, which takes a second or two: so one call asks for as much as possible.
# ---------------------------------------------------------------------------------------------------------------------

_QUERY_TIMEOUT_S = 120
_COMPACTION_TIMEOUT_S = 24 * 3_600
"""Enough for the whole budget on a slow disk; a task has its own time limit."""
_LINES_SHOWN = 3


class ToolFailed(NodetoolFailed):
    """A tool ended with an error on a node, or did not end in time."""

    def __init__(self, message: str, *, node: str, tool: str, reason: str, output: str = "") -> None:
        """`output`: the error message of the tool, as far as it may be shown."""
        super().__init__(message, reason=reason)
        self.node = node
        self.tool = tool
        self.output = output


class AnswerNotUnderstood(NodetoolFailed):
    """The output of a tool differs from that of Cassandra 5."""

    def __init__(self, message: str, *, tool: str, reason: str | None = None) -> None:
        super().__init__(message, reason=reason)
        self.tool = tool


def no_tombstones(store: str) -> NotYet:
    """The error for a store that has no SSTables; `store` is the scheme of its address."""
    return NotYet(
        f"store: {store} is not a Cassandra store; deletes there leave no tombstones, so there is nothing to compact. "
        "'sweepflow compaction vacuum' shrinks a SQLite file",
        store=store,
    )


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    data: tuple[Path, ...]
    access: NodeAccess
    tools: Tools
    nodetool_command: tuple[str, ...] = ("nodetool",)
    metadata_command: tuple[str, ...] = ("sstablemetadata",)

    @classmethod
    def named(cls, settings: Settings, name: str) -> Self:
        given = settings.compaction_nodes.get(name)
        if given is None:
            known = tuple(settings.compaction_nodes)
            there = f"there are {', '.join(known)}" if known else "it names none; docs/compaction.md describes it"
            raise NotFound(
                f"node: {name!r} is not in setting compaction_nodes; {there}", field="node", name=name, known=known
            )
        return cls(
            name=name,
            data=tuple(map(Path, given.data)),
            access=NodeAccess(given.prefix, bool(given.remote_shell)),
            tools=Tools(given.sstabledump),
            nodetool_command=given.nodetool,
            metadata_command=given.sstablemetadata,
        )

    def nodetool(self, *arguments: str, changes: bool = False) -> str:
        """Run nodetool and return its output. `changes`: it changes something, and may take long."""
        timeout_s = _COMPACTION_TIMEOUT_S if changes else _QUERY_TIMEOUT_S
        return self._run([*self.nodetool_command, *arguments], f"nodetool {arguments[0]}", timeout_s)

    def sstablemetadata(self, files: Sequence[Path]) -> str:
        """Run sstablemetadata and return its output, which leaves out unreadable files. It contains keys of rows."""
        return self._run([*self.metadata_command, *map(str, files)], "sstablemetadata", _QUERY_TIMEOUT_S, quoted=False)

    def _run(self, program: Sequence[str], what: str, timeout_s: int, quoted: bool = True) -> str:
        try:
            done = subprocess.run(  # noqa: S603
                self.access.command(program),
                env=inherited_environment(Needs.NODE_TOOL),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=timeout_s,
            )
        except OSError as error:
            problem = error.strerror or "it can't be started"
            raise NodeUnreachable(self.access.prefix, program[0], problem, reason="not_started") from error
        except subprocess.TimeoutExpired:
            message = f"node: {what} on {self.name} did not end within {timeout_s} s; check the node"
            raise ToolFailed(message, node=self.name, tool=what, reason="timeout") from None
        if done.returncode:
            output = _last_words(done.stderr) if quoted else exception_in(done.stderr) or ""
            message = f"node: {what} failed on {self.name}: {output or 'it printed no error message'}"
            raise ToolFailed(message, node=self.name, tool=what, reason="program_failed", output=output)
        return done.stdout


def _last_words(output: str) -> str:
    return " ".join(map(str.strip, output.strip().splitlines()[-_LINES_SHOWN:]))[:400]


# ---------------------------------------------------------------------------------------------------------------------
# The metadata that Cassandra keeps beside a file: its write times, its level, and whether it was repaired.
#
# Unlike the contents of the file, some of it changes: a repair marks files, and levels are reassigned. So it is read
# each time, for all files at once, with Cassandra's `sstablemetadata`. The output has keys of rows in it, which do not
# leave this module.
# ---------------------------------------------------------------------------------------------------------------------

_FILES_A_CALL = 200
_FILE = re.compile(r"^SSTable: (.+)$", re.MULTILINE)
_FIELDS = {
    "min_timestamp": re.compile(r"^Minimum timestamp: .*?(-?\d+)\)?$", re.MULTILINE),
    "max_timestamp": re.compile(r"^Maximum timestamp: .*?(-?\d+)\)?$", re.MULTILINE),
    "level": re.compile(r"^SSTable Level: (\d+)$", re.MULTILINE),
}
_REPAIRED = re.compile(r"^Repaired at: (\d+)", re.MULTILINE)
_COVERS = re.compile(r"^Replay positions covered: (.*)$", re.MULTILINE)
_POSITION = re.compile(r"segmentId=(-?\d+), position=(-?\d+)")
_PENDING_REPAIR = re.compile(r"^Pending repair: (\S+)$", re.MULTILINE)


Position = tuple[int, int]
"""A segment of the commit log and a position in it."""
LogInterval = tuple[Position, Position]


class FileMetadata(NamedTuple):
    min_timestamp: int
    """The least write time of anything in it."""
    max_timestamp: int
    level: int = 0
    repaired: bool = False
    pending_repair: bool = False
    covers: tuple[LogInterval, ...] = ()
    """The intervals of the commit log whose writes are in the file: those of a flush, or of all files that were
    compacted into it. Empty if it was streamed from another node."""


def metadata_of(node: Node, files: Collection[Path]) -> dict[Path, FileMetadata]:
    """The metadata of files, without those that were removed meanwhile."""
    parts = chunks(sorted(files), _FILES_A_CALL)
    return {path: each for part in parts for path, each in metadata_in(node.sstablemetadata(part))}


def metadata_in(output: str) -> Iterator[tuple[Path, FileMetadata]]:
    """Parse the output of sstablemetadata. An unknown format is an error: if the file were taken for removed, it could
    keep tombstones that were proven droppable."""
    _, *parts = _FILE.split(output)
    for file, text in zip(parts[::2], parts[1::2], strict=True):
        found = {name: each.search(text) for name, each in _FIELDS.items()}
        repaired, pending = _REPAIRED.search(text), _PENDING_REPAIR.search(text)
        if repaired is None or pending is None or not all(found.values()):
            raise _not_understood()
        try:
            numbers = {name: int(each[1]) for name, each in found.items() if each}
            covers = _covers(text)
        except ValueError:  # a number with too many digits, a interval without an end
            raise _not_understood() from None
        yield (
            Path(f"{file}-{DATA}"),
            FileMetadata(**numbers, repaired=repaired[1] != "0", pending_repair=pending[1] != "--", covers=covers),
        )


def _not_understood() -> AnswerNotUnderstood:
    return AnswerNotUnderstood(
        "node: the output of sstablemetadata lacks fields that Cassandra 5's has; check that compaction_nodes starts "
        "that one",
        tool="sstablemetadata",
    )


def joined(intervals: Iterable[LogInterval]) -> tuple[LogInterval, ...]:
    """The intervals in order, with touching ones joined, as Cassandra joins them when it compacts."""
    found: list[LogInterval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return tuple(found)


def meet(one: Iterable[LogInterval], other: Sequence[LogInterval]) -> bool:
    """Whether they overlap; sharing an end is not enough."""
    return any(max(start, begins) < min(end, ends) for start, end in one for begins, ends in other)


def _covers(text: str) -> tuple[LogInterval, ...]:
    found = _COVERS.search(text)
    positions = [(int(segment), int(place)) for segment, place in _POSITION.findall(found[1] if found else "")]
    return joined(zip(positions[::2], positions[1::2], strict=True))
