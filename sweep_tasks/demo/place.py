"""The folder a demo works in: its store is made anew each time, and nobody else's store is touched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sweep_tasks.catalog import Catalog
from sweep_tasks.config import Settings
from sweep_tasks.demo.shop import TABLES
from sweep_tasks.errors import BadValue, NotInitialised
from sweep_tasks.opening import open_store
from sweep_tasks.store import initialise_store

DEFAULT_FOLDER = Path(".sweepflow", "demo")


@dataclass(frozen=True, slots=True)
class Place:
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "demo.db"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.file}"

    def exists(self) -> bool:
        return self.file.exists()

    def make_anew(self, settings: Settings) -> bool:
        """An empty store; True if one of an earlier demo had to go for it."""
        replaced = self.exists()
        if replaced:
            self._check_ours(settings)
            for file in (self.file, *(self.file.with_name(self.file.name + tail) for tail in ("-wal", "-shm"))):
                file.unlink(missing_ok=True)
        initialise_store(self.url, settings)
        return replaced

    def _check_ours(self, settings: Settings) -> None:
        try:
            with open_store(self.url, settings) as store:
                foreign = Catalog(store).list().keys() - TABLES.keys()
        except NotInitialised:
            return
        if foreign:
            raise BadValue("folder", f"{self.file} holds tables that no demo made; name another folder")
