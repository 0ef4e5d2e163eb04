"""A transaction as an application holds it.

    with manager.transaction() as tx:
        balance = tx.get("bank.accounts", b"alice", b"balance")
        tx.put("bank.accounts", b"alice", b"balance", b"12")

Leaving the block commits; an exception aborts. Writes stay in this process until the commit, so an abort before it
costs nothing. Reads see the snapshot with the transaction's own writes on top.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import TracebackType

from sweep_tasks.errors import BadValue, ReadOnlyRefused, TransactionEnded
from sweep_tasks.model import (
    DELETE_MARKER,
    EVERYTHING,
    Cell,
    ColumnChoice,
    Span,
    TableRef,
)
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Record
from sweep_tasks.store.contract import Page
from sweep_tasks.transactions.commit import Committer, lease_lost
from sweep_tasks.transactions.keeper import HeldLease
from sweep_tasks.transactions.protecting import Protecting
from sweep_tasks.transactions.snapshot import Reading, Snapshot, ValuePage, as_table, checked_cell


class Transaction(Snapshot):
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
        super().__init__(reading, start, refuse_thorough=lease is None)
        self._committer = committer
        self.lease = lease
        self._ended = ended
        self._max_value_bytes = max_value_bytes
        self._writes: dict[TableRef, dict[Cell, bytes]] = {}
        self._protecting = Protecting(protections, start)
        self._open = True
        self.commit_ts: int | None = None

    @property
    def start(self) -> int:
        return self.at

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
        ref = as_table(table)
        self._check_may_write()
        self.metadata(ref)
        checked = {checked_cell(row, column): value for (row, column), value in values.items()}
        self._writes.setdefault(ref, {}).update(checked)

    def _check_value(self, value: bytes) -> None:
        if not isinstance(value, bytes):
            raise BadValue("value", f"expected bytes, got {type(value).__name__}", reason="wrong_type")
        if not value:
            raise BadValue(
                "value", "is empty, which in the store means deleted; use delete() to delete", reason="empty"
            )
        if len(value) > self._max_value_bytes:
            raise BadValue(
                "value",
                f"has {len(value)} bytes, at most {self._max_value_bytes} are allowed; split it, or raise the setting "
                "max_value_bytes",
                reason="too_long",
            )

    # --- reading, with our own writes on top ------------------------------------------------------------------------

    def get_many(self, table: TableRef | str, cells: Collection[Cell]) -> dict[Cell, bytes]:
        self._check_open()
        ref = as_table(table)
        own = self._writes.get(ref, {})
        stored = super().get_many(ref, [cell for cell in cells if cell not in own])
        merged = stored | {cell: own[cell] for cell in cells if cell in own}
        return {cell: merged[cell] for cell in cells if merged.get(cell)}

    def page(
        self,
        table: TableRef | str,
        rows: Span = EVERYTHING,
        columns: ColumnChoice = EVERYTHING,
        limit: int | None = None,
        after: Cell | None = None,
    ) -> ValuePage:
        self._check_open()
        ref = as_table(table)
        page = super().page(ref, rows, columns, limit, after)
        order = self._scan_order
        ours = {
            cell: value
            for cell, value in self._writes.get(ref, {}).items()
            if cell.row in rows
            and cell.column in columns
            and (after is None or order(cell) > order(after))
            and (page.resume is None or order(cell) <= order(page.resume))
        }
        if not ours:
            return page
        merged = dict(page.items) | ours
        return Page([(cell, merged[cell]) for cell in sorted(merged, key=order) if merged[cell]], page.resume)

    def _scan_order(self, cell: Cell) -> tuple[object, bytes]:
        return self._reading.store.row_order(cell.row), cell.column

    # --- protecting ---------------------------------------------------------------------------------------------

    def protect(self, record: Record) -> None:
        """Protect a timestamp if this transaction commits. It is held from now on, and let go again if it aborts."""
        self._check_may_write()
        if self.lease and not self.lease.stamp(self.start):
            raise lease_lost(self.start)
        self._protecting.protect(record)

    def release(self, record_id: str) -> None:
        """Release a record with the commit; until then it holds."""
        self._check_may_write()
        self._protecting.release(record_id)

    # --- ending -------------------------------------------------------------------------------------------------

    def commit(self) -> int | None:
        """The commit timestamp; None if there was nothing to commit."""
        self._check_open()
        self._open = False
        try:
            if (self._writes or self._protecting) and self._committer and self.lease:
                tables = {table: self.metadata(table) for table in self._writes}
                self.commit_ts = self._committer.commit(self.start, self.lease, self._writes, tables, self._protecting)
        finally:
            self._give_lease_back()
        return self.commit_ts

    def abort(self) -> None:
        """Forget everything. Harmless after the end."""
        if self._open:
            self._open = False
            self._protecting.aborted()
            self._give_lease_back()

    def _give_lease_back(self) -> None:
        if self.lease:
            self._ended(self.lease)

    def _check_may_write(self) -> None:
        self._check_open()
        if self.lease is None:
            raise ReadOnlyRefused(
                "transaction: it is read-only and writes nothing; begin one without read_only", reason="write"
            )

    def _check_open(self) -> None:
        if not self._open:
            raise TransactionEnded(
                f"transaction: the one started at {self.start} has ended; begin a new one", start=self.start
            )

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()
        elif self._open:
            self.commit()
