"""The embedded default: one SQLite file, shared by as many processes as like to."""

from sweep_tasks.store.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
