"""Sweeping for multi-version key-value stores.

    import sweep_tasks

    with sweep_tasks.connect("sqlite:///shop.db", create=True) as db:
        db.tables.create("shop.orders")
        with db.transaction() as tx:
            tx.put("shop.orders", b"order-1", b"state", b"paid")

What this module exports is the public API. Other modules are private and may move.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweep_tasks.api import Database, Tables, connect
    from sweep_tasks.config import Settings
    from sweep_tasks.coordination.thresholds import TableThreshold
    from sweep_tasks.diagnosis.explanation import CellExplanation, QueueExplanation
    from sweep_tasks.diagnosis.status import Status
    from sweep_tasks.errors import (
        AlreadyExists,
        AlreadySwept,
        BadValue,
        CommitUnknown,
        LimitExceeded,
        NotFound,
        NotInitialised,
        NotYet,
        OtherSchema,
        OutcomeUnknown,
        RecordChanged,
        SnapshotSwept,
        StoreBusy,
        StoreError,
        StoreMissing,
        StoreUnavailable,
        SweepflowError,
        TransactionAborted,
        TransactionError,
        UnknownTable,
        WriteConflict,
    )
    from sweep_tasks.journal.actors import acting_for
    from sweep_tasks.model import Cell, ConflictHandling, Span, SweepStrategy, TableMetadata, TableRef
    from sweep_tasks.protection.catalog import KnownProtections, Tracker
    from sweep_tasks.protection.ledger import ProtectionMetadata
    from sweep_tasks.protection.records import Mode, Record, Target
    from sweep_tasks.store.contract import Page
    from sweep_tasks.sweep.summary import Summary
    from sweep_tasks.transactions import Snapshot, Transaction

_HOMES = {
    "sweep_tasks.api": ("Database", "Tables", "connect"),
    "sweep_tasks.config": ("Settings",),
    "sweep_tasks.coordination.thresholds": ("TableThreshold",),
    "sweep_tasks.diagnosis.explanation": ("CellExplanation", "QueueExplanation"),
    "sweep_tasks.diagnosis.status": ("Status",),
    "sweep_tasks.errors": (
        "AlreadyExists", "AlreadySwept", "BadValue", "CommitUnknown", "LimitExceeded", "NotFound", "NotInitialised",
        "NotYet", "OtherSchema", "OutcomeUnknown", "RecordChanged", "SnapshotSwept", "StoreBusy", "StoreError",
        "StoreMissing", "StoreUnavailable", "SweepflowError", "TransactionAborted", "TransactionError", "UnknownTable",
        "WriteConflict",
    ),
    "sweep_tasks.journal.actors": ("acting_for",),
    "sweep_tasks.model": ("Cell", "ConflictHandling", "Span", "SweepStrategy", "TableMetadata", "TableRef"),
    "sweep_tasks.protection.catalog": ("KnownProtections", "Tracker"),
    "sweep_tasks.protection.ledger": ("ProtectionMetadata",),
    "sweep_tasks.protection.records": ("Mode", "Record", "Target"),
    "sweep_tasks.store.contract": ("Page",),
    "sweep_tasks.sweep.summary": ("Summary",),
    "sweep_tasks.transactions": ("Snapshot", "Transaction"),
}  # fmt: skip
"""Imported on first use: a DAG file or a worker that imports one module must not load all of them."""

__all__ = [
    "AlreadyExists", "AlreadySwept", "BadValue", "Cell", "CellExplanation", "CommitUnknown", "ConflictHandling",
    "Database", "KnownProtections", "LimitExceeded", "Mode", "NotFound", "NotInitialised", "NotYet", "OtherSchema",
    "OutcomeUnknown", "Page", "ProtectionMetadata", "QueueExplanation", "Record", "RecordChanged", "Settings",
    "Snapshot", "SnapshotSwept", "Span", "Status", "StoreBusy", "StoreError", "StoreMissing", "StoreUnavailable",
    "Summary", "SweepStrategy", "SweepflowError", "TableMetadata", "TableRef", "TableThreshold", "Tables", "Target",
    "Tracker", "Transaction", "TransactionAborted", "TransactionError", "UnknownTable", "WriteConflict",
    "acting_for", "connect",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
