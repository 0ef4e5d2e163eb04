"""What was measured of SSTables, kept between runs: one small file for each, in a folder that many may share.

A file is found by the path of its SSTable and used only if that is still the same one. It is written whole or not at
all; of two that measure the same SSTable at once, either's result stays, and they are equal.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from sweep_tasks.compaction.chunks import UNCOMPRESSED_BLOCK
from sweep_tasks.compaction.sstables import Identity
from sweep_tasks.compaction.tombstones import Measured
from sweep_tasks.errors import BadValue
from sweep_tasks.whole_files import write_whole

_FORMAT = 3
"""One more whenever something else is counted, or counted in another way."""
_SUFFIX = ".json"


class Cache:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser()

    def find(self, identity: Identity, uncompressed_block: int = UNCOMPRESSED_BLOCK) -> Measured | None:
        kept = self._read(self._file(identity.path))
        if kept is None or kept.get("format") != [_FORMAT, uncompressed_block] or kept.get("identity") != [*identity]:
            return None
        try:
            return Measured.from_json(kept["measured"])
        except (LookupError, TypeError, ValueError):
            return None  # damaged: it is measured anew, and written over

    def keep(self, identity: Identity, measured: Measured, uncompressed_block: int = UNCOMPRESSED_BLOCK) -> None:
        format_ = [_FORMAT, uncompressed_block]
        content = {"format": format_, "identity": identity, "measured": measured.as_json()}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._file(identity.path), json.dumps(content, separators=(",", ":")))
        except OSError as error:
            raise BadValue(
                "folder", f"measurements can't be kept in {self.folder}: {error.strerror}; name another one"
            ) from error

    def forget_gone(self, within: Sequence[str], standing: Container[str]) -> int:
        """Removes what was kept of SSTables of some folders that are no longer there; returns of how many."""
        gone = [file for file in self.folder.glob(f"*{_SUFFIX}") if self._is_gone(file, tuple(within), standing)]
        for file in gone:
            file.unlink(missing_ok=True)
        return len(gone)

    def _is_gone(self, file: Path, within: tuple[str, ...], standing: Container[str]) -> bool:
        identity = (self._read(file) or {}).get("identity")
        path = str(identity[0]) if isinstance(identity, list) and identity else ""
        return not path or (path.startswith(within) and path not in standing)

    def _file(self, path: str) -> Path:
        return self.folder / f"{sha256(os.fsencode(path)).hexdigest()[:32]}{_SUFFIX}"

    @staticmethod
    def _read(file: Path) -> dict[str, Any] | None:
        try:
            kept = json.loads(file.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return kept if isinstance(kept, dict) else None
