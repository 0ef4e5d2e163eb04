"""What was measured of SSTables, kept between runs: one small file for each, in a folder that many may share.

A file is found by the path of its SSTable and used only if that is still the same one. It is written whole or not at
all; of two that measure the same SSTable at once, either's result stays, and they are equal.
"""

from __future__ import annotations

import json
import os
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

from sweep_tasks.compaction.sstables import Identity
from sweep_tasks.compaction.tombstones import Measured
from sweep_tasks.errors import BadValue

_FORMAT = 1
"""One more whenever something else is counted, or counted in another way."""
_SUFFIX = ".json"
_DRAFT = ".draft"


class Cache:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser()

    def find(self, identity: Identity) -> Measured | None:
        kept = self._read(self._file(identity.path))
        if kept is None or kept.get("format") != _FORMAT or kept.get("identity") != list(identity):
            return None
        try:
            return Measured.from_json(kept["measured"])
        except (LookupError, TypeError, ValueError):
            return None  # damaged: it is measured anew, and written over

    def keep(self, identity: Identity, measured: Measured) -> None:
        content = {"format": _FORMAT, "identity": identity, "measured": measured.as_json()}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            draft, name = tempfile.mkstemp(suffix=_DRAFT, dir=self.folder)
            try:
                with os.fdopen(draft, "w") as out:
                    json.dump(content, out, separators=(",", ":"))
                os.replace(name, self._file(identity.path))
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise BadValue(
                "folder", f"measurements can't be kept in {self.folder}: {error.strerror}; name another one"
            ) from error

    def forget_gone(self) -> int:
        """Removes what was kept of SSTables that are no longer there; returns of how many."""
        gone = [file for file in self.folder.glob(f"*{_SUFFIX}") if not self._is_standing(file)]
        for file in gone:
            file.unlink(missing_ok=True)
        return len(gone)

    def _is_standing(self, file: Path) -> bool:
        identity = (self._read(file) or {}).get("identity")
        return isinstance(identity, list) and bool(identity) and Path(str(identity[0])).exists()

    def _file(self, path: str) -> Path:
        return self.folder / f"{sha256(os.fsencode(path)).hexdigest()[:32]}{_SUFFIX}"

    @staticmethod
    def _read(file: Path) -> dict[str, Any] | None:
        try:
            kept = json.loads(file.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return kept if isinstance(kept, dict) else None
