"""The SSTables in a node's data folders: access to them, their list, and their blocks."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from struct import Struct
from struct import error as TooShort  # noqa: N812
from typing import BinaryIO, NamedTuple, Self

from sweep_tasks.errors import BadValue, NodeUnreachable, SSTableGone, SSTableUnreadable
from sweep_tasks.processes import Needs, inherited_environment

# ---------------------------------------------------------------------------------------------------------------------
# Access to the files of a node: on this machine, or through a prefix that runs commands on the machine with the files.
#
# The prefix is put before each program: `ssh cassandra1`, `kubectl exec cassandra-0 --`. With a prefix, no file or
# folder is read directly. The programs needed there are `sh`, `find` and `head`, besides Cassandra's own.
#
# The messages and exit codes of a prefix differ: one prints warnings, one adds a line of its own when a program has
# failed. So `find` and `head` are run there by a shell that prints their exit code and error messages after their
# output. If that is missing, the node was not reached.
# ---------------------------------------------------------------------------------------------------------------------

PATIENCE_S = 120
_FOUND = "%s %T@ %p\\n"
_ENDED = "--- sweepflow: ended with "
_SCRIPT = f'exec 3>&1; errors=$(LC_ALL=C "$@" 2>&1 >&3); printf "\\n{_ENDED}%s\\n%s" "$?" "$errors"'
_NOT_THERE = "No such file or directory"


class FileState(NamedTuple):
    """The state of a file; another file at the same path would differ."""

    path: Path
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """How to run programs and read files on a node; without a prefix, on this machine."""

    prefix: tuple[str, ...] = ()
    remote_shell: bool = False
    """The prefix passes its arguments to a shell, as ssh does: they have to be quoted."""

    def command(self, program: Sequence[str]) -> list[str]:
        """The command that runs a program on the node."""
        return [*self.prefix, *(map(shlex.quote, program) if self.remote_shell else program)]

    def label(self, path: Path) -> str:
        """A name that no file of another node has. It is stored, so it has a hash of the prefix and not the prefix."""
        return f"{sha256(shlex.join(self.prefix).encode()).hexdigest()[:16]}:{path}" if self.prefix else str(path)

    def states(self, files: Iterable[Path]) -> dict[Path, FileState]:
        """The states of those files that exist."""
        if self.prefix:
            return {each.path: each for each in self._find([*map(str, files)], "-maxdepth", "0")}
        return {file: FileState(file, found.st_size, found.st_mtime_ns) for file in files if (found := _stat(file))}

    def listed(self, folder: Path, *names: str) -> list[FileState]:
        """Files with these suffixes in the subfolders of a folder; none if the folder does not exist."""
        if self.prefix:
            wanted = [word for name in names for word in ("-o", "-name", f"*{name}")][1:]
            return self._find([str(folder)], "-mindepth", "2", "-maxdepth", "2", "-type", "f", "(", *wanted, ")")
        found = (file for name in names for file in folder.glob(f"*/*{name}"))
        return list(self.states(found).values())

    def read(self, file: Path, most: int) -> bytes | None:
        """The beginning of a file; None if it does not exist."""
        if self.prefix:
            printed, whole = self._run(["head", "-c", str(most), str(file)])
            return printed if whole else None
        try:
            with file.open("rb") as opened:  # read() allocates as much as it is asked for
                return opened.read(min(most, os.fstat(opened.fileno()).st_size))
        except FileNotFoundError:
            return None

    def _find(self, places: list[str], *tests: str) -> list[FileState]:
        """Run `find`. Missing places are left out, although `find` reports an error for them."""
        if not places:
            return []
        printed, _ = self._run(["find", *places, *tests, "-printf", _FOUND])
        return [_state(line) for line in printed.decode(errors="surrogateescape").splitlines() if line]

    def _run(self, program: Sequence[str]) -> tuple[bytes, bool]:
        """Run a program on the node; returns its output, and whether all files it was given exist."""
        try:
            done = subprocess.run(  # noqa: S603
                self.command(["sh", "-c", _SCRIPT, "sh", *program]),
                env=inherited_environment(Needs.NODE_TOOL),
                stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=PATIENCE_S,
            )  # fmt: skip
        except OSError as error:
            problem = error.strerror or "it can't be started"
            raise NodeUnreachable(self.prefix, program[0], problem, reason="not_started") from error
        except subprocess.TimeoutExpired:
            problem = f"no answer within {PATIENCE_S} s"
            raise NodeUnreachable(self.prefix, program[0], problem, reason="timeout") from None
        output, reached, ended = done.stdout.rpartition(f"\n{_ENDED}".encode())
        if not reached:
            raise self._unreachable(program, "not_reached", done.stderr)
        status, _, errors = ended.partition(b"\n")
        complaints = errors.decode(errors="replace").splitlines()
        if status != b"0" and not (complaints and all(line.endswith(_NOT_THERE) for line in complaints)):
            raise self._unreachable(program, "program_failed", errors)
        return output, status == b"0"

    def _unreachable(self, program: Sequence[str], reason: str, complaints: bytes) -> NodeUnreachable:
        printed = _last_line(complaints)
        return NodeUnreachable(
            self.prefix, program[0], printed or "it printed no error message", reason=reason, output=printed
        )


HERE = NodeAccess()


def _last_line(printed: bytes) -> str:
    lines = printed.decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else ""


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except FileNotFoundError:
        return None


def _state(line: str) -> FileState:
    size, modified, path = line.split(" ", 2)
    seconds, _, rest = modified.partition(".")
    return FileState(Path(path), int(size), int(seconds) * 1_000_000_000 + int(f"{rest:0<9}"[:9]))


# ---------------------------------------------------------------------------------------------------------------------
# The list of SSTables in a node's data folders, and the identity of each.
#
# An SSTable never changes after it was written; it is replaced by others and removed. So a measurement of an SSTable is
# valid as long as the same file exists: same path, same size, same modification time.
# ---------------------------------------------------------------------------------------------------------------------

DATA, COMPRESSION, STATISTICS, CONTENTS = "Data.db", "CompressionInfo.db", "Statistics.db", "TOC.txt"
OLDEST_VERSION = "na"
"""The version of Cassandra 4.0. Older files have other headers; `nodetool upgradesstables` rewrites them."""
_OTHER_FORMAT = "bti"
"""Its versions are numbered separately."""
_NAME = re.compile(r"(?P<version>[a-z]{2})-(?P<generation>[0-9a-z_]+)-(?P<format>[a-z]+)-Data\.db")
_FOLDER = re.compile(r"(?P<table>\w+)-[0-9a-f]{32}")


class Identity(NamedTuple):
    path: str
    """The label of the path, which differs between nodes."""
    generation: str
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class SSTable:
    keyspace: str
    table: str
    """The name of the table in Cassandra."""
    data: Path
    version: str
    generation: str
    access: NodeAccess = HERE

    @classmethod
    def at(cls, data: Path, access: NodeAccess = HERE) -> Self:
        """The SSTable with this data file, which must be in a folder `<keyspace>/<table>-<id>/`."""
        data = data.absolute()
        if not (_NAME.fullmatch(data.name) and _FOLDER.fullmatch(data.parent.name)):
            raise BadValue(
                "file", f"{data} is not the Data.db of an SSTable in the folder of its table; name one that is"
            )
        found = cls.listed(data, access)
        found.check_format()
        return found

    @classmethod
    def listed(cls, data: Path, access: NodeAccess = HERE) -> Self:
        """The SSTable with this data file, which is in the folder of a table; its format is not checked."""
        name = _NAME.fullmatch(data.name)
        version, generation = (name["version"], name["generation"]) if name else ("", data.name)
        return cls(data.parent.parent.name, data.parent.name.partition("-")[0], data, version, generation, access)

    def check_format(self) -> None:
        if self.version < OLDEST_VERSION and not self.data.name.endswith(f"-{_OTHER_FORMAT}-{DATA}"):
            problem, command = "its format is older than that of Cassandra 4.0", "nodetool upgradesstables"
            raise SSTableUnreadable(self.data, problem, reason="old_format", command=command)

    def component(self, name: str) -> Path:
        return self.data.with_name(self.data.name.removesuffix(DATA) + name)

    def read(self, component: str, most: int) -> bytes | None:
        """The beginning of a component; None if it does not exist."""
        return self.access.read(self.component(component), most)

    def identity(self) -> Identity:
        found = self.access.states([self.data]).get(self.data)
        if found is None:
            raise SSTableGone(self.data)
        return self.identified(found)

    def identified(self, state: FileState) -> Identity:
        return Identity(self.access.label(self.data), self.generation, state.size, state.modified_ns)

    @property
    def qualified_table(self) -> str:
        return f"{self.keyspace}.{self.table}"


def sstables_of(data_folders: Iterable[Path], keyspace: str, table: str) -> list[SSTable]:
    """All complete SSTables of a table on this machine, ordered by name."""
    return list(sstables_in(HERE, data_folders, keyspace, {table}))


def sstables_in(
    access: NodeAccess, data_folders: Iterable[Path], keyspace: str, tables: Container[str]
) -> dict[SSTable, Identity]:
    """All complete SSTables of some tables, ordered by name; without snapshots, backups and indexes, which are in
    deeper folders."""
    found = (each for folder in data_folders for each in _complete(access, folder.absolute() / keyspace, tables))
    return dict(sorted(found, key=lambda each: each[0].data))


def _complete(access: NodeAccess, keyspace: Path, tables: Container[str]) -> Iterator[tuple[SSTable, Identity]]:
    """TOC.txt is written last: without it the SSTable is being written or removed."""
    states = {each.path: each for each in access.listed(keyspace, f"-{CONTENTS}", f"-{DATA}")}
    for path, state in states.items():
        contents = path.with_name(path.name.removesuffix(DATA) + CONTENTS)
        folder = _FOLDER.fullmatch(path.parent.name)
        if path.name.endswith(DATA) and contents in states and folder and folder["table"] in tables:
            sstable = SSTable.listed(path, access)
            yield sstable, sstable.identified(state)


# ---------------------------------------------------------------------------------------------------------------------
# The blocks of an SSTable: its compression chunks, or pieces of a fixed size where it is not compressed.
#
# A read fetches and decompresses a whole chunk, however little of it is needed. The header of CompressionInfo.db has
# the length of a chunk and of all data, both uncompressed; the positions in a dump are positions in the uncompressed
# data.
# ---------------------------------------------------------------------------------------------------------------------

UNCOMPRESSED_BLOCK = 64 * 1024
_HEADER_AT_MOST = 64 * 1024
"""The offsets of all chunks follow the header."""
_short, _int, _lengths = Struct(">H"), Struct(">i"), Struct(">iiq")


@dataclass(frozen=True, slots=True)
class Chunks:
    length: int
    data_length: int
    """The length of all chunks together; the last one is usually shorter."""

    def __len__(self) -> int:
        return -(-self.data_length // self.length)

    def size(self, number: int) -> int:
        return min(self.length, self.data_length - number * self.length)

    def covered(self, position: int, size: int) -> Iterator[tuple[int, int]]:
        """The chunks that these bytes are in, each with the number of bytes in it; positions after the last chunk count
        as in it."""
        last = len(self) - 1
        position = min(position, self.data_length)
        end = min(position + size, self.data_length)
        for number in range(min(position // self.length, last), min((max(end - 1, position)) // self.length, last) + 1):
            yield number, max(0, min(end, (number + 1) * self.length) - max(position, number * self.length))


def chunks_of(sstable: SSTable, uncompressed_block: int = UNCOMPRESSED_BLOCK) -> Chunks:
    identity = sstable.identity()
    header = sstable.read(COMPRESSION, _HEADER_AT_MOST)
    if header is None:
        sstable.identity()
        return Chunks(uncompressed_block, identity.size)
    try:
        chunks = _read(BytesIO(header))
    except (TooShort, UnicodeDecodeError) as error:
        raise SSTableUnreadable(
            sstable.data, f"its {COMPRESSION} is truncated", reason="bad_compression_info"
        ) from error
    if chunks.length <= 0 or chunks.data_length <= 0:
        raise SSTableUnreadable(
            sstable.data, f"its {COMPRESSION} names impossible lengths", reason="bad_compression_info"
        )
    return chunks


def _read(header: BinaryIO) -> Chunks:
    _text(header)  # the compressor
    (options,) = _int.unpack(header.read(_int.size))
    for _ in range(2 * options):
        _text(header)
    length, _longest_compressed, data_length = _lengths.unpack(header.read(_lengths.size))
    return Chunks(length, data_length)


def _text(header: BinaryIO) -> str:
    (length,) = _short.unpack(header.read(_short.size))
    return header.read(length).decode()
