"""Exports on disk: their layout, their manifest and the chain of increments. Does not use Spark.

    <folder>/data/table=<namespace.name>/*.parquet
    <folder>/manifest.json

The manifest is written after everything else is on disk, and only then the folder is renamed to its final name. A
folder without a manifest is not an export. An increment names the export that it is based on. The exports from a full
one to an increment are its chain. An increment only holds data of its own tables. A table that is missing from one
export of a chain and appears again later is exported completely.
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

from sweep_tasks.errors import AlreadyExists, BadValue, NotFound
from sweep_tasks.files import PRIVATE_FILE, make_private_folder, sync_parents, sync_tree, write_whole

FORMAT = 1
FULL, INCREMENT = "full", "increment"
_MANIFEST = "manifest.json"
_DATA = "data"
_UNFINISHED = ".unfinished-"


class ExportedCells(NamedTuple):
    """The number of cells of one table that were exported: with a value, and deleted."""

    puts: int
    deletes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an export contains."""

    ts: int
    chosen: tuple[str, ...]
    """The tables and patterns that were requested."""
    tables: Mapping[str, ExportedCells]
    """The tables that were found, including empty ones."""
    since: str | None = None
    """The folder of the export that it is based on, relative to its own, so that both can be moved together."""

    @property
    def kind(self) -> str:
        return FULL if self.since is None else INCREMENT

    def document(self) -> dict[str, Any]:
        """Return the manifest as JSON. `find_export` parses it."""
        return {
            "format": FORMAT,
            "kind": self.kind,
            "ts": self.ts,
            "chosen": list(self.chosen),
            "tables": {table: written._asdict() for table, written in self.tables.items()},
            "since": self.since,
        }


class Export(NamedTuple):
    """A complete export on disk."""

    folder: Path
    manifest: Manifest

    @property
    def data(self) -> Path:
        return data_of(self.folder)

    @property
    def base(self) -> Path | None:
        """The folder of the export that it is based on; None for a full export."""
        since = self.manifest.since
        return None if since is None else Path(os.path.normpath(self.folder / since))


def data_of(folder: Path) -> Path:
    return folder / _DATA


def manifest_of(folder: Path) -> Path:
    return folder / _MANIFEST


def find_export(folder: Path) -> Export | None:
    """Return the export in a folder, or None if the folder has no manifest."""
    file = manifest_of(folder)
    if not file.is_file():
        return None
    try:
        plain = json.loads(file.read_text(encoding="utf-8"))
        if plain["format"] != FORMAT:
            problem = (
                f"{folder} has format {plain['format']}, but this version reads format {FORMAT}; upgrade sweepflow"
            )
            raise BadValue("export", problem, reason="unknown_format")
        tables = {table: ExportedCells(**written) for table, written in plain["tables"].items()}
        return Export(folder, Manifest(plain["ts"], tuple(plain["chosen"]), tables, plain["since"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        problem = f"{file} is not the manifest of an export; use another folder"
        raise BadValue("export", problem, reason="not_a_manifest") from None


def chain(folder: Path) -> list[Export]:
    """Return the exports from the full one to the one in this folder."""
    found: list[Export] = []
    next_one: Path | None = folder
    while next_one is not None:
        export = find_export(next_one)
        if export is None:
            needed_by = found[-1].folder if found else None
            needed = f", which {needed_by} builds on" if needed_by else ""
            raise NotFound(
                f"export: there is none in {next_one}{needed}; a finished export has a manifest.json",
                folder=next_one,
                needed_by=needed_by,
            )
        if export.folder in (each.folder for each in found):
            problem = f"{folder} is based on itself, so its manifest was changed; create a full export"
            raise BadValue("export", problem, reason="cycle")
        found.append(export)
        next_one = export.base
    return found[::-1]


def last_export(folder: Path, chosen: Collection[str], before: int) -> Path | None:
    """Return the latest export in a folder that has the same requested tables and an earlier timestamp."""
    inner = sorted(folder.iterdir()) if folder.is_dir() else []
    found = [export for each in inner if _UNFINISHED not in each.name and (export := find_export(each))]
    same = [each for each in found if set(each.manifest.chosen) == set(chosen) and each.manifest.ts < before]
    return max(same, key=lambda export: export.manifest.ts).folder if same else None


def present_since(exports: list[Export]) -> dict[str, int]:
    """Return for each table of the last export the index of the export from which on every export contains it."""
    since: dict[str, int] = {}
    for number, export in enumerate(exports):
        since = {table: since.get(table, number) for table in export.manifest.tables}
    return since


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, after syncing the data to disk: Spark does not sync its files, and a manifest must not exist
    without them."""
    sync_tree(data_of(folder))
    write_whole(manifest_of(folder), f"{json.dumps(manifest.document(), indent=2)}\n", PRIVATE_FILE)


def sync_export(export: Export) -> None:
    """Sync an export and its parent folders to disk. The process that created it may have died before it did."""
    sync_tree(export.folder)
    sync_parents(export.folder)


@contextmanager
def draft(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder beside the export's folder, and rename it to that at the end of the block. So an export
    is complete or absent, even if several jobs write the same one. Temporary folders of earlier jobs are removed. After
    the block, the new name is synced to disk."""
    temporary = folder.with_name(f"{folder.name}{_UNFINISHED}{uuid.uuid4().hex[:12]}")
    try:
        if folder.exists() and any(folder.iterdir()):
            problem = f"{folder} is not empty and is not an export; use an empty or a new folder"
            raise BadValue("to", problem, reason="not_empty")
        for left in folder.parent.glob(f"{glob.escape(folder.name)}{_UNFINISHED}*"):
            shutil.rmtree(left)
        make_private_folder(temporary)
    except OSError as error:
        problem = f"{folder} can't be written to ({error.strerror}); use another folder"
        raise BadValue("to", problem, reason="not_writable") from None
    try:
        yield temporary
        _rename(temporary, folder)
        sync_parents(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _rename(temporary: Path, folder: Path) -> None:
    try:
        os.replace(temporary, folder)
    except OSError as error:
        raise AlreadyExists(
            f"to: another process created {folder} meanwhile ({error.strerror}); check it, or use a new folder",
            field="to",
        ) from None


def as_folder(text: str, field: str) -> Path:
    """Return an absolute path, or raise `BadValue` for a URL."""
    if "://" in text:
        problem = "is a URL; use a folder that all machines of the job can access under the same path"
        raise BadValue(field, problem, reason="not_a_folder")
    return Path(os.path.abspath(text))
