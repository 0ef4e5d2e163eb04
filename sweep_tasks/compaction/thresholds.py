"""How much is too much: the thresholds of the settings, and what a table has of its own.

Shares are exact fractions. As a binary number 0.05 is a little more than 5 %, and one dense block of twenty would miss
it by nothing at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from sweep_tasks.config import Settings, TableThresholds
from sweep_tasks.errors import BadValue
from sweep_tasks.store.cassandra.options import PhysicalTable


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Each is reached by what is equal to it. Zero or less switches it off; without `eligible_share` all are off."""

    dense_tombstones: int = 100
    dense_share: Fraction = Fraction(1, 2)
    eligible_share: Fraction = Fraction(1, 20)
    run_warn: int = 1_000
    run_fail: int = 100_000
    overlap_share: Fraction = Fraction(1, 2)
    read_tombstones: int = 1_000

    @property
    def off(self) -> bool:
        return self.eligible_share <= 0

    @property
    def no_block_is_dense(self) -> bool:
        return self.dense_tombstones <= 0 and self.dense_share <= 0


@dataclass(frozen=True, slots=True)
class ThresholdsByTable:
    general: Thresholds
    tables: Mapping[str, Thresholds]

    def of(self, table: str | None) -> Thresholds:
        return self.general if table is None else self.tables.get(table, self.general)


def thresholds_in(settings: Settings, tables: Iterable[PhysicalTable] = ()) -> ThresholdsByTable:
    """Tables may be named as the store names them or as Cassandra does; files are of Cassandra's."""
    general = Thresholds(
        dense_tombstones=settings.compaction_dense_tombstones,
        dense_share=_exact(settings.compaction_dense_share),
        eligible_share=_exact(settings.compaction_eligible_share),
        run_warn=settings.compaction_run_warn,
        run_fail=settings.compaction_run_fail,
        overlap_share=_exact(settings.compaction_overlap_share),
        read_tombstones=settings.compaction_read_tombstones,
    )
    own = {table: replace(general, **_given(values)) for table, values in settings.compaction_tables.items()}
    by_store = {table.qualified: own[str(table.table)] for table in tables if str(table.table) in own}
    return ThresholdsByTable(general, own | by_store)


def check_tables(settings: Settings, tables: Iterable[PhysicalTable]) -> None:
    """`tables`: all that there are. A misspelled table would be compacted although it was switched off."""
    known = {name for table in tables for name in (table.qualified, str(table.table))}
    unknown = sorted(settings.compaction_tables.keys() - known)
    if unknown:
        raise BadValue(
            "setting compaction_tables",
            f"{', '.join(unknown)} {'is no table' if len(unknown) == 1 else 'are no tables'} of the store; write it as "
            "'sweepflow tables list' does, or take it out",
            reason="unknown_table",
        )


def reaches(part: int, whole: int, share: Fraction) -> bool:
    """Whether `part` is at least that share of `whole`. Nothing reaches nothing, not even of nothing."""
    wanted = share.numerator  # negative if the share is, and comparing fractions takes several times as long
    return part > 0 and wanted > 0 and part * share.denominator >= whole * wanted


def reaches_count(count: int, threshold: int) -> bool:
    return 0 < threshold <= count


def _given(values: TableThresholds) -> dict[str, Any]:
    given = {name: value for name, value in values if value is not None}
    return {name: _exact(value) if isinstance(value, Decimal) else value for name, value in given.items()}


def _exact(share: Decimal) -> Fraction:
    return Fraction(share) if share > 0 else Fraction(0)
