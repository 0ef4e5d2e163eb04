"""Where bytes live: the one contract that memory, SQLite and Cassandra keep.

Two kinds of table, two halves of the contract. **Cells** have versions by start timestamp; an empty value is a
delete marker, and the version at -1 is a sentinel. **Registers** hold one value each and are what processes
coordinate through: every change to one is atomic, and one may be given a time to live that the store enforces by
its own clock.

What a caller may rely on, and no more:
- A bulk call takes as many cells as there are, in one round trip per handful, never one per cell.
- A bulk call is not atomic across cells. One that raises `StoreUnavailable` did nothing; one that raises
  `OutcomeUnknown` may have done any part of its work.
- Versions are put at timestamps that were handed out before: what is removed later is removed at a later one.
- Writing cells, deleting them and adding sentinels are idempotent.
- A scan visits rows in the store's own order (`row_order`), within a row columns in byte order, within a cell the
  newest version first. What is written while a scan is under way may or may not be seen.
- A table can be scanned by several at once, each a stretch of that order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from sweep_tasks.errors import StoreBusy
from sweep_tasks.model import (
    EVERYTHING,
    Cell,
    ColumnChoice,
    Span,
    StoredVersion,
    TableMetadata,
    TableRef,
    Version,
    VersionRange,
)

Item = TypeVar("Item")
Resume = TypeVar("Resume")

DEFAULT_PAGE = 1_000
_UPDATE_ATTEMPTS = 1_000
_TRUNCATE_PAGE = 10_000
_BYTES_COMPARED = 8


@dataclass(frozen=True, slots=True)
class Page(Generic[Item, Resume]):
    """Part of a scan, and where the next part starts; `resume` is None on the last page."""

    items: list[Item]
    resume: Resume | None


def every(fetch: Callable[[Resume | None], Page[Item, Resume]]) -> Iterator[Item]:
    """All items of a paged scan, fetched a page at a time as they are asked for."""
    resume: Resume | None = None
    while True:
        page = fetch(resume)
        yield from page.items
        resume = page.resume
        if resume is None:
            return


class Change(NamedTuple):
    """What a register must hold for a change to happen, and what it holds afterwards; None is absent."""

    expected: bytes | None
    new: bytes | None


class Size(NamedTuple):
    """Bytes on disk: in use, and free within the file, where new data goes first."""

    used: int
    free: int


class Stretch(NamedTuple):
    """Part of the order in which a store scans, from `first` up to, but not including, `end`; empty is open. What the
    bytes mean is the store's own affair: a row, or a place on a ring."""

    first: bytes = b""
    end: bytes = b""

    def __repr__(self) -> str:
        return f"Stretch(<{len(self.first)} bytes>, <{len(self.end)} bytes>)"

    @classmethod
    def between(cls, edges: Iterable[bytes], since: bytes = b"") -> list[Stretch]:
        """All of the order, or what comes since a place, cut at these edges, which are in order and differ."""
        inner = list(edges)
        return [cls(first, end) for first, end in zip([since, *inner], [*inner, b""], strict=True)]

    def of_rows(self, rows: Span) -> Span:
        """The rows that are in both, where a stretch is one of rows."""
        ends = [end for end in (self.end, rows.end) if end]
        return Span(max(self.first, rows.start), min(ends, default=b""))


EVERYWHERE = Stretch()

CellPage = Page[tuple[Cell, Version], Cell]
VersionPage = Page[StoredVersion, tuple[Cell, int]]


