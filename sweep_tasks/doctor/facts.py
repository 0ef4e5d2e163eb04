"""What was found in a store: plain values, as a document that a person or a program reads."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from sweep_tasks.legacy.due import Undone
from sweep_tasks.model import ScanDue, SweepStrategy, TableRef
from sweep_tasks.sweep.pauses import EVERYTHING


class Sample(NamedTuple):
    """Part of a table, read as a scan would read it, and what that says about all of it."""

    cells: int
    versions: int
    sentinels: int
    delete_markers: int
    """Of what was read."""
    goes_now: int
    """What a scan would delete of it now."""
    goes_later: int
    """And once retention has passed, and open transactions have ended."""
    share: float
    """How much of the table was read, about; 1 is all of it."""
    at_least: bool
    """The table may be larger than that says."""
    seconds_per_version: float
    """Read and judged, by one process."""

    @property
    def versions_per_cell(self) -> float:
        return self.versions / self.cells if self.cells else 0.0

    def of_all(self, count: int) -> int:
        """What was counted in the sample, for the whole table."""
        return round(count / self.share) if self.share else count

    @property
    def scan_seconds(self) -> float:
        """How long one process would read and judge all of the table."""
        return self.of_all(self.versions) * self.seconds_per_version


@dataclass(frozen=True, slots=True)
class TableFacts:
    table: TableRef
    strategy: SweepStrategy
    retention_s: int | None = None
    scan_due: ScanDue | None = None
    scan_lacks: Undone | None = None
    """Why a scan now would not do what is due."""
    reach: int = 0
    """How far it may be swept now."""
    last_scan_ms: int | None = None
    scan_running: str | None = None
    """Who is at work on a scan."""
    not_by_turns: str | None = None
    """Why it is never scanned unless somebody asks for it; None if it is."""
    sample: Sample | None = None
    """None where there was no time left to take one."""


class PauseFacts(NamedTuple):
    """Somebody wants nothing to be swept, of a table or at all."""

    what: str
    by: str
    reason: str
    since_ms: int


class ShardFacts(NamedTuple):
    strategy: SweepStrategy
    shard: int
    progress: int
    lag_s: int | None
    objective_s: int


class OpenTransaction(NamedTuple):
    """The oldest one: no sweep goes beyond it."""

    lease: int
    owner: str
    age_s: int | None


class OldestProtection(NamedTuple):
    id: str
    ts: int
    owner: str
    age_s: int | None


class Counted(NamedTuple):
    number: int
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    store: str
    timestamp: int
    clock_known: bool
    """Whether the store knows which timestamp an hour ago was."""
    tables: tuple[TableFacts, ...]
    shards: tuple[ShardFacts, ...]
    queued: Counted
    parked: dict[str, int]
    """By reason."""
    parked_at_least: bool
    quarantined: Counted
    open_transactions: int
    oldest_transaction: OpenTransaction | None
    protections: int
    oldest_protection: OldestProtection | None
    protection_max_age_s: int
    bytes_used: int | None
    bytes_free: int | None
    tombstones: str
    """What is known about them."""
    tombstones_written: int | None = None
    """By sweeps, as they have counted; None where deleting leaves none."""
    pauses: tuple[PauseFacts, ...] = ()
    """Everything first, if it is paused."""

    def is_paused(self, what: str) -> bool:
        """A table by its name, or everything."""
        return any(pause.what in (what, EVERYTHING) for pause in self.pauses)

    def estimated(self) -> dict[str, float]:
        """What a scan of all tables that were looked into would find."""
        samples = [each.sample for each in self.tables if each.sample and each.strategy is not SweepStrategy.NOTHING]
        return {
            "versions": sum(each.of_all(each.versions) for each in samples),
            "goes_now": sum(each.of_all(each.goes_now) for each in samples),
            "goes_later": sum(each.of_all(each.goes_later) for each in samples),
            "scan_seconds": round(sum(each.scan_seconds for each in samples), 1),
        }

    def document(self) -> dict[str, Any]:
        plain = asdict(self)
        plain["tables"] = [_table_document(each) for each in self.tables]
        plain["shards"] = [each._asdict() for each in self.shards]
        plain["pauses"] = [each._asdict() for each in self.pauses]
        plain["estimated"] = self.estimated()
        for name in ("queued", "quarantined", "oldest_transaction", "oldest_protection"):
            value = getattr(self, name)
            plain[name] = value._asdict() if value else None
        return plain


def _table_document(each: TableFacts) -> dict[str, Any]:
    sample = each.sample
    plain: dict[str, Any] = asdict(each) | {
        "table": str(each.table),
        "scan_due": each.scan_due._asdict() if each.scan_due else None,
        "sample": sample._asdict() if sample else None,
    }
    if sample:
        plain["estimated"] = {
            "versions": sample.of_all(sample.versions),
            "cells": sample.of_all(sample.cells),
            "versions_per_cell": round(sample.versions_per_cell, 2),
            "goes_now": sample.of_all(sample.goes_now),
            "goes_later": sample.of_all(sample.goes_later),
            "scan_seconds": round(sample.scan_seconds, 1),
        }
    return plain
