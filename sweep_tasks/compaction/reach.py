"""How the files of a node are reached: on this machine, or through a command that runs others where the files are.

Such a command is put before each program: `ssh cassandra1`, `kubectl exec cassandra-0 --`. Nothing is read from here
then, neither a file nor a folder. The programs needed there are `sh`, `find` and `head`, besides Cassandra's own.

What such a command says of itself, and how it ends, means something else for each of them: one prints warnings, one
adds a line of its own when a program has failed. So `find` and `head` are run there by a shell that tells how they
ended, and what they complained about, behind what they said. Where that is missing, the node was not reached.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from sweep_tasks.errors import NodeUnreachable

PATIENCE_S = 120
_FOUND = "%s %T@ %p\\n"
_ENDED = "--- sweepflow: ended with "
_TOLD = f'exec 3>&1; told=$(LC_ALL=C "$@" 2>&1 >&3); printf "\\n{_ENDED}%s\\n%s" "$?" "$told"'
_NOT_THERE = "No such file or directory"


class Stand(NamedTuple):
    """A file as it stands: another one in its place would differ."""

    path: Path
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class Reach:
    """Without a prefix, this machine."""

    prefix: tuple[str, ...] = ()

    def command(self, program: Sequence[str]) -> list[str]:
        """A program with its arguments, as it has to be started from here."""
        return [*self.prefix, *(map(shlex.quote, program) if self._through_a_shell else program)]

    def label(self, path: Path) -> str:
        """A name that no file of another node has; it is kept, so the words of the command are not in it."""
        return f"{sha256(shlex.join(self.prefix).encode()).hexdigest()[:16]}:{path}" if self.prefix else str(path)

    def stands(self, files: Iterable[Path]) -> dict[Path, Stand]:
        """Those of the files that are there."""
        if self.prefix:
            return {each.path: each for each in self._find([*map(str, files)], "-maxdepth", "0")}
        return {file: Stand(file, found.st_size, found.st_mtime_ns) for file in files if (found := _stat(file))}

    def listed(self, folder: Path, *names: str) -> list[Stand]:
        """Files with names that end so, in the folders of a folder; a folder that is not there has none."""
        if self.prefix:
            wanted = [word for name in names for word in ("-o", "-name", f"*{name}")][1:]
            return self._find([str(folder)], "-mindepth", "2", "-maxdepth", "2", "-type", "f", "(", *wanted, ")")
        found = (file for name in names for file in folder.glob(f"*/*{name}"))
        return list(self.stands(found).values())

    def read(self, file: Path, most: int) -> bytes | None:
        """The beginning of a file; None if it is not there."""
        if self.prefix:
            said, whole = self._run(["head", "-c", str(most), str(file)])
            return said if whole else None
        try:
            with file.open("rb") as opened:  # memory is taken for as much as is asked for, whatever there is
                return opened.read(min(most, os.fstat(opened.fileno()).st_size))
        except FileNotFoundError:
            return None

    @property
    def _through_a_shell(self) -> bool:
        """ssh joins its arguments and has a shell take them apart again, whatever command it was itself started by."""
        return any(Path(word).name == "ssh" for word in self.prefix)

    def _find(self, places: list[str], *tests: str) -> list[Stand]:
        """What is not there makes `find` complain and end with 1, and is left out."""
        if not places:
            return []
        said, _ = self._run(["find", *places, *tests, "-printf", _FOUND])
        return [_stand(line) for line in said.decode(errors="surrogateescape").splitlines() if line]

    def _run(self, program: Sequence[str]) -> tuple[bytes, bool]:
        """What it said, and whether everything it was to look at is there."""
        try:
            done = subprocess.run(  # noqa: S603
                self.command(["sh", "-c", _TOLD, "sh", *program]),
                stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=PATIENCE_S,
            )  # fmt: skip
        except OSError as error:
            problem = error.strerror or "it can't be started"
            raise NodeUnreachable(self.prefix, program[0], problem, reason="not_started") from error
        except subprocess.TimeoutExpired:
            problem = f"no answer within {PATIENCE_S} s"
            raise NodeUnreachable(self.prefix, program[0], problem, reason="timeout") from None
        said, reached, ended = done.stdout.rpartition(f"\n{_ENDED}".encode())
        if not reached:
            raise self._unreachable(program, "not_reached", done.stderr)
        status, _, told = ended.partition(b"\n")
        complaints = told.decode(errors="replace").splitlines()
        if status != b"0" and not (complaints and all(line.endswith(_NOT_THERE) for line in complaints)):
            raise self._unreachable(program, "program_failed", told)
        return said, status == b"0"

    def _unreachable(self, program: Sequence[str], reason: str, complaints: bytes) -> NodeUnreachable:
        said = _last_line(complaints)
        return NodeUnreachable(self.prefix, program[0], said or "it said nothing", reason=reason, said=said)


HERE = Reach()


def _last_line(said: bytes) -> str:
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else ""


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except FileNotFoundError:
        return None


def _stand(line: str) -> Stand:
    size, modified, path = line.split(" ", 2)
    seconds, _, rest = modified.partition(".")
    return Stand(Path(path), int(size), int(seconds) * 1_000_000_000 + int(f"{rest:0<9}"[:9]))
