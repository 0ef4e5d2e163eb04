"""The store contract: what memory, SQLite and Cassandra implement, and what each declares as its capabilities.

There are two kinds of table, and two halves of the contract. **Cells** have versions by start timestamp; an empty value
is a delete marker, and the version at -1 is a sentinel. **Registers** hold one value each, and processes coordinate
through them: every change to a register is atomic, and a register may have a time to live that the store enforces by
its own clock.

Guarantees that callers may rely on, and no more:
- A bulk call takes any number of cells. It needs one round trip per chunk of cells, never one per cell.
- A bulk call is not atomic across cells. If it raises `StoreUnavailable`, it changed nothing; if it raises
  `OutcomeUnknown`, any part of the change may have happened.
- Versions are put at timestamps that were handed out before. Whatever is removed later is removed at a later timestamp.
- Writing cells, deleting them and adding sentinels are idempotent.
- A scan visits rows in the store's own order (`row_order`), columns within a row in byte order, and versions of a cell
  from the newest to the oldest. It may or may not see what is written while it runs.
- Several processes can scan a table at once, each a range of the scan order.

`docs/stores.md` describes how a new store is added.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

from sweep_tasks import retries
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
_TRUNCATE_PAGE = 10_000
_BYTES_COMPARED = 8


@dataclass(frozen=True, slots=True)
class Page(Generic[Item, Resume]):
    """One page of a scan, and the position after which the next page starts; `resume` is None on the last page."""

    items: list[Item]
    resume: Resume | None


def every(fetch: Callable[[Resume | None], Page[Item, Resume]]) -> Iterator[Item]:
    """Yield all items of a paged scan; each page is fetched when its first item is needed."""
    return chain.from_iterable(pages(fetch))


def pages(fetch: Callable[[Resume | None], Page[Item, Resume]]) -> Iterator[list[Item]]:
    """Yield the pages of a scan; each is fetched when it is needed."""
    resume: Resume | None = None
    while True:
        page = fetch(resume)
        yield page.items
        resume = page.resume
        if resume is None:
            return


class Change(NamedTuple):
    """The value that a register must have for the change to be applied, and its new value; None means absent."""

    expected: bytes | None
    new: bytes | None


class Size(NamedTuple):
    """Bytes on disk: in use, and free within the file. New data fills the free pages first."""

    used: int
    free: int


class ScanRange(NamedTuple):
    """A part of a store's scan order, from `first` up to, but not including, `end`; an empty bound is open.

    Only the store interprets the bytes: they are a row, or a token on a ring.
    """

    first: bytes = b""
    end: bytes = b""

    def __repr__(self) -> str:
        return f"ScanRange(<{len(self.first)} bytes>, <{len(self.end)} bytes>)"

    @classmethod
    def between(cls, edges: Iterable[bytes], since: bytes = b"") -> list[ScanRange]:
        """Return the scan order from `since` on, split at these edges, which must be sorted and distinct."""
        inner = list(edges)
        return [cls(first, end) for first, end in zip([since, *inner], [*inner, b""], strict=True)]

    def of_rows(self, rows: Span) -> Span:
        """Return the rows that are in both, for stores whose scan ranges are ranges of rows."""
        ends = [end for end in (self.end, rows.end) if end]
        return Span(max(self.first, rows.start), min(ends, default=b""))


EVERYWHERE = ScanRange()

CellPage = Page[tuple[Cell, Version], Cell]
VersionPage = Page[StoredVersion, tuple[Cell, int]]


# ---------------------------------------------------------------------------------------------------------------------
# Capabilities: what only some stores can do.
# ---------------------------------------------------------------------------------------------------------------------

VacuumMethod = Literal["vacuum", "incremental_vacuum"]


class Vacuumed(NamedTuple):
    """The result of a vacuum."""

    how: VacuumMethod
    before: Size
    after: Size
    waiting: bool
    """The vacuum is complete, but the file shrinks only when the current readers have finished."""


class Vacuumable(Protocol):
    """A store in a file that keeps its size when data is deleted, until it is vacuumed."""

    def size(self) -> Size: ...

    def how_to_vacuum(self) -> VacuumMethod:
        """Return the method that `vacuum` would use."""

    def vacuum(self) -> Vacuumed:
        """Return free pages to the file system. The stored data does not change."""


@dataclass(frozen=True, slots=True)
class PhysicalTable:
    """A table as the database below the store knows it: its name, gc_grace and compaction options there."""

    keyspace: str
    name: str
    gc_grace_s: int
    compaction: Mapping[str, str]
    """The options of `compaction = {…}`; the class has its fully qualified name."""
    table: TableRef | None = None
    """The table as the store calls it."""

    @property
    def qualified(self) -> str:
        return f"{self.keyspace}.{self.name}"


class KeepsTombstones(Protocol):
    """A store where deleted data stays in files behind tombstones until a compaction purges it after gc_grace."""

    def physical_tables(self) -> dict[TableRef, PhysicalTable]:
        """Return all tables as they are in the database."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do beyond the calls that every store implements. None means that it can't."""

    tombstones: KeepsTombstones | None = None
    vacuum: Vacuumable | None = None


