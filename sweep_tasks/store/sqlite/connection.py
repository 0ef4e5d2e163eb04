"""Connections to one SQLite file, and the translation of its errors.

Each thread has its own connection. Before a process forks, all connections are closed, and parent and child open new
ones when they need them (see `forks.py`). A connection can't be closed if the forking thread itself is using it, or if
another thread uses it for too long. Then the child refuses to use that file at all.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
import time
from contextlib import AbstractContextManager, suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Literal
from urllib.parse import quote
from weakref import WeakSet, finalize, ref

from sweep_tasks.errors import OutcomeUnknown, StoreBusy, StoreError, StoreMissing, StoreUnavailable
from sweep_tasks.files import PRIVATE_FILE
from sweep_tasks.store.sqlite.forks import Gate

Durability = Literal["full", "normal", "off"]
"""What survives a power failure: all commits, all but the last ones, or nothing. `off` is not a setting: it is for
temporary stores."""
FileId = tuple[int, int]

_PAUSES_S = (0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.025, 0.025, 0.05, 0.05, 0.1)
"""Pauses between attempts to get the write lock, as in SQLite's own busy handler."""


def _file_id(path: Path) -> FileId:
    found = path.stat()
    return found.st_dev, found.st_ino


class _Owner:
    """A marker that lives as long as the thread that a connection was opened for."""


class _Held:
    """A connection with its current pragmas and the number of blocks that use it."""

    def __init__(self, connection: sqlite3.Connection, owner: _Owner, path: Path) -> None:
        self.connection = connection
        self.owner = ref(owner)
        self.lock = _gate.own_lock()
        self.thread = threading.get_ident()
        self.process = os.getpid()
        self.file = _file_id(path)
        self.uses = 0
        self.closed = False
        self._closing = threading.RLock()
        self._busy_timeout_ms: int | None = None
        self._synchronous: Durability | None = None

    def wait_for_locks(self, busy_timeout_ms: int) -> None:
        if self._busy_timeout_ms != busy_timeout_ms:
            self.connection.execute(f"PRAGMA busy_timeout = {busy_timeout_ms}")
            self._busy_timeout_ms = busy_timeout_ms

    def sync(self, durability: Durability) -> None:
        if self._synchronous != durability:
            self.connection.execute(f"PRAGMA synchronous = {durability}")
            self._synchronous = durability

    def close(self) -> None:
        """Close the connection, and return only when it is closed, even if another thread closes it.

        A child never closes a connection of its parent, not even when a store is finalised before it was informed.
        """
        if self.process == os.getpid():
            self.closed = True
            with self._closing:
                self.connection.close()
            _open.discard(self)  # only now: until then a forked child inherits it


