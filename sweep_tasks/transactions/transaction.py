"""Transactions, as applications use them.

    with manager.transaction() as tx:
        balance = tx.get("bank.accounts", b"alice", b"balance")
        tx.put("bank.accounts", b"alice", b"balance", b"12")

Leaving the block commits; an exception aborts. Writes are buffered in this process until the commit, so an earlier
abort costs nothing. Reads see the snapshot with the transaction's own writes on top. A transaction belongs to the
process that began it: a forked child can't use it, and leaving its block there has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from types import TracebackType

from sweep_tasks.coordination.leases import HeldLease
from sweep_tasks.errors import BadValue, TransactionError
from sweep_tasks.model import DELETE_MARKER, Cell, TableRef
from sweep_tasks.processes import generation
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.protecting import AnyTarget, new_record
from sweep_tasks.protection.records import Mode
from sweep_tasks.store.contract import Page
from sweep_tasks.transactions.commit import Committer, TransactionProtections, lease_lost
from sweep_tasks.transactions.snapshot import Reader, Reading, Selection, Snapshot, ValuePage, checked_cells


class Transaction(Reader):
    """A snapshot with buffered writes, which are committed together."""

    def __init__(
        self,
        reading: Reading,
        start: int,
        *,
        committer: Committer | None,
        lease: HeldLease | None,
        ended: Callable[[HeldLease], None],
        max_value_bytes: int,
        protections: ProtectionCatalog,
    ) -> None:
        self._snapshot = Snapshot(reading, start, refuse_thorough=lease is None)
        self._row_order = reading.store.row_order
        self._committer = committer
        self.lease = lease
        self._ended = ended
        self._max_value_bytes = max_value_bytes
        self._writes: dict[TableRef, dict[Cell, bytes]] = {}
        self._protections = TransactionProtections(protections, start)
        self._open = True
        self._process = generation()
        self.start = start
        self.commit_ts: int | None = None

    # --- writing ------------------------------------------------------------------------------------------------

    def put(self, table: TableRef | str, row: bytes, column: bytes, value: bytes) -> None:
        self.put_many(table, {Cell(row, column): value})

    def put_many(self, table: TableRef | str, values: Mapping[Cell, bytes]) -> None:
        for value in values.values():
            self._check_value(value)
        self._write(table, values)

    def delete(self, table: TableRef | str, row: bytes, column: bytes) -> None:
        self.delete_many(table, [Cell(row, column)])

    def delete_many(self, table: TableRef | str, cells: Collection[Cell]) -> None:
        self._write(table, dict.fromkeys(cells, DELETE_MARKER))

    def _write(self, table: TableRef | str, values: Mapping[Cell, bytes]) -> None:
        ref = TableRef.of(table)
        self._check_may_write()
        self._snapshot.metadata(ref)
        checked = dict(zip(checked_cells(values), values.values(), strict=True))
        self._writes.setdefault(ref, {}).update(checked)

    def _check_value(self, value: bytes) -> None:
        if not isinstance(value, bytes):
            raise BadValue("value", f"expected bytes, got {type(value).__name__}", reason="wrong_type")
        if not value:
            raise BadValue(
                "value", "is empty, which the store treats as deleted; use delete() to delete", reason="empty"
            )
        if len(value) > self._max_value_bytes:
            raise BadValue(
                "value",
                f"has {len(value)} bytes, at most {self._max_value_bytes} are allowed; split it, or raise the setting "
                "max_value_bytes",
                reason="too_long",
            )

    # --- reading, with our own writes on top ------------------------------------------------------------------------

    def _read(self, table: TableRef, cells: Collection[Cell]) -> dict[Cell, bytes]:
        own = self._writes.get(table, {})
        stored = self._snapshot.get_many(table, [cell for cell in cells if cell not in own])
        merged = stored | {cell: own[cell] for cell in cells if cell in own}
        return {cell: merged[cell] for cell in cells if merged.get(cell)}

    def _read_page(self, table: TableRef, selection: Selection) -> ValuePage:
        page = self._snapshot.page(table, *selection)
        order, after = self._scan_order, selection.after
        ours = {
            cell: value
            for cell, value in self._writes.get(table, {}).items()
            if cell.row in selection.rows
            and cell.column in selection.columns
            and (after is None or order(cell) > order(after))
            and (page.resume is None or order(cell) <= order(page.resume))
        }
        if not ours:
            return page
        merged = dict(page.items) | ours
        return Page([(cell, merged[cell]) for cell in sorted(merged, key=order) if merged[cell]], page.resume)

    def _scan_order(self, cell: Cell) -> tuple[object, bytes]:
        return self._row_order(cell.row), cell.column

    # --- protecting ---------------------------------------------------------------------------------------------

    def protect(
        self,
        *targets: AnyTarget,
        id: str | None = None,  # noqa: A002 (as in `release(id)` and in the record)
        ts: int | None = None,
        mode: Mode | str = Mode.AT,
        owner: str | None = None,
        meta: Mapping[str, str] | None = None,
        expires_at: datetime | None = None,
    ) -> str:
        """Protect a timestamp with the commit, and return the id of the record; by default the timestamp of this
        snapshot. The record holds from now on, and is removed if this aborts."""
        self._check_may_write()
        at = self.start if ts is None else ts
        record = new_record(targets, record_id=id, ts=at, mode=mode, owner=owner, meta=meta, expires_at=expires_at)
        if self.lease and not self.lease.stamp(self.start):
            raise lease_lost(self.start)
        self._protections.protect(record)
        return record.id

    def release(self, id: str) -> None:  # noqa: A002
        """Release a record with the commit; it holds until then."""
        self._check_may_write()
        self._protections.release(id)

    # --- ending -------------------------------------------------------------------------------------------------

    def commit(self) -> int | None:
        """Commit, and return the commit timestamp; None if there was nothing to commit."""
        self._check_open()
        self._open = False
        try:
            if (self._writes or self._protections) and self._committer and self.lease:
                tables = {table: self._snapshot.metadata(table) for table in self._writes}
                self.commit_ts = self._committer.commit(self.start, self.lease, self._writes, tables, self._protections)
        finally:
            self._release_lease()
        return self.commit_ts

    def abort(self) -> None:
        """Discard all writes. Has no effect after the end of the transaction."""
        self._check_same_process()
        if self._open:
            self._open = False
            self._protections.finish_abort()
            self._release_lease()

    def _release_lease(self) -> None:
        if self.lease:
            self._ended(self.lease)

    def _check_may_write(self) -> None:
        self._check_open()
        if self.lease is None:
            raise TransactionError(
                "transaction: a read-only transaction can't write; begin one without read_only",
                code="bad_value",
                reason="write",
            )

    def _check_same_process(self) -> None:
        if not self._is_same_process:
            raise TransactionError(
                f"transaction: the one started at {self.start} belongs to the parent of this forked process; begin a "
                "new one here",
                reason="other_process",
                start=self.start,
            )

    @property
    def _is_same_process(self) -> bool:
        return self._process == generation()

    def _check_open(self) -> None:
        self._check_same_process()
        if not self._open:
            raise TransactionError(
                f"transaction: the one started at {self.start} has ended; begin a new one", start=self.start
            )

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_same_process:
            return  # a forked child leaves the block; only the parent commits or aborts
        if kind is not None:
            self.abort()
        elif self._open:
            self.commit()
