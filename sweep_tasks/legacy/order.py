"""What a scan of a table is asked to do: which table, from which row, up to which timestamp, and how much at most.

The same order drives the in-process sweep, the Spark job (as a JSON document) and an Airflow task (from a form).
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer
from pydantic.dataclasses import dataclass

from sweep_tasks.clock import Clock
from sweep_tasks.config import MAX_PAGE_VERSIONS, Settings
from sweep_tasks.errors import BadValue, NotYet, UnknownTable
from sweep_tasks.model import MAX_NAME_BYTES, SweepStrategy, TableMetadata, TableRef, checked_timestamp
from sweep_tasks.orders import ORDER_CONFIG, Order
from sweep_tasks.store.contract import ScanRange, Store
from sweep_tasks.sweep.horizon import Horizon, horizon_now

MAX_RANGES = 10_000


def _table(given: Any) -> Any:
    return TableRef.parse(given) if isinstance(given, str) else given


def _row(given: Any) -> Any:
    """Accept hexadecimal as well as bytes: JSON has no bytes."""
    if not isinstance(given, str):
        return given
    try:
        return bytes.fromhex(given)
    except ValueError:
        raise BadValue("from_row", "is not a row in hexadecimal") from None


def _short_enough(row: bytes) -> bytes:
    if len(row) > MAX_NAME_BYTES:
        raise BadValue("from_row", f"has {len(row)} bytes; at most {MAX_NAME_BYTES} are allowed")
    return row


def _timestamp(ts: int | None) -> int | None:
    return None if ts is None else checked_timestamp(ts, "stop_at")


@dataclass(frozen=True, config=ORDER_CONFIG)
class LegacyOrder(Order):
    """Sweep one table by scanning it."""

    table: Annotated[TableRef, BeforeValidator(_table), PlainSerializer(str)]
    stop_at: Annotated[int | None, AfterValidator(_timestamp)] = None
    """A sweep timestamp given by a person. It can only lower the one that is computed."""
    from_row: Annotated[
        bytes, BeforeValidator(_row), AfterValidator(_short_enough), PlainSerializer(lambda row: row.hex())
    ] = Field(default=b"", repr=False)
    """Where to start, in the store's own order of rows."""
    ranges: int = Field(default=0, ge=0, le=MAX_RANGES)
    """The number of ranges; 0: as many as the settings say."""
    max_cells: int = Field(default=0, ge=0)
    max_seconds: float = Field(default=0, ge=0, allow_inf_nan=False)
    batch: int = Field(default=0, ge=0, le=MAX_PAGE_VERSIONS)
    """Versions per page; 0: as many as the settings say."""
    dry_run: bool = False

    def horizon(self, strategy: SweepStrategy, store: Store, settings: Settings, clock: Clock) -> Horizon:
        """Return the greatest timestamp that the table may be swept to now with this strategy. Refuse a scan that could
        judge nothing: it would count as a scan of the table."""
        found = horizon_now(strategy, store, settings, clock, dry_run=self.dry_run)
        if not found.sweep_ts:
            raise NotYet(
                f"table: nothing in {self.table} is old enough to be swept: the store knows the times of timestamps "
                f"only since its first sweep or transaction; retry {settings.retention_s} s after that (setting "
                "retention_s)",
                reason="too_recent",
            )
        return found if self.stop_at is None else found._replace(sweep_ts=min(found.sweep_ts, self.stop_at))

    def begins_at(self, store: Store) -> bytes:
        """Return where the first range starts. An existing run with the same start covers the same rows."""
        return store.scan_ranges(self.table, 1, self.from_row)[0].first if self.from_row else b""

    def scan_ranges(self, store: Store, settings: Settings) -> tuple[ScanRange, ...]:
        """Return the ranges of a run. The last one ends after the rows that exist now: otherwise a scan of a table that
        keeps growing at its end would never finish."""
        found = store.scan_ranges(self.table, self.ranges or settings.legacy_ranges, self.from_row)
        return (*found[:-1], found[-1]._replace(end=store.end_of(self.table)))


def swept_table(store: Store, table: TableRef) -> TableMetadata:
    """Return the metadata of the table. Refuse a table that is unknown or never swept."""
    found = store.tables([table]).get(table)
    if found is None or table.is_system:
        raise UnknownTable(table)
    if found.strategy is SweepStrategy.NOTHING:
        raise BadValue(
            "table",
            f"{table} is never swept, its strategy is {found.strategy}; set another strategy first",
            reason="never_swept",
        )
    return found
