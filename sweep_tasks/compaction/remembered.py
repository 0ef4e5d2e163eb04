"""Candidates that were compacted for nothing, or that the server declined or failed to compact: kept, so that they are
not tried again before something has changed.

They lie beside the measurements, two files for each node. That is the place for it: it says something about files of
one node that this machine has found out, and whoever loses it loses no more than one more attempt.
"""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from pathlib import Path

from sweep_tasks.whole_files import write_whole

FRUITLESS, DECLINED = "fruitless", "declined"


class Remembered:
    def __init__(self, folder: Path, node: str, what: str = FRUITLESS) -> None:
        self._file = folder / f"{node}.{what}.json"

    def causes(self) -> dict[str, str]:
        """By the candidate's file."""
        try:
            kept = json.loads(self._file.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return kept if isinstance(kept, dict) else {}

    def add(self, causes: dict[str, str]) -> None:
        if causes:
            self._write(self.causes() | causes)

    def forget_gone(self, within: Sequence[str], standing: Container[str]) -> None:
        """Of files in some folders that are gone nothing needs to be known."""
        known = self.causes()
        gone = [file for file in known if file.startswith(tuple(within)) and file not in standing]
        kept = {file: cause for file, cause in known.items() if file not in gone}
        if kept != known:
            self._write(kept)

    def _write(self, causes: dict[str, str]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._file, json.dumps(causes))
