"""Who is still at work: every open transaction holds a lease that the store itself lets expire.

A lease is taken at a fresh timestamp before the transaction's start timestamp, so its own timestamp is a lower bound
of the start. When the transaction begins to commit, the lease is stamped with the start: from then on a reader that
meets one of its values can tell a live writer, to be waited for, from a dead one, to be rolled back.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sweep_tasks.encoding import read_var_long, read_var_signed_long, var_long, var_signed_long
from sweep_tasks.model import Cell
from sweep_tasks.store.contract import Change, Store
from sweep_tasks.store.system import LEASES

_NOT_COMMITTING = -1
_ROWS = [bytes([n]) for n in range(16)]
"""Spread, so that transactions on a store with a leader per row do not all queue at one."""


class Lease(NamedTuple):
    """`ts` is below the start of the transaction that holds it; `start` is known once it is committing."""

    ts: int
    start: int | None
    owner: str

    @property
    def cell(self) -> Cell:
        return Cell(_ROWS[self.ts % len(_ROWS)], var_long(self.ts))

    def encoded(self) -> bytes:
        return var_signed_long(_NOT_COMMITTING if self.start is None else self.start) + self.owner.encode()


class Leases:
    def __init__(self, store: Store, ttl_s: float) -> None:
        self._store = store
        self._ttl_ms = int(ttl_s * 1000)

    def take(self, ts: int, owner: str) -> Lease:
        """`ts` must be fresh, and the holder's start timestamp must be taken afterwards."""
        lease = Lease(ts, None, owner)
        self._store.put_if_absent(LEASES, {lease.cell: lease.encoded()}, self._ttl_ms)
        return lease

    def renew(self, lease: Lease) -> bool:
        """False if it is gone: one that ran out stays out, since a sweep may have passed its holder meanwhile."""
        return self._replace(lease, lease)

    def stamp(self, lease: Lease, start: int) -> Lease | None:
        """The lease of a transaction that commits now, or None if it is gone."""
        stamped = lease._replace(start=start)
        return stamped if self._replace(lease, stamped) else None

    def _replace(self, old: Lease, new: Lease) -> bool:
        change = Change(old.encoded(), new.encoded())
        return self._store.compare_and_set(LEASES, old.cell.row, {old.cell.column: change}, self._ttl_ms)

    def release(self, leases: Collection[Lease]) -> None:
        self._store.remove(LEASES, [lease.cell for lease in leases])

    def open(self) -> list[Lease]:
        """All that have not expired, oldest first."""
        found = self._store.read_rows(LEASES, _ROWS)
        return sorted((_decoded(cell, value) for cell, value in found.items()), key=lambda lease: lease.ts)


def _decoded(cell: Cell, value: bytes) -> Lease:
    start, at = read_var_signed_long(value)
    owner = value[at:].decode(errors="replace")
    return Lease(read_var_long(cell.column)[0], None if start == _NOT_COMMITTING else start, owner)