class _Using:
    """A block that uses the connection of this thread, inside the gate.

    It is not a generator, because every call of a store runs it and a generator costs as much as a small statement.
    A kind of block may define `take`, `begin` and `release`: which connection it uses, its first statement, and how it
    leaves the connection.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = _gate.own_lock()

    def __enter__(self) -> sqlite3.Connection:
        self._lock.acquire()
        try:
            held = self._held = self.take()
            held.uses += 1
            try:
                self.begin(held)
            except BaseException:
                self.release(held)
                raise
        except BaseException as error:
            self._lock.release()
            self._connections.explain(error)
            raise
        return held.connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.release(self._held)
        self._lock.release()
        if error is not None:
            self._connections.explain(error)

    def take(self) -> _Held:
        return self._connections.of_thread()

    def begin(self, held: _Held) -> None:
        held.wait_for_locks(self._connections.busy_timeout_ms)

    def release(self, held: _Held) -> None:
        held.uses -= 1


class _CreatingBlock(_Using):
    """A block with its own connection, which creates the file if necessary."""

    def take(self) -> _Held:
        self._owner = _Owner()
        return self._connections.open("rwc", self._owner)

    def release(self, held: _Held) -> None:
        self._connections.drop(held)


class _Locking(_Using):
    """A block that starts with a statement that takes the write lock.

    If the lock is taken, the thread waits outside the gate: the holder may be the thread that wants to fork.
    """

    def __init__(self, connections: Connections, statement: str, durability: Durability) -> None:
        super().__init__(connections)
        self._statement = statement
        self._durability: Durability = durability

    def __enter__(self) -> sqlite3.Connection:
        try:
            return super().__enter__()
        except StoreBusy:
            return self._wait()

    def _wait(self) -> sqlite3.Connection:
        give_up_at = time.monotonic() + self._connections.busy_timeout_ms / 1000
        pauses = chain(_PAUSES_S, repeat(_PAUSES_S[-1]))
        while True:
            time.sleep(min(next(pauses), max(0.0, give_up_at - time.monotonic())))
            try:
                return super().__enter__()
            except StoreBusy:
                if time.monotonic() >= give_up_at:
                    raise

    def begin(self, held: _Held) -> None:
        held.wait_for_locks(0)
        held.sync(self._durability)
        try:
            held.connection.execute(self._statement)
        except BaseException:
            if held.connection.in_transaction:  # a signal handler raised right after the statement
                held.connection.execute("ROLLBACK")
            raise


class _Writing(_Locking):
    """A block that is one transaction. The write lock is taken first, because a later lock could not wait."""

    def __init__(self, connections: Connections, durability: Durability) -> None:
        super().__init__(connections, "BEGIN IMMEDIATE", durability)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        connection = self._held.connection
        try:
            if error is None:
                self._commit(connection)
            else:
                connection.execute("ROLLBACK")
        except BaseException as failure:
            super().__exit__(kind, failure, trace)
            raise
        super().__exit__(kind, error, trace)

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
                raise
            path, name = self._connections.path, error.sqlite_errorname
            raise OutcomeUnknown(f"store: {path} failed at the commit ({name})") from error


class Connections:
    """The connections of this process to one file."""

    def __init__(self, path: Path, busy_timeout_s: float, durability: Durability) -> None:
        self.path = path
        self.busy_timeout_ms = int(busy_timeout_s * 1000)
        self._durability: Durability = durability
        self._local = threading.local()
        self._held: set[_Held] = set()
        self._closed = False
        _gate.patience_s = max(_gate.patience_s, busy_timeout_s)
        with _gate.own_lock():
            _everyone.add(self)
        # Close safely if close() is never called. At the end of the process this is not necessary.
        finalize(self, _close_all, self._held).atexit = False

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        return _Using(self)

    def writing(self, *, durable: bool = False) -> AbstractContextManager[sqlite3.Connection]:
        """Return a block for one transaction; a durable one survives a power failure regardless of the setting."""
        return _Writing(self, "full" if durable and self._durability != "off" else self._durability)

    def creating(self) -> AbstractContextManager[sqlite3.Connection]:
        """Return a block with its own connection, which creates the file if necessary."""
        return _CreatingBlock(self)

    def vacuum(self) -> None:
        with _Locking(self, "VACUUM", self._durability):
            pass

    def of_thread(self) -> _Held:
        """Return the connection of this thread; it is opened on first use."""
        held: _Held | None = getattr(self._local, "held", None)
        if held is None or held.closed:
            for other in self._held.copy():
                if not other.uses and (other.closed or other.owner() is None):
                    self.drop(other)  # closed by a fork, or its thread has ended
            owner = self._local.owner = _Owner()
            held = self._local.held = self.open("rw", owner)
        return held

    def open(self, mode: Literal["rw", "rwc"], owner: _Owner) -> _Held:
        """Open a connection; with `rw` the file must exist, so that a typing error does not create a store."""
        if self._closed:
            raise StoreError(f"store: {self.path} was closed by this process; open it again", reason="closed")
        if mode == "rw" and not self.path.exists():
            raise StoreMissing(
                f"sqlite:///{self.path}",
                "does not exist; correct the setting store, mount the file system, or restore the file",
                reason="missing_file",
            )
        self._check_not_inherited()
        if mode == "rwc":
            self._create_private()
        _opening[owner] = self.path
        try:
            held = self._connect(mode, owner)
            _open.add(held)
        finally:
            del _opening[owner]
        self._held.add(held)
        return held

    def _connect(self, mode: Literal["rw", "rwc"], owner: _Owner) -> _Held:
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode={mode}",
            uri=True,
            timeout=self.busy_timeout_ms / 1000,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            connection.execute("PRAGMA cache_size = -16384")
            return _Held(connection, owner, self.path)
        except BaseException:
            connection.close()  # immediately: the error may keep it alive, unknown to a later fork
            raise

    def _create_private(self) -> None:
        """Create the file with access for its owner only, regardless of the umask.

        SQLite gives its log and index files the same mode. An existing file keeps its mode: an operator may have opened
        it to others. If the folder does not permit creating files, the error is reported by SQLite afterwards.
        """
        with _gate.one_creates, suppress(OSError):  # one at a time: closing the file would free another thread's locks
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))

    def drop(self, held: _Held) -> None:
        if held in self._held:
            self._held.discard(held)
            held.close()

    def close(self) -> None:
        self._closed = True
        _close_all(self._held)

    def explain(self, error: BaseException) -> None:
        """Raise the store error that corresponds to an error of SQLite."""
        if isinstance(error, sqlite3.DatabaseError):
            raise self._meaning_of(error) from error

    def _meaning_of(self, error: sqlite3.DatabaseError) -> StoreError:
        name = getattr(error, "sqlite_errorname", None) or type(error).__name__
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return StoreBusy(
                f"store: {self.path} was locked by another process for {self.busy_timeout_ms / 1000:g} s; "
                "retry, or raise the setting sqlite_busy_timeout_s",
                reason="locked",
            )
        if name == "SQLITE_NOTADB":
            return StoreError(f"store: {self.path} is not a SQLite file; name another path", reason="not_sqlite")
        if name == "SQLITE_AUTH":
            return self._inherited_in_use()
        if name.startswith("SQLITE_READONLY"):
            return StoreUnavailable(
                f"store: {self.path} can't be written; check the permissions of the file and its folder"
            )
        if name == "SQLITE_FULL":
            return StoreUnavailable(f"store: the disk with {self.path} is full; free some space and retry")
        return StoreUnavailable(f"store: {self.path} can't be used ({name}); check the file, its folder and the disk")

    # --- around a fork ------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Forget the parent's connections in a forked child."""
        self._held.clear()
        self._local = threading.local()

    def _check_not_inherited(self) -> None:
        if _inherited_files and self.path.exists() and _file_id(self.path) in _inherited_files:
            raise self._inherited_in_use()

    def _inherited_in_use(self) -> StoreError:
        return StoreError(
            f"store: {self.path} was in use by a store call when this process was forked, and can't be used here; "
            "fork before or after the call, or start a new process instead",
            reason="forked_while_in_use",
        )


