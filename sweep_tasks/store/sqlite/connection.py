"""Connections to one SQLite file, and what its errors mean.

A connection belongs to the thread and the process that opened it. After a fork the child must neither use nor close
what it inherited (closing could checkpoint the parent's log), so it opens its own and lets the old ones be.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from sweep_tasks.errors import (
    ForeignStore,
    NotInitialised,
    OutcomeUnknown,
    StoreBusy,
    StoreError,
    StoreUnavailable,
)

Durability = Literal["full", "normal"]

_inherited: list[sqlite3.Connection] = []
"""Keeps connections of a parent process from being finalised, and so closed, in the child."""


class Connections:
    def __init__(self, path: Path, busy_timeout_s: float, durability: Durability) -> None:
        self.path = path
        self._busy_timeout_s = busy_timeout_s
        self._durability = durability
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._pid = os.getpid()

    def get(self) -> sqlite3.Connection:
        """This thread's connection."""
        if self._pid != os.getpid():
            _inherited.extend(self._opened)
            self._opened, self._local, self._pid = [], threading.local(), os.getpid()
        found: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if found is None:
            found = self._local.connection = self.open("rw")
            self._opened.append(found)
        return found

    def open(self, mode: Literal["rw", "rwc"]) -> sqlite3.Connection:
        """A new connection; with `rw` the file must exist, so that a typing error does not create a store."""
        if mode == "rw" and not self.path.exists():
            raise NotInitialised(f"sqlite:///{self.path}")
        with self.explained():
            connection = sqlite3.connect(
                f"file:{quote(str(self.path))}?mode={mode}",
                uri=True,
                timeout=self._busy_timeout_s,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
            connection.execute(f"PRAGMA synchronous = {self._durability}")
            connection.execute("PRAGMA cache_size = -16384")
            return connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self.explained():
            yield self.get()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction. The write lock is taken first: a lock taken midway could not wait for its turn."""
        with self.explained():
            connection = self.get()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            self._commit(connection)

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
                raise
            raise OutcomeUnknown(f"store: {self.path} failed at the commit ({error.sqlite_errorname})") from error

    @contextmanager
    def explained(self) -> Iterator[None]:
        """SQLite's errors as ours."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise self._meaning_of(error) from error

    def _meaning_of(self, error: sqlite3.DatabaseError) -> StoreError:
        name = getattr(error, "sqlite_errorname", None) or type(error).__name__
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return StoreBusy(
                f"store: {self.path} was locked by another process for {self._busy_timeout_s:g} s; "
                "try again, or raise the setting sqlite_busy_timeout_s",
                reason="locked",
            )
        if name == "SQLITE_NOTADB":
            return ForeignStore(f"store: {self.path} is not a SQLite file; name another path", reason="not_sqlite")
        if name.startswith("SQLITE_READONLY"):
            return StoreUnavailable(f"store: {self.path} can't be written; check the rights of the file and its folder")
        if name == "SQLITE_FULL":
            return StoreUnavailable(f"store: the disk that holds {self.path} is full; make room and try again")
        return StoreUnavailable(f"store: {self.path} can't be used ({name}); check the file, its folder and the disk")

    def close(self) -> None:
        if self._pid == os.getpid():
            for connection in self._opened:
                connection.close()
        self._opened, self._local = [], threading.local()
