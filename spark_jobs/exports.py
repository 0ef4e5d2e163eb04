"""Exports on disk: what each holds, and how they build on one another. No Spark.

    <folder>/data/table=<namespace.name>/*.parquet
    <folder>/manifest.json

The manifest is written last, and only then the folder gets its name: one without a manifest is no export, whatever else
lies there. An increment names the export it builds on; the way back to a full one is its chain. It holds what its own
tables need, and nothing of tables that are no longer among them: those have left the chain, and one that comes back is
new, with all its cells.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sweep_tasks.errors import AlreadyExists, BadValue, ExportMissing

FORMAT = 1
FULL, INCREMENT = "full", "increment"
_MANIFEST = "manifest.json"
_DATA = "data"
_UNFINISHED = ".unfinished-"


class Written(NamedTuple):
    """Cells of one table: those with a value, and those that are there no longer."""

    puts: int
    deletes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    ts: int
    chosen: tuple[str, ...]
    """Tables and patterns, as they were asked for."""
    tables: Mapping[str, Written]
    """Those found, empty ones too."""
    since: str | None = None
    """The folder of the export it builds on, seen from its own: both may be moved together."""

    @property
    def kind(self) -> str:
        return FULL if self.since is None else INCREMENT

    def document(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "kind": self.kind,
            "ts": self.ts,
            "chosen": list(self.chosen),
            "tables": {table: written._asdict() for table, written in self.tables.items()},
            "since": self.since,
        }


class Export(NamedTuple):
    folder: Path
    manifest: Manifest

    @property
    def data(self) -> Path:
        return data_of(self.folder)

    @property
    def base(self) -> Path | None:
        """The folder of the export it builds on."""
        since = self.manifest.since
        return None if since is None else Path(os.path.normpath(self.folder / since))


def data_of(folder: Path) -> Path:
    return folder / _DATA


def manifest_of(folder: Path) -> Path:
    return folder / _MANIFEST


def find_export(folder: Path) -> Export | None:
    file = manifest_of(folder)
    if not file.is_file():
        return None
    try:
        plain = json.loads(file.read_text(encoding="utf-8"))
        if plain["format"] != FORMAT:
            problem = f"{folder} has format {plain['format']}, this version reads {FORMAT}; upgrade"
            raise BadValue("export", problem, reason="unknown_format")
        tables = {table: Written(**written) for table, written in plain["tables"].items()}
        return Export(folder, Manifest(plain["ts"], tuple(plain["chosen"]), tables, plain["since"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        problem = f"{file} is not a manifest of an export; name another folder"
        raise BadValue("export", problem, reason="not_a_manifest") from None


def chain(folder: Path) -> list[Export]:
    """From the full export to this one."""
    found: list[Export] = []
    next_one: Path | None = folder
    while next_one is not None:
        export = find_export(next_one)
        if export is None:
            raise ExportMissing(next_one, needed_by=found[-1].folder if found else None)
        if export.folder in (each.folder for each in found):
            problem = f"{folder} builds on itself; its manifest was changed, make a full one"
            raise BadValue("export", problem, reason="cycle")
        found.append(export)
        next_one = export.base
    return found[::-1]


def last_export(folder: Path, chosen: Collection[str], before: int) -> Path | None:
    """The latest of those directly in a folder that were asked for the same tables, at an earlier timestamp."""
    inner = sorted(folder.iterdir()) if folder.is_dir() else []
    found = [export for each in inner if _UNFINISHED not in each.name and (export := find_export(each))]
    same = [each for each in found if set(each.manifest.chosen) == set(chosen) and each.manifest.ts < before]
    return max(same, key=lambda export: export.manifest.ts).folder if same else None


def entered(exports: list[Export]) -> dict[str, int]:
    """Of each table of the last one: since which of them it has been there without a break."""
    since: dict[str, int] = {}
    for number, export in enumerate(exports):
        since = {table: since.get(table, number) for table in export.manifest.tables}
    return since


@contextmanager
def draft(folder: Path) -> Iterator[Path]:
    """A folder beside the one of the export, which takes its place at the end of the block: an export is there with all
    that belongs to it, or not at all, whoever else writes the same one. What earlier jobs left of it is removed."""
    made = folder.with_name(f"{folder.name}{_UNFINISHED}{uuid.uuid4().hex[:12]}")
    try:
        if folder.exists() and any(folder.iterdir()):
            problem = f"{folder} holds something that is no export; name a folder that is empty or new"
            raise BadValue("to", problem, reason="not_empty")
        for left in folder.parent.glob(f"{glob.escape(folder.name)}{_UNFINISHED}*"):
            shutil.rmtree(left)
        made.mkdir(parents=True)
    except OSError as error:
        problem = f"{folder} can't be written to ({error.strerror}); name another folder"
        raise BadValue("to", problem, reason="not_writable") from None
    try:
        yield made
        _put_in_place(made, folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _put_in_place(made: Path, folder: Path) -> None:
    try:
        made.rename(folder)
    except OSError as error:
        raise AlreadyExists(
            f"to: {folder} was filled by somebody else meanwhile ({error.strerror}); look at it, or name a new folder",
            field="to",
        ) from None


def as_folder(text: str, field: str) -> Path:
    if "://" in text:
        problem = "is an address; name a folder that all machines of the job see under the same path"
        raise BadValue(field, problem, reason="not_a_folder")
    return Path(os.path.abspath(text))
