"""The default store: one SQLite file, which any number of processes can share."""

from sweep_tasks.store.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