class Store(ABC):
    """One place where data lives: its tables, cells and registers."""

    @property
    def capabilities(self) -> Capabilities:
        """Return what this store can do beyond the contract. Callers ask here, never for the class of a store."""
        return Capabilities()

    # --- tables -------------------------------------------------------------------------------------------------

    @abstractmethod
    def create_table(self, table: TableRef, metadata: TableMetadata, gone: TableMetadata | None = None) -> bool:
        """Create a table whose name was never used, or replace a dropped one whose catalog row is `gone`.

        Returns False, and changes nothing, if the catalog holds another row.
        """

    @abstractmethod
    def alter_table(self, table: TableRef, expected: TableMetadata, new: TableMetadata) -> bool:
        """Replace a table's catalog row by compare-and-set.

        The layout and the incarnation of a table never change, and a dropped table stays dropped.
        """

    @abstractmethod
    def remove_table(self, table: TableRef, incarnation: int) -> bool:
        """Remove the stored data of a dropped incarnation; False if there is none.

        Other incarnations of the same name are not affected.
        """

    @abstractmethod
    def catalog_rows(self, only: Collection[TableRef] | None = None) -> dict[TableRef, TableMetadata]:
        """Return the current catalog rows, of dropped tables too, never from a cache; `only` limits them."""

    def tables(self, only: Collection[TableRef] | None = None) -> dict[TableRef, TableMetadata]:
        """Return the catalog rows of existing tables; some may have an announced truncation or drop."""
        return {table: found for table, found in self.catalog_rows(only).items() if not found.is_gone}

    def incarnation_in_use(self, table: TableRef) -> int | None:  # noqa: ARG002
        """Return the incarnation that calls on this table currently use.

        None for a store that reads the catalog within each call and so always uses the current incarnation. A store
        that caches the incarnation may use an old one: a caller that reads the catalog afterwards must compare.
        """
        return None

    def truncate(self, table: TableRef, before: int) -> None:
        """Remove every version below a timestamp, sentinels included, one page at a time. The table itself stays.

        Versions at or above the timestamp stay too. Emptying the whole table at once would also remove what a
        transaction committed after the truncation was decided.

        A late page may remove a sentinel of a sweep that ran after the truncation was decided. That is safe: such a
        sweep published its threshold before it deleted anything, and every reader checks the threshold after it has
        read. A sentinel only makes the reader fail sooner. It does not say when it was written, so it can't be kept.
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
        """Return, for each cell, its newest version below its timestamp, sentinels included, if it has one."""

    @abstractmethod
    def newest(self, table: TableRef, before: Mapping[Cell, int]) -> dict[Cell, int]:
        """Return the timestamps of the versions that `get` returns, without reading the values."""

    @abstractmethod
    def timestamps(self, table: TableRef, cells: Collection[Cell]) -> dict[Cell, list[int]]:
        """Return the timestamps of all versions of each cell, newest first; cells without versions are omitted."""

    @abstractmethod
    def scan(
        self,
        table: TableRef,
        before: int,
        rows: Span = EVERYTHING,
        columns: ColumnChoice = EVERYTHING,
        limit: int = DEFAULT_PAGE,
        after: Cell | None = None,
        scan_range: ScanRange = EVERYWHERE,
    ) -> CellPage:
        """Return a page of cells, each with its newest version below `before`; continue with `after=page.resume`."""

    @abstractmethod
    def scan_versions(
        self,
        table: TableRef,
        rows: Span = EVERYTHING,
        limit: int = DEFAULT_PAGE,
        after: tuple[Cell, int] | None = None,
        scan_range: ScanRange = EVERYWHERE,
    ) -> VersionPage:
        """Return a page of stored versions without their values."""

    @abstractmethod
    def scan_ranges(self, table: TableRef, parts: int, since: bytes = b"") -> list[ScanRange]:
        """Split the scan order, or the part from the row `since` on, into one to `parts` ranges of similar size.

        Every row from `since` on is in exactly one range, rows that are written later included.
        """

    @abstractmethod
    def end_of(self, table: TableRef) -> bytes:
        """Return the end of a range that holds all current rows and no row that is appended later.

        Empty if rows are never appended at the end of the scan order.
        """

    def share_before(self, scan_range: ScanRange, row: bytes) -> float:
        """Estimate the share of a range before one of its rows, from 0 to 1, to show the progress of a scan.

        By default, the first bytes in which rows of the range can differ are compared.
        """
        pairs = enumerate(zip(scan_range.first, scan_range.end, strict=False))
        common = next(
            (at for at, (one, other) in pairs if one != other), min(len(scan_range.first), len(scan_range.end))
        )
        first, end, here = (
            int.from_bytes(each[common : common + _BYTES_COMPARED].ljust(_BYTES_COMPARED, b"\0"), "big")
            for each in (scan_range.first, scan_range.end or b"\xff" * _BYTES_COMPARED, row)
        )
        return min(1.0, max(0.0, (here - first) / (end - first))) if end > first else 0.0

    def row_order(self, row: bytes) -> object:
        """Return a sort key that orders rows as a scan visits them; byte order by default."""
        return row

    def tokens(self, rows: Iterable[bytes]) -> list[int] | None:  # noqa: ARG002 (for those that have one)
        """Return the token of each row on the store's ring; None, without reading `rows`, if the store has no ring."""
        return None

    # --- cells: writing -----------------------------------------------------------------------------------------

    @abstractmethod
    def put(self, ts: int, writes: Mapping[TableRef, Mapping[Cell, bytes]]) -> None:
        """Store values as versions at `ts`."""

    def put_late(self, ts: int, writes: Mapping[TableRef, Mapping[Cell, bytes]]) -> None:
        """Store values at `ts` above everything that was removed from these cells before.

        In a store that orders writes by their timestamps, a value that arrives after its cell was swept stays hidden
        below the tombstone, and there is nothing to clean up. Tests use this call to produce what a store without that
        order would do.
        """
        self.put(ts, writes)

    @abstractmethod
    def add_sentinels(self, table: TableRef, cells: Collection[Cell]) -> None:
        """Store a sentinel, an empty version at -1, in each cell."""

    @abstractmethod
    def delete_versions(self, table: TableRef, versions: Collection[tuple[Cell, int]]) -> None:
        """Remove exactly these versions. Versions that do not exist are ignored."""

    @abstractmethod
    def delete_ranges(self, table: TableRef, ranges: Collection[VersionRange]) -> None:
        """Remove from each cell the versions from the first timestamp up to, but not including, the end."""

    def delete_everywhere(self, table: TableRef, ranges: Collection[VersionRange]) -> list[VersionRange]:
        """Delete ranges on every replica, and return the ranges that not every replica has confirmed.

        The versions of a returned range may be removed on some replicas and not on others. A store without replication
        returns nothing.
        """
        self.delete_ranges(table, ranges)
        return []

    @abstractmethod
    def delete_rows(self, table: TableRef, rows: Collection[bytes]) -> None:
        """Remove all versions of all cells of these rows."""

    # --- registers ----------------------------------------------------------------------------------------------

    @abstractmethod
    def read(self, table: TableRef, cells: Collection[Cell]) -> dict[Cell, bytes]:
        """Return the current values, as of the last completed change; absent and expired registers are omitted."""

    def peek(self, table: TableRef, cells: Collection[Cell]) -> dict[Cell, bytes]:
        """Read registers that are put once and never changed, at lower cost than `read`.

        A value that is found is final. A value whose `put_if_absent` has not returned yet may be missed. This is
        cheaper in a store where reading the current value needs a consensus round.
        """
        return self.read(table, cells)

    @abstractmethod
    def read_rows(self, table: TableRef, rows: Collection[bytes]) -> dict[Cell, bytes]:
        """Return all registers of these rows, in the given order of rows and then by column."""

    @abstractmethod
    def scan_registers(
        self, table: TableRef, limit: int = DEFAULT_PAGE, after: Cell | None = None
    ) -> Page[tuple[Cell, bytes], Cell]:
        """Return a page of all registers of a table, in scan order."""

    @abstractmethod
    def put_if_absent(
        self, table: TableRef, values: Mapping[Cell, bytes], ttl_ms: int | None = None
    ) -> dict[Cell, bytes]:
        """Put values into absent registers; return the value of each afterwards, which may be an earlier one."""

    @abstractmethod
    def compare_and_set(
        self, table: TableRef, row: bytes, changes: Mapping[bytes, Change], ttl_ms: int | None = None
    ) -> bool:
        """Apply all changes to the columns of one row atomically; if any expected value differs, none, and False."""

    @abstractmethod
    def remove(self, table: TableRef, cells: Iterable[Cell]) -> None:
        """Remove registers unconditionally. Only for registers that no other process writes."""

    def update(self, table: TableRef, cell: Cell, change: Callable[[bytes | None], bytes]) -> bytes:
        """Replace a register's value by `change` of it, atomically, and return the new value.

        `change` may be called several times. If a response was lost, it may take effect more than once. If it returns
        the value it was given, nothing is written.
        """
        for _ in range(retries.REGISTER_UPDATE.attempts):
            current = self.read(table, [cell]).get(cell)
            wanted = change(current)
            if wanted == current or self.compare_and_set(table, cell.row, {cell.column: Change(current, wanted)}):
                return wanted
        raise StoreBusy(
            f"store: a register of {table} could not be updated: other writers changed it "
            f"{retries.REGISTER_UPDATE.attempts} times meanwhile; retry later, or with fewer concurrent writers"
        )

    # --- housekeeping -------------------------------------------------------------------------------------------

    def size(self) -> Size | None:
        """Return the bytes that the store uses on disk; None if the store can't measure it."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Release connections. The store must not be used afterwards."""

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


T = TypeVar("T")


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of at most `size`."""
    left = iter(items)
    while part := list(islice(left, size)):
        yield part
