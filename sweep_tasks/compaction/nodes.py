"""The nodes of setting `compaction_nodes`: where their files are, and how Cassandra's tools are run on them.

Every start of a tool is a start of Java, which takes a second or two: so one call asks about as much as it can.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sweep_tasks.compaction.dump import Tools, exception_in
from sweep_tasks.compaction.reach import Reach
from sweep_tasks.config import Settings
from sweep_tasks.errors import NodetoolFailed, NodeUnreachable, UnknownNode

_LOOK_PATIENCE_S = 120
_WORK_PATIENCE_S = 24 * 3_600
"""A compaction of the whole budget on a slow disk; a task has its own time limit."""
_LINES_SHOWN = 3


class ToolFailed(NodetoolFailed):
    """A tool ended with an error on a node, or did not end in time."""

    def __init__(self, message: str, *, node: str, tool: str, reason: str, said: str = "") -> None:
        """`said`: what it gave as the cause, as far as that may be shown."""
        super().__init__(message, reason=reason)
        self.node = node
        self.tool = tool
        self.said = said


class AnswerNotUnderstood(NodetoolFailed):
    """A tool did not answer as that of Cassandra 5 does."""

    def __init__(self, message: str, *, tool: str, reason: str | None = None) -> None:
        super().__init__(message, reason=reason)
        self.tool = tool


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    data: tuple[Path, ...]
    reach: Reach
    tools: Tools
    nodetool_command: tuple[str, ...] = ("nodetool",)
    metadata_command: tuple[str, ...] = ("sstablemetadata",)

    @classmethod
    def named(cls, settings: Settings, name: str) -> Self:
        given = settings.compaction_nodes.get(name)
        if given is None:
            raise UnknownNode(name, list(settings.compaction_nodes))
        return cls(
            name=name,
            data=tuple(map(Path, given.data)),
            reach=Reach(given.prefix),
            tools=Tools(given.sstabledump),
            nodetool_command=given.nodetool,
            metadata_command=given.sstablemetadata,
        )

    def nodetool(self, *arguments: str, changes: bool = False) -> str:
        """`changes`: it does something, and may take as long as that takes."""
        patience_s = _WORK_PATIENCE_S if changes else _LOOK_PATIENCE_S
        return self._said([*self.nodetool_command, *arguments], f"nodetool {arguments[0]}", patience_s)

    def sstablemetadata(self, files: Sequence[Path]) -> str:
        """It tells of each file that it can read, and complains of the others. Keys of rows are among what it says."""
        return self._said([*self.metadata_command, *map(str, files)], "sstablemetadata", _LOOK_PATIENCE_S, quoted=False)

    def _said(self, program: Sequence[str], what: str, patience_s: int, quoted: bool = True) -> str:
        try:
            done = subprocess.run(  # noqa: S603
                self.reach.command(program),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=patience_s,
            )
        except OSError as error:
            problem = error.strerror or "it can't be started"
            raise NodeUnreachable(self.reach.prefix, program[0], problem, reason="not_started") from error
        except subprocess.TimeoutExpired:
            message = f"node: {what} on {self.name} was not done after {patience_s} s; look at it"
            raise ToolFailed(message, node=self.name, tool=what, reason="timeout") from None
        if done.returncode:
            said = _last_words(done.stderr) if quoted else exception_in(done.stderr) or ""
            message = f"node: {what} failed on {self.name}: {said or 'it did not say why'}"
            raise ToolFailed(message, node=self.name, tool=what, reason="program_failed", said=said)
        return done.stdout


def _last_words(said: str) -> str:
    return " ".join(map(str.strip, said.strip().splitlines()[-_LINES_SHOWN:]))[:400]
