"""Snapshots: what a reader at one timestamp sees.

Of the versions that started and committed before the timestamp, a reader sees the one with the greatest start. After
every read, and before its result is returned, the reader checks that no sweep or truncation can have removed a version
that it should have seen. Otherwise the read fails with both timestamps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from sweep_tasks.coordination.thresholds import Announcements, TableThreshold
from sweep_tasks.errors import BadValue, SnapshotSwept, TransactionError, UnknownTable
from sweep_tasks.model import (
    EVERYTHING,
    SENTINEL_TS,
    Cell,
    ColumnChoice,
    Span,
    SweepStrategy,
    TableMetadata,
    TableRef,
    Version,
    checked_name,
    checked_span,
)
from sweep_tasks.protection.catalog import Tracker
from sweep_tasks.store.contract import EVERYWHERE, CellPage, Page, ScanRange, Store, every
from sweep_tasks.transactions.outcomes import ABORTED, Writers

ValuePage = Page[tuple[Cell, bytes], Cell]


class Reading(NamedTuple):
    """What snapshots need to read; shared by all snapshots of a manager."""

    store: Store
    writers: Writers
    announcements: Announcements
    protections: Tracker
    page_cells: int


def checked_cell(row: bytes, column: bytes) -> Cell:
    return Cell(checked_name(row, "row"), checked_name(column, "column"))


def checked_cells(cells: Iterable[Cell]) -> list[Cell]:
    try:
        return [checked_cell(row, column) for row, column in cells]
    except (TypeError, ValueError):
        raise BadValue("cells", "expected cells, each a row and a column", reason="wrong_type") from None


class Selection(NamedTuple):
    """The cells that a page is read from, and its limit."""

    rows: Span = EVERYTHING
    columns: ColumnChoice = EVERYTHING
    limit: int | None = None
    after: Cell | None = None

    def checked(self) -> Selection:
        checked_span(self.rows, "rows")
        if isinstance(self.columns, Span):
            checked_span(self.columns, "columns")
        else:
            for column in self.columns:  # those of bytes are numbers
                checked_name(column, "columns")
        if self.limit is not None and self.limit < 1:
            raise BadValue("limit", f"{self.limit} is below 1; leave it out to read a page", reason="out_of_range")
        return self


class Reader(ABC):
    """The reads that snapshots and transactions share. A cell that is absent or deleted is None, or omitted.

    What a subclass defines is abstract and private: on a transaction, a public one would be a way for an application to
    read without the check that the transaction is open.
    """

    def get(self, table: TableRef | str, row: bytes, column: bytes) -> bytes | None:
        cell = checked_cell(row, column)
        return self.get_many(table, [cell]).get(cell)

    def get_many(self, table: TableRef | str, cells: Collection[Cell]) -> dict[Cell, bytes]:
        self._check_open()
        return self._read(TableRef.of(table), checked_cells(cells))

    def page(
        self,
        table: TableRef | str,
        rows: Span = EVERYTHING,
        columns: ColumnChoice = EVERYTHING,
        limit: int | None = None,
        after: Cell | None = None,
    ) -> ValuePage:
        """Return up to `limit` cells in scan order; continue with `after=page.resume` until that is None.

        A page that is not the last may still have fewer cells than the limit, or none.
        """
        self._check_open()
        return self._read_page(TableRef.of(table), Selection(rows, columns, limit, after).checked())

    def scan(
        self, table: TableRef | str, rows: Span = EVERYTHING, columns: ColumnChoice = EVERYTHING
    ) -> Iterator[tuple[Cell, bytes]]:
        """Yield all cells of the range, fetched page by page."""
        return every(lambda after: self.page(table, rows, columns, after=after))

    @abstractmethod
    def _check_open(self) -> None:
        """Fail if nothing can be read any more."""

    @abstractmethod
    def _read(self, table: TableRef, cells: Collection[Cell]) -> dict[Cell, bytes]:
        """Read cells for `get_many`, which has checked that this is open."""

    @abstractmethod
    def _read_page(self, table: TableRef, selection: Selection) -> ValuePage:
        """Read a page for `page`, which has checked that this is open."""


class Snapshot(Reader):
    """Reads at one timestamp. It holds nothing, so it never has to be closed."""

    def __init__(self, reading: Reading, at: int, *, refuse_thorough: bool = False) -> None:
        self._reading = reading
        self._refuse_thorough = refuse_thorough
        self._metadata: dict[TableRef, TableMetadata] = {}
        self.at = at

    def _check_open(self) -> None:
        """A snapshot is always open."""

    def _read(self, table: TableRef, cells: Collection[Cell]) -> dict[Cell, bytes]:
        return {cell: version.value for cell, version in self.versions(table, cells).items() if not version.is_delete}

    def _read_page(self, table: TableRef, selection: Selection) -> ValuePage:
        found = self.version_page(table, *selection)
        return Page([(cell, version.value) for cell, version in found.items], found.resume)

    def versions(self, table: TableRef | str, cells: Collection[Cell]) -> dict[Cell, Version]:
        """Return the version of each cell at this timestamp, delete markers included."""
        ref = self._readable(TableRef.of(table))
        store, wanted = self._reading.store, dict.fromkeys(cells, self.at)
        rows = [Span.only(cell.row) for cell in cells]
        return dict(self._seen(ref, rows, lambda: Page(list(store.get(ref, wanted).items()), None)).items)

    def version_page(
        self,
        table: TableRef | str,
        rows: Span = EVERYTHING,
        columns: ColumnChoice = EVERYTHING,
        limit: int | None = None,
        after: Cell | None = None,
        scan_range: ScanRange = EVERYWHERE,
    ) -> CellPage:
        """Return a page of cells with their versions, whose start timestamps show whether a cell has changed.

        It is read from the whole table, or from a scan_range if several processes read the table at once.
        """
        ref = self._readable(TableRef.of(table))
        store, most = self._reading.store, limit or self._reading.page_cells
        page = self._seen(ref, [rows], lambda: store.scan(ref, self.at, rows, columns, most, after, scan_range))
        return Page([(cell, version) for cell, version in page.items if not version.is_delete], page.resume)

    def check_readable(self, table: TableRef | str) -> None:
        """Fail if a read of all rows would fail now, without reading any."""
        self._check_not_swept(self._readable(TableRef.of(table)), [EVERYTHING], lone_sentinel=False)

    def _seen(self, table: TableRef, rows: Collection[Span], newest: Callable[[], CellPage]) -> CellPage:
        """Return the visible versions of cells, given a read of their newest ones; delete markers are included.

        Versions that started below the table's mark are not visible, even if they are still stored. If the store used
        an earlier incarnation of the table, everything is read again.
        """
        while True:
            used = self._reading.store.incarnation_in_use(table)
            page = newest()
            visible, lone_sentinel = self._visible(table, dict(page.items))
            known = self._check_not_swept(table, rows, lone_sentinel)
            if used in (None, known.metadata.incarnation):
                versions = ((cell, visible.get(cell)) for cell, _ in page.items)
                return Page(
                    [(cell, found) for cell, found in versions if found and found.ts >= known.mark], page.resume
                )

    def _visible(self, table: TableRef, newest: Mapping[Cell, Version]) -> tuple[dict[Cell, Version], bool]:
        """Return the newest visible version of each cell, and whether some cell has nothing but a sentinel."""
        visible: dict[Cell, Version] = {}
        lone_sentinel = False
        candidates: Mapping[Cell, Version] = newest
        while candidates:
            outcomes = self._reading.writers.settle({v.ts for v in candidates.values() if v.ts != SENTINEL_TS})
            below: dict[Cell, int] = {}
            for cell, version in candidates.items():
                if version.ts == SENTINEL_TS:
                    lone_sentinel = True
                    continue
                commit = outcomes[version.ts]
                if commit == ABORTED or commit >= self.at:
                    below[cell] = version.ts
                else:
                    visible[cell] = version
            candidates = self._reading.store.get(table, below) if below else {}
        return visible, lone_sentinel

    def metadata(self, table: TableRef) -> TableMetadata:
        """Return the table's metadata as of its first use in this snapshot."""
        known = self._metadata.get(table)
        if known is None:
            found = self._reading.store.tables([table])
            if table not in found:
                raise UnknownTable(table)
            known = self._metadata[table] = found[table]
        return known

    def _readable(self, table: TableRef) -> TableRef:
        if self._refuse_thorough and self.metadata(table).strategy is SweepStrategy.THOROUGH:
            raise TransactionError(
                f"table: {table} is swept thoroughly, and a read-only transaction has no lease that keeps its "
                "versions; use an ordinary transaction, or make the table conservative",
                code="bad_value",
                reason="thorough",
                table=table,
            )
        return table

    def _check_not_swept(self, table: TableRef, rows: Collection[Span], lone_sentinel: bool) -> TableThreshold:
        """Check, after the data was read, that nothing was removed that this snapshot should see.

        At or above the threshold nothing is missing, and a lone sentinel belongs to a cell without versions. Below the
        threshold only an accepted protection allows the read, and a lone sentinel shows that versions were removed
        nevertheless. Below the mark every read fails.
        """
        known = self._reading.announcements.resolve([table])[table]
        threshold = known.for_readers
        if self.at < threshold:
            gone = lone_sentinel or self.at < known.mark
            records = () if gone else self._reading.protections.refresh().records
            if gone or not all(any(r.lets_read(table, span, self.at) for r in records) for span in rows):
                raise SnapshotSwept(table, self.at, threshold)
        return known