class Store(ABC):
    # --- tables -------------------------------------------------------------------------------------------------

    @abstractmethod
    def create_table(self, table: TableRef, metadata: TableMetadata) -> bool:
        """False, and nothing changed, if it exists already."""

    @abstractmethod
    def alter_table(self, table: TableRef, expected: TableMetadata, new: TableMetadata) -> bool:
        """Compare-and-set of a table's metadata. The layout of a table never changes."""

    @abstractmethod
    def drop_table(self, table: TableRef) -> bool:
        """False if there was none."""

    @abstractmethod
    def tables(self, only: Collection[TableRef] | None = None) -> dict[TableRef, TableMetadata]:
        """What the store holds now, never from a cache; those of `only` that exist, if given."""

    def truncate(self, table: TableRef, before: int) -> None:
        """Remove every version below a timestamp, sentinels included, a page at a time. The table stays.

        What was written since at or above it stays too: emptying the whole table at once would take along what a
        transaction committed after the truncation was announced.
        """
        after: tuple[Cell, int] | None = None
        while True:
            page = self.scan_versions(table, limit=_TRUNCATE_PAGE, after=after)
            self.delete_versions(table, [(cell, ts) for cell, ts, _ in page.items if ts < before])
            after = page.resume
            if after is None:
                return

    # --- cells: reading -----------------------------------------------------------------------------------------

    @abstractmethod
    def get(self, table: TableRef, before: Mapping[Cell, int]) -> dict[Cell, Version]:
        """For each cell the newest version below its timestamp, sentinels included; cells without one are left out."""

    @abstractmethod
    def newest(self, table: TableRef, before: Mapping[Cell, int]) -> dict[Cell, int]:
        """As `get`, without reading the values."""

    @abstractmethod
    def timestamps(self, table: TableRef, cells: Collection[Cell]) -> dict[Cell, list[int]]:
        """All versions of each cell, newest first; cells without any are left out."""

    @abstractmethod
    def scan(
        self,
        table: TableRef,
        before: int,
        rows: Span = EVERYTHING,
        columns: ColumnChoice = EVERYTHING,
        limit: int = DEFAULT_PAGE,
        after: Cell | None = None,
        stretch: Stretch = EVERYWHERE,
    ) -> CellPage:
        """A page of cells, each with its newest version below `before`; continue with `after=page.resume`."""

    @abstractmethod
    def scan_versions(
        self,
        table: TableRef,
        rows: Span = EVERYTHING,
        limit: int = DEFAULT_PAGE,
        after: tuple[Cell, int] | None = None,
        stretch: Stretch = EVERYWHERE,
    ) -> VersionPage:
        """A page of stored versions without their values."""

    @abstractmethod
    def stretches(self, table: TableRef, parts: int, since: bytes = b"") -> list[Stretch]:
        """The scan order in at most so many parts, at least one, of about the same size as far as the store can tell.
        Every row is in exactly one of them, those that are written later too. From a row on, if one is given: what
        comes before it is in none."""

    @abstractmethod
    def end_of(self, table: TableRef) -> bytes:
        """Where a stretch must end to hold the rows that are there now, and none that are written behind them later;
        empty if the order has an end of its own."""

    def share_before(self, stretch: Stretch, row: bytes) -> float:
        """About how much of a stretch lies before one of its rows, from 0 to 1: for whoever watches a scan. By the
        first bytes in which its rows can differ, unless a store says otherwise."""
        pairs = enumerate(zip(stretch.first, stretch.end, strict=False))
        common = next((at for at, (one, other) in pairs if one != other), min(len(stretch.first), len(stretch.end)))
        first, end, here = (
            int.from_bytes(each[common : common + _BYTES_COMPARED].ljust(_BYTES_COMPARED, b"\0"), "big")
            for each in (stretch.first, stretch.end or b"\xff" * _BYTES_COMPARED, row)
        )
        return min(1.0, max(0.0, (here - first) / (end - first))) if end > first else 0.0

    def row_order(self, row: bytes) -> object:
        """Sorts rows the way a scan visits them. Byte order, unless a store says otherwise."""
        return row

    def tokens(self, rows: Iterable[bytes]) -> list[int] | None:  # noqa: ARG002 (for those that have one)
        """Where each of these rows lives on the store's ring; None, and nothing is computed, where there is no ring."""
        return None

    # --- cells: writing -----------------------------------------------------------------------------------------

    @abstractmethod
    def put(self, ts: int, writes: Mapping[TableRef, Mapping[Cell, bytes]]) -> None:
        """Store values as versions at `ts`."""

    def put_late(self, ts: int, writes: Mapping[TableRef, Mapping[Cell, bytes]]) -> None:
        """As `put`, for what comes after its place was swept: stored above whatever was removed there before.

        In a store that orders writes by their timestamps, a value that comes too late stays hidden below the tombstone
        of its place, and nothing is left to clean up. Who wants to see what a store without that order does with it,
        uses this.
        """
        self.put(ts, writes)

    @abstractmethod
    def add_sentinels(self, table: TableRef, cells: Collection[Cell]) -> None: ...

    @abstractmethod
    def delete_versions(self, table: TableRef, versions: Collection[tuple[Cell, int]]) -> None:
        """Remove exactly these versions, where they exist."""

    @abstractmethod
    def delete_ranges(self, table: TableRef, ranges: Collection[VersionRange]) -> None:
        """Remove, of each cell, the versions from the first timestamp up to, but not including, the end."""

    def delete_everywhere(self, table: TableRef, ranges: Collection[VersionRange]) -> list[VersionRange]:
        """As `delete_ranges`, at every copy that the store keeps. Returns the ranges of which not every copy confirmed:
        their versions may be gone at some copies and not at others. A store with one copy has nothing to return."""
        self.delete_ranges(table, ranges)
        return []

    @abstractmethod
    def delete_rows(self, table: TableRef, rows: Collection[bytes]) -> None:
        """Remove all versions of all cells of these rows."""

    # --- registers ----------------------------------------------------------------------------------------------

    @abstractmethod
    def read(self, table: TableRef, cells: Collection[Cell]) -> dict[Cell, bytes]:
        """The values that stand, as the last completed change left them; absent and expired ones are left out."""

    def peek(self, table: TableRef, cells: Collection[Cell]) -> dict[Cell, bytes]:
        """As `read`, for registers that are put once and never changed: what is found stands for good, what was put by
        somebody whose call has not returned may be missed. Cheaper, where reading what stands takes an agreement."""
        return self.read(table, cells)

    @abstractmethod
    def read_rows(self, table: TableRef, rows: Collection[bytes]) -> dict[Cell, bytes]:
        """All registers of these rows, by row as given and then by column."""

    @abstractmethod
    def scan_registers(
        self, table: TableRef, limit: int = DEFAULT_PAGE, after: Cell | None = None
    ) -> Page[tuple[Cell, bytes], Cell]:
        """A page of all registers of a table, in the order of a scan."""

    @abstractmethod
    def put_if_absent(
        self, table: TableRef, values: Mapping[Cell, bytes], ttl_ms: int | None = None
    ) -> dict[Cell, bytes]:
        """What stands afterwards for each cell: the value given, or the one that was there first."""

    @abstractmethod
    def compare_and_set(
        self, table: TableRef, row: bytes, changes: Mapping[bytes, Change], ttl_ms: int | None = None
    ) -> bool:
        """All changes to the columns of one row, or, if any expectation fails, none and False."""

    @abstractmethod
    def remove(self, table: TableRef, cells: Iterable[Cell]) -> None:
        """Remove registers whatever they hold. Only for those that their owner alone writes."""

    def update(self, table: TableRef, cell: Cell, change: Callable[[bytes | None], bytes]) -> bytes:
        """Replace a register by a function of it, atomically; the function may be called several times, and where an
        answer was lost, take effect more than once.

        Returning the value it was given leaves the register untouched. What stands afterwards is returned.
        """
        for _ in range(_UPDATE_ATTEMPTS):
            current = self.read(table, [cell]).get(cell)
            wanted = change(current)
            if wanted == current or self.compare_and_set(table, cell.row, {cell.column: Change(current, wanted)}):
                return wanted
        raise StoreBusy(f"store: a register of {table} changed {_UPDATE_ATTEMPTS} times under us; try again later")

    # --- housekeeping -------------------------------------------------------------------------------------------

    def size(self) -> Size | None:
        """What the store takes; None for one that can't tell."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Give connections back. The store is not used afterwards."""

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
