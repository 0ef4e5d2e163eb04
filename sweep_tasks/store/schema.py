"""The system tables that every store creates, and the serialised form of table metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sweep_tasks.model import (
    RESERVED_NAMESPACE,
    Cell,
    ConflictHandling,
    Layout,
    ScanDue,
    ScanReason,
    SweepStrategy,
    TableMetadata,
    TableRef,
    TableState,
)

# ---------------------------------------------------------------------------------------------------------------------
# System tables, which every store creates when it is initialised.
#
# Data that is changed by compare-and-set is kept in registers; data that is only put and deleted, in cells. The tables
# of the queue have AtlasDB's names.
# ---------------------------------------------------------------------------------------------------------------------

TRANSACTIONS = TableRef("", "_transactions")
TIMESTAMP = TableRef("", "_timestamp")
CLOCK_SAMPLES = TableRef("", "_punches")
LEASES = TableRef("", "_leases")
THRESHOLDS = TableRef("", "_thresholds")
PROTECTIONS = TableRef("", "_protections")
ALERTS = TableRef("", "_alerts")
LEGACY_SWEEPS = TableRef("", "_legacy_sweeps")
DELETIONS = TableRef("", "_deletions")
OBSERVATIONS = TableRef("", "_observations")
PAUSES = TableRef("", "_pauses")
JOURNAL = TableRef("", "_journal")
JOURNAL_HEAD = TableRef("", "_journal_head")

QUEUE_CELLS = TableRef(RESERVED_NAMESPACE, "sweepableCells")
QUEUE_TIMESTAMPS = TableRef(RESERVED_NAMESPACE, "sweepableTimestamps")
QUEUE_PROGRESS = TableRef(RESERVED_NAMESPACE, "sweepProgressPerShard")
NAME_TO_ID = TableRef(RESERVED_NAMESPACE, "sweepNameToId")
ID_TO_NAME = TableRef(RESERVED_NAMESPACE, "sweepIdToName")
PARKED = TableRef(RESERVED_NAMESPACE, "parked")
QUARANTINE = TableRef(RESERVED_NAMESPACE, "quarantine")

REGISTERS = TableMetadata(strategy=SweepStrategy.NOTHING, layout=Layout.REGISTERS)
CELLS = TableMetadata(strategy=SweepStrategy.NOTHING, layout=Layout.CELLS)

COORDINATION_TABLES = dict.fromkeys((TRANSACTIONS, TIMESTAMP, CLOCK_SAMPLES, LEASES, THRESHOLDS), REGISTERS)
QUEUE_TABLES = {
    **dict.fromkeys((QUEUE_PROGRESS, NAME_TO_ID, ID_TO_NAME, PROTECTIONS), REGISTERS),
    **dict.fromkeys((QUEUE_CELLS, QUEUE_TIMESTAMPS, PARKED, QUARANTINE), CELLS),
}
ALERT_TABLES = {ALERTS: REGISTERS}
LEGACY_TABLES = {LEGACY_SWEEPS: REGISTERS}
DELETION_TABLES = {DELETIONS: REGISTERS}
OBSERVATION_TABLES = {OBSERVATIONS: REGISTERS}
OPERATOR_TABLES = {PAUSES: REGISTERS, JOURNAL: CELLS}
JOURNAL_TABLES = {JOURNAL_HEAD: REGISTERS}

MARKS_MOVE_AT = 7
"""The schema step that adds no table. Since this step, the mark of a table is in its catalog row, and the row of a
dropped table stays in the catalog."""

Step = Mapping[TableRef, TableMetadata]
STEPS: Sequence[Step] = (
    COORDINATION_TABLES,
    QUEUE_TABLES,
    ALERT_TABLES,
    LEGACY_TABLES,
    DELETION_TABLES,
    OBSERVATION_TABLES,
    OPERATOR_TABLES,
    {},
    JOURNAL_TABLES,
)
"""The schema steps; step n migrates a store from version n to n + 1. New steps are only appended."""
SYSTEM_TABLES = {table: metadata for step in STEPS for table, metadata in step.items()}

ALWAYS_DURABLE = frozenset({TIMESTAMP, PROTECTIONS, PAUSES, JOURNAL_HEAD})
"""Tables whose writes are known outside the store at once: handed-out timestamps, accepted protections, pauses and
confirmed operator actions. They survive a power failure even if other commits need not
(docs/decisions/0003-durability.md)."""

_MARK = b"mark:"


def old_mark(table: TableRef) -> Cell:
    """Return the cell of a table's mark among the thresholds, where it was before it moved into the catalog."""
    return Cell(_MARK + str(table).encode(), b"v")


def marked_table(row: bytes) -> TableRef | None:
    """Return the table whose mark was stored in such a row; None for other rows."""
    return TableRef.stored(row.removeprefix(_MARK).decode()) if row.startswith(_MARK) else None


SCAN_ROWS = (b"run", b"written", b"turn")
"""The kinds of rows about the scans of a table."""


def scan_row(kind: bytes, table: TableRef) -> bytes:
    return kind + b":" + str(table).encode()


# ---------------------------------------------------------------------------------------------------------------------
# Table metadata as text, as stores keep it.
# ---------------------------------------------------------------------------------------------------------------------

_ADDED_LATER = {"revision": 0, "scan_due": None, "state": "active", "owner": None, "mark": 0, "incarnation": 1}
"""Fields that were added after the first version, with the value that a missing field has."""


def dump_metadata(metadata: TableMetadata) -> str:
    """Serialise metadata. Stores compare this text, so a field that was added later is omitted at its default."""
    plain = asdict(metadata) | {"past_strategies": sorted(metadata.past_strategies)}
    for name, default in _ADDED_LATER.items():
        if plain[name] == default:
            del plain[name]
    return json.dumps(plain, sort_keys=True, separators=(",", ":"))


def load_metadata(text: str) -> TableMetadata:
    plain: dict[str, Any] = _ADDED_LATER | json.loads(text)
    return TableMetadata(
        strategy=SweepStrategy(plain["strategy"]),
        conflicts=ConflictHandling(plain["conflicts"]),
        retention_s=plain["retention_s"],
        look_before_delete=plain["look_before_delete"],
        past_strategies=frozenset(map(SweepStrategy, plain["past_strategies"])),
        layout=Layout(plain["layout"]),
        own_threshold=plain["own_threshold"],
        revision=plain["revision"],
        scan_due=_scan_due(plain["scan_due"]),
        state=TableState(plain["state"]),
        owner=plain["owner"],
        mark=plain["mark"],
        incarnation=plain["incarnation"],
    )


def _scan_due(plain: list[Any] | None) -> ScanDue | None:
    return ScanDue(ScanReason(plain[0]), plain[1]) if plain else None
