"""The gate that keeps forks and the use of SQLite apart.

SQLite counts its locks on a file in memory, and a fork copies these counts. The locks themselves belong to a process
and are not inherited. A child that continues with the copied counts assumes locks that it does not have. The parent has
the same problem if it closes "the last" connection while the child writes. So a process forks only while all
connections are closed: a thread holds its own lock while it uses a connection, and the forking thread waits for the
locks of all other threads.

A signal handler may raise an exception anywhere in these methods when the main thread forks. Python ignores exceptions
in hooks of a fork and forks all the same. So no method relies on an earlier one having reached its end.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from weakref import WeakSet

_AT_LEAST_S = 0.05
"""How long a fork waits for each lock when its patience has run out: enough for a short call on another file."""


class Gate:
    """One lock for each thread that uses SQLite; a fork acquires all of them."""

    def __init__(self) -> None:
        self.patience_s = 0.0
        """How long a fork waits for the other threads."""
        self.reset()

    def reset(self) -> None:
        """Drop all locks in a forked child: the other threads do not exist there."""
        self._local = threading.local()
        self._threads: WeakSet[threading.RLock] = WeakSet()
        self._arriving = threading.RLock()
        self.one_creates = threading.Lock()
        """Held while a file is created."""

    def own_lock(self) -> threading.RLock:
        """Return the lock of this thread. Other threads wait for it only to fork."""
        found: threading.RLock | None = getattr(self._local, "lock", None)
        return found or self._add_thread()

    def _add_thread(self) -> threading.RLock:
        """Create the lock of this thread, and return it.

        It is added to the locks that a fork acquires before the thread can use it: the thread may be interrupted in
        between. A garbage collection in between may finalise a store, which creates a lock for this thread as well;
        then that one is used.
        """
        lock = threading.RLock()
        with self._arriving:
            self._threads.add(lock)
            self._local.__dict__.setdefault("lock", lock)
        own: threading.RLock = self._local.lock
        return own

    def shut(self) -> None:
        """Stop all other threads from using a connection.

        A thread that holds its lock for too long is not waited for: it may be waiting for the forking thread.
        """
        own = self.own_lock()
        self._local.asked, self._local.stopped = [], {own}
        self._arriving.acquire()
        give_up_at = time.monotonic() + self.patience_s
        for lock in self._threads - {own}:
            self._local.asked.append(lock)  # before it is acquired: a signal handler may raise right afterwards
            if lock.acquire(timeout=max(_AT_LEAST_S, give_up_at - time.monotonic())):
                self._local.stopped.add(lock)

    def has_stopped(self, lock: threading.RLock) -> bool:
        """Return whether the thread of this lock can't use a connection until this thread has forked."""
        return lock in getattr(self._local, "stopped", ())

    def open(self) -> None:
        """Let the other threads continue. A second call does nothing, but completes a call that was interrupted."""
        for lock in getattr(self._local, "asked", ()):
            with suppress(RuntimeError):  # not acquired, or released already
                lock.release()
        with suppress(RuntimeError):
            self._arriving.release()
