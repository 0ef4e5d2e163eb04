"""Keeps the leases of a process's open transactions alive while their owners think.

One background thread for all, started when the first lease is taken. It renews; it never takes a lease again that
was lost, since a sweep may have passed its holder meanwhile.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable

import structlog

from sweep_tasks.errors import StoreError
from sweep_tasks.timestamps.leases import Lease, Leases

log = structlog.get_logger(__name__)


class HeldLease:
    """A lease as its transaction holds it. Renewing and stamping both replace it, so they take turns."""

    def __init__(self, leases: Leases, lease: Lease) -> None:
        self._leases = leases
        self._lease = lease
        self._turn = threading.Lock()

    @property
    def ts(self) -> int:
        return self._lease.ts

    def renew(self) -> bool:
        with self._turn:
            return self._leases.renew(self._lease)

    def stamp(self, start: int) -> bool:
        """Say that the holder is committing; False if the lease is gone."""
        with self._turn:
            stamped = self._leases.stamp(self._lease, start)
            if stamped:
                self._lease = stamped
            return stamped is not None

    def release(self) -> None:
        self._leases.release([self._lease])


class LeaseKeeper:
    def __init__(self, leases: Leases, every_s: float, also: Callable[[], object]) -> None:
        """`also` is done whenever leases are renewed."""
        self._leases = leases
        self._every_s = every_s
        self._also = also
        self._held: set[HeldLease] = set()
        self._changing = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def take(self, ts: int) -> HeldLease:
        held = HeldLease(self._leases, self._leases.take(ts, f"{socket.gethostname()}:{os.getpid()}"))
        with self._changing:
            self._start_if_needed()
            self._held.add(held)
        return held

    def give_back(self, held: HeldLease) -> None:
        with self._changing:
            self._held.discard(held)
        try:
            held.release()
        except StoreError as error:
            log.warning("lease not given back, it will run out", lease=held.ts, reason=error.code)

    def close(self) -> None:
        self._closed.set()

    def _start_if_needed(self) -> None:
        if self._pid != os.getpid():
            # A forked child has none of the parent's threads, and the parent's transactions are not its own.
            self._held, self._thread, self._pid = set(), None, os.getpid()
        if self._thread is None and self._every_s > 0:
            self._thread = threading.Thread(target=self._keep, name="sweepflow-leases", daemon=True)
            self._thread.start()

    def _keep(self) -> None:
        while not self._closed.wait(self._every_s):
            with self._changing:
                held = list(self._held)
            for lease in held:
                self._renew(lease)
            try:
                self._also()
            except StoreError as error:
                log.warning("the wall clock was not recorded, trying again", reason=error.code)

    def _renew(self, lease: HeldLease) -> None:
        try:
            kept = lease.renew()
        except StoreError as error:
            log.warning("lease not renewed, trying again", lease=lease.ts, reason=error.code)
            return
        if not kept:
            with self._changing:
                self._held.discard(lease)