def _close_all(held: set[_Held]) -> None:
    with _gate.own_lock():
        for each in held.copy():
            held.discard(each)
            each.close()


_gate = Gate()
_everyone: WeakSet[Connections] = WeakSet()
_open: set[_Held] = set()
"""All open connections of this process. Not found through `_everyone`: a store that was dropped is no longer in it, but
its connections are open until its finaliser has run."""
_opening: dict[_Owner, Path] = {}
"""The files that threads are just opening."""
_inherited_files: set[FileId] = set()


def _before_fork() -> None:
    """Close all connections that nothing uses.

    The connection of a thread that was not stopped stays open: whether the thread uses it can change at any time.
    """
    try:
        _gate.shut()
    finally:
        for held in list(_open):
            if not held.uses and _gate.has_stopped(held.lock):
                held.close()


def _in_child() -> None:
    """Give up the connections that are still open.

    They are neither used nor closed here, because closing them would roll back what the parent is doing, and would
    later remove a log that others write to. Their files are refused in this process.
    """
    _gate.reset()
    for held in list(_open):
        # A reference that is never released: connections must stay open when this process ends, too.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(held.connection))
        _inherited_files.add(held.file)
        if held.thread == threading.get_ident():
            held.connection.set_authorizer(lambda *_: sqlite3.SQLITE_DENY)
    _open.clear()
    for path in _opening.values():
        with suppress(FileNotFoundError):
            _inherited_files.add(_file_id(path))
    _opening.clear()
    for connections in list(_everyone):
        connections.forget()


os.register_at_fork(before=_before_fork)
for _ in range(2):  # twice: a signal handler that raises ends the hook that it interrupts, and the second completes it
    os.register_at_fork(after_in_parent=_gate.open, after_in_child=_in_child)
