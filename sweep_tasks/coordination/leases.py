"""Leases of open transactions, their renewal, and the immutable timestamp that follows from them.

The immutable timestamp is the least of a fresh timestamp, which is taken first, and of all leases, which are read
afterwards.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Collection
from typing import NamedTuple

import structlog

from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.encoding import read_var_long, read_var_signed_long, var_long, var_signed_long
from sweep_tasks.errors import StoreError, SweepflowError
from sweep_tasks.model import Cell
from sweep_tasks.processes import call_in_each_process
from sweep_tasks.store.contract import Change, Store
from sweep_tasks.store.schema import LEASES

# ---------------------------------------------------------------------------------------------------------------------
# Leases: every open transaction holds one, and the store expires it if it is not renewed.
#
# A lease is taken at a fresh timestamp before the transaction's start timestamp, so its timestamp is a lower bound of
# the start. When the transaction begins to commit, the lease is stamped with the start. From then on, a reader that
# finds an uncommitted value can distinguish a live writer, which it waits for, from a dead one, which it rolls back.
# ---------------------------------------------------------------------------------------------------------------------

_NOT_COMMITTING = -1
_ROWS = [bytes([n]) for n in range(16)]
"""Leases are spread over these rows: on a store with consensus per row, one row would be a bottleneck."""


class Lease(NamedTuple):
    """A lease. `ts` is below the start timestamp of its transaction; `start` is set once the transaction commits."""

    ts: int
    start: int | None
    owner: str

    @property
    def cell(self) -> Cell:
        return Cell(_ROWS[self.ts % len(_ROWS)], var_long(self.ts))

    def encoded(self) -> bytes:
        return var_signed_long(_NOT_COMMITTING if self.start is None else self.start) + self.owner.encode()


class Leases:
    """The leases in a store."""

    def __init__(self, store: Store, ttl_s: float) -> None:
        self._store = store
        self._ttl_ms = int(ttl_s * 1000)

    def take(self, ts: int, owner: str) -> Lease:
        """Take a lease at `ts`, which must be fresh; the holder's start timestamp must be taken afterwards."""
        lease = Lease(ts, None, owner)
        self._store.put_if_absent(LEASES, {lease.cell: lease.encoded()}, self._ttl_ms)
        return lease

    def renew(self, lease: Lease) -> bool:
        """Renew a lease; False if it has expired. It can't be taken again: a sweep may have passed its holder."""
        return self._replace(lease, lease)

    def stamp(self, lease: Lease, start: int) -> Lease | None:
        """Store the start timestamp in the lease of a transaction that begins to commit; None if it has expired."""
        stamped = lease._replace(start=start)
        return stamped if self._replace(lease, stamped) else None

    def _replace(self, old: Lease, new: Lease) -> bool:
        change = Change(old.encoded(), new.encoded())
        return self._store.compare_and_set(LEASES, old.cell.row, {old.cell.column: change}, self._ttl_ms)

    def release(self, leases: Collection[Lease]) -> None:
        self._store.remove(LEASES, [lease.cell for lease in leases])

    def open(self) -> list[Lease]:
        """Return all leases that have not expired, oldest first."""
        found = self._store.read_rows(LEASES, _ROWS)
        return sorted((_decoded(cell, value) for cell, value in found.items()), key=lambda lease: lease.ts)


def _decoded(cell: Cell, value: bytes) -> Lease:
    start, at = read_var_signed_long(value)
    owner = value[at:].decode(errors="replace")
    return Lease(read_var_long(cell.column)[0], None if start == _NOT_COMMITTING else start, owner)


# ---------------------------------------------------------------------------------------------------------------------
# The immutable timestamp: no open transaction started below it, and none ever will.
# ---------------------------------------------------------------------------------------------------------------------


def immutable_timestamp(timestamps: TimestampService, leases: Leases) -> int:
    """Return the least of a fresh timestamp, taken first, and of the leases, read afterwards.

    A lease that is not among those read was written after the read, so its transaction starts above the fresh
    timestamp. In the reverse order, a transaction could take its lease after the leases were read and its start
    timestamp before the fresh one, and the sweep would remove versions that it reads.
    """
    fresh = timestamps.fresh()
    return min([fresh, *(lease.ts for lease in leases.open())])


# ---------------------------------------------------------------------------------------------------------------------
# The lease keeper renews the leases of a process's open transactions.
#
# One background thread renews all of them. It starts when the first lease is taken. It never takes an expired lease
# again, because a sweep may have passed the holder.
# ---------------------------------------------------------------------------------------------------------------------

log = structlog.get_logger(__name__)


class HeldLease:
    """A lease that is held by a transaction. Renewing and stamping both replace it, so a lock serialises them."""

    def __init__(self, leases: Leases, lease: Lease) -> None:
        self._leases = leases
        self._lease = lease
        self._replacing = threading.Lock()

    @property
    def ts(self) -> int:
        return self._lease.ts

    def renew(self) -> bool:
        with self._replacing:
            return self._leases.renew(self._lease)

    def stamp(self, start: int) -> bool:
        """Record in the lease that its holder is committing; False if the lease has expired."""
        with self._replacing:
            stamped = self._leases.stamp(self._lease, start)
            if stamped:
                self._lease = stamped
            return stamped is not None

    def release(self) -> None:
        self._leases.release([self._lease])


class LeaseKeeper:
    """Renews the leases of this process in the background."""

    def __init__(self, leases: Leases, every_s: float, also: Callable[[], object]) -> None:
        """`also` is called after each renewal."""
        self._leases = leases
        self._every_s = every_s
        self._also = also
        self._closed = threading.Event()
        call_in_each_process(self, LeaseKeeper._reset)

    def _reset(self) -> None:
        """Start without leases and thread: a forked child has neither the parent's threads nor its transactions."""
        self._held: set[HeldLease] = set()
        self._changing = threading.Lock()
        self._thread: threading.Thread | None = None
        closed, self._closed = self._closed.is_set(), threading.Event()
        if closed:
            self._closed.set()

    def take(self, ts: int) -> HeldLease:
        held = HeldLease(self._leases, self._leases.take(ts, f"{socket.gethostname()}:{os.getpid()}"))
        with self._changing:
            self._start_if_needed()
            self._held.add(held)
        return held

    def release(self, held: HeldLease) -> None:
        with self._changing:
            self._held.discard(held)
        try:
            held.release()
        except StoreError as error:
            log.warning("lease not released, it will expire", lease=held.ts, reason=error.code)

    def close(self) -> None:
        self._closed.set()

    def _start_if_needed(self) -> None:
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
            except SweepflowError as error:  # whatever it is, the leases have to be renewed
                if error.reason == "closed":
                    return  # the store was closed before this: nothing can be renewed any more
                log.warning("no clock sample was recorded, will retry", reason=error.code)

    def _renew(self, lease: HeldLease) -> None:
        try:
            kept = lease.renew()
        except StoreError as error:
            if error.reason == "closed":
                return
            log.warning("lease not renewed, will retry", lease=lease.ts, reason=error.code)
            return
        if not kept:
            with self._changing:
                self._held.discard(lease)
