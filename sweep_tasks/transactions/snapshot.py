"""What a reader at one timestamp sees, and never anything else.

Of the versions that started and committed before the timestamp, the one with the greatest start. After every read,
and before its result is handed out, the reader checks that no sweep or truncation may have taken what it should have
seen; otherwise it fails, naming both timestamps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from sweep_tasks.errors import ReadOnlyRefused, SnapshotSwept, UnknownTable
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
)
from sweep_tasks.protection.tracker import Tracker
from sweep_tasks.store.contract import EVERYWHERE, CellPage, Page, Store, Stretch, every
from sweep_tasks.timestamps.thresholds import Thresholds
from sweep_tasks.transactions.commits import ABORTED
from sweep_tasks.transactions.writers import Writers

ValuePage = Page[tuple[Cell, bytes], Cell]


class Reading(NamedTuple):
    """What reading needs; one for all snapshots of a manager."""

    store: Store
    writers: Writers
    thresholds: Thresholds
    protections: Tracker
    page_cells: int


def as_table(table: TableRef | str) -> TableRef:
    return TableRef.parse(table) if isinstance(table, str) else table


def checked_cell(row: bytes, column: bytes) -> Cell:
    return Cell(checked_name(row, "row"), checked_name(column, "column"))


class Snapshot:
    """Reads at one timestamp. Values come back as bytes; a cell that is absent or deleted is None, or left out."""

    def __init__(self, reading: Reading, at: int, *, refuse_thorough: bool = False) -> None:
        self._reading = reading
        self._refuse_thorough = refuse_thorough
        self._metadata: dict[TableRef, TableMetadata] = {}
        self.at = at

    def get(self, table: TableRef | str, row: bytes, column: bytes) -> bytes | None:
        cell = checked_cell(row, column)
        return self.get_many(table, [cell]).get(cell)

    def get_many(self, table: TableRef | str, cells: Collection[Cell]) -> dict[Cell, bytes]:
        return {cell: version.value for cell, version in self.versions(table, cells).items() if not version.is_delete}

    def versions(self, table: TableRef | str, cells: Collection[Cell]) -> dict[Cell, Version]:
        """The version each cell shows at this timestamp, delete markers included."""
        ref = self._readable(as_table(table))
        found = self._reading.store.get(ref, dict.fromkeys(cells, self.at))
        visible, sentinel = self._visible(ref, found)
        self._check_not_swept(ref, [Span.only(cell.row) for cell in cells], sentinel)
        return visible

    def page(
        self,
        table: TableRef | str,
        rows: Span = EVERYTHING,
        columns: ColumnChoice = EVERYTHING,
        limit: int | None = None,
        after: Cell | None = None,
    ) -> ValuePage:
        """Up to `limit` cells, in the store's order; go on with `after=page.resume` until that is None.

        A page may hold fewer cells than the limit, even none, and still not be the last.
        """
        found = self.version_page(table, rows, columns, limit, after)
        return Page([(cell, version.value) for cell, version in found.items], found.resume)

    def version_page(
        self,
        table: TableRef | str,
        rows: Span = EVERYTHING,
        columns: ColumnChoice = EVERYTHING,
        limit: int | None = None,
        after: Cell | None = None,
        stretch: Stretch = EVERYWHERE,
    ) -> CellPage:
        """As `page`, with the version that each cell shows: its start tells whether a cell has changed. Of the whole
        table, or of a stretch, for several who read it at once."""
        ref = self._readable(as_table(table))
        page = self._reading.store.scan(ref, self.at, rows, columns, limit or self._reading.page_cells, after, stretch)
        visible, sentinel = self._visible(ref, dict(page.items))
        self._check_not_swept(ref, [rows], sentinel)
        versions = ((cell, visible.get(cell)) for cell, _ in page.items)
        return Page([(cell, found) for cell, found in versions if found and not found.is_delete], page.resume)

    def scan(
        self, table: TableRef | str, rows: Span = EVERYTHING, columns: ColumnChoice = EVERYTHING
    ) -> Iterator[tuple[Cell, bytes]]:
        """All cells of the range, fetched page by page."""
        return every(lambda after: self.page(table, rows, columns, after=after))

    def check_readable(self, table: TableRef | str) -> None:
        """Fails as a read of all rows would at this moment, without reading one."""
        self._check_not_swept(self._readable(as_table(table)), [EVERYTHING], lone_sentinel=False)

    def _visible(self, table: TableRef, newest: Mapping[Cell, Version]) -> tuple[dict[Cell, Version], bool]:
        """From the newest version of each cell below our timestamp, step down to the one that may be seen; and whether
        some cell had nothing but a sentinel to show."""
        visible: dict[Cell, Version] = {}
        lone_sentinel = False
        candidates: Mapping[Cell, Version] = newest
        while candidates:
            outcomes = self._reading.writers.settled({v.ts for v in candidates.values() if v.ts != SENTINEL_TS})
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
        """As it was when this snapshot first met the table."""
        known = self._metadata.get(table)
        if known is None:
            found = self._reading.store.tables([table])
            if table not in found:
                raise UnknownTable(table)
            known = self._metadata[table] = found[table]
        return known

    def _readable(self, table: TableRef) -> TableRef:
        if self._refuse_thorough and self.metadata(table).strategy is SweepStrategy.THOROUGH:
            raise ReadOnlyRefused(
                f"table: {table} is swept thoroughly, and a read-only transaction holds no lease to keep what it "
                "reads; use an ordinary transaction, or make the table conservative",
                reason="thorough",
                table=table,
            )
        return table

    def _check_not_swept(self, table: TableRef, rows: Collection[Span], lone_sentinel: bool) -> None:
        """After the data was read: at or above the threshold nothing is missing, and a lone sentinel is what is left of
        a cell without versions. Below it only an accepted protection helps, and a lone sentinel says that something is
        gone all the same."""
        threshold = self._reading.thresholds.of_tables([table])[table].for_readers
        if self.at >= threshold:
            return
        records = () if lone_sentinel else self._reading.protections.refresh().records
        if lone_sentinel or not all(any(r.lets_read(table, span, self.at) for r in records) for span in rows):
            raise SnapshotSwept(table, self.at, threshold)
