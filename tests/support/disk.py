"""The order in which this process syncs and renames files: the real calls, each recorded after it returned."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest


class Disk:
    def __init__(self) -> None:
        self.calls: list[tuple[str, Path]] = []

    @classmethod
    def watched(cls, patch: pytest.MonkeyPatch) -> Disk:
        """A rename is recorded with the new name."""
        disk = cls()
        fsync, replace = os.fsync, os.replace

        def noted_fsync(descriptor: int) -> None:
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            fsync(descriptor)
            disk.calls.append(("sync", path))

        def noted_replace(source: Any, target: Any, **more: Any) -> None:
            replace(source, target, **more)
            disk.calls.append(("rename", Path(target)))

        patch.setattr(os, "fsync", noted_fsync)
        patch.setattr(os, "replace", noted_replace)
        return disk

    def note(self, call: str, path: Path = Path()) -> None:
        self.calls.append((call, path))

    def synced(self) -> list[Path]:
        return [path for call, path in self.calls if call == "sync"]

    def when(self, path: Path, call: str | None = None) -> int:
        """The position of the first call for this path among all calls."""
        return next(at for at, each in enumerate(self.calls) if each[1] == path and call in (None, each[0]))
