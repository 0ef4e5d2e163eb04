"""The tables of the system itself, which every store creates when it is initialised.

What is changed by compare-and-set is a register; what is only put and deleted is a cell. The queue's tables carry
AtlasDB's names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweep_tasks.model import RESERVED_NAMESPACE, Layout, SweepStrategy, TableMetadata, TableRef

TRANSACTIONS = TableRef("", "_transactions")
TIMESTAMP = TableRef("", "_timestamp")
PUNCHES = TableRef("", "_punches")
LEASES = TableRef("", "_leases")
THRESHOLDS = TableRef("", "_thresholds")
PROTECTIONS = TableRef("", "_protections")
ALERTS = TableRef("", "_alerts")
LEGACY_SWEEPS = TableRef("", "_legacy_sweeps")
DELETIONS = TableRef("", "_deletions")
OBSERVATIONS = TableRef("", "_observations")
PAUSES = TableRef("", "_pauses")
JOURNAL = TableRef("", "_journal")

QUEUE_CELLS = TableRef(RESERVED_NAMESPACE, "sweepableCells")
QUEUE_TIMESTAMPS = TableRef(RESERVED_NAMESPACE, "sweepableTimestamps")
QUEUE_PROGRESS = TableRef(RESERVED_NAMESPACE, "sweepProgressPerShard")
NAME_TO_ID = TableRef(RESERVED_NAMESPACE, "sweepNameToId")
ID_TO_NAME = TableRef(RESERVED_NAMESPACE, "sweepIdToName")
PARKED = TableRef(RESERVED_NAMESPACE, "parked")
QUARANTINE = TableRef(RESERVED_NAMESPACE, "quarantine")

REGISTERS = TableMetadata(strategy=SweepStrategy.NOTHING, layout=Layout.REGISTERS)
CELLS = TableMetadata(strategy=SweepStrategy.NOTHING, layout=Layout.CELLS)

COORDINATION_TABLES = dict.fromkeys((TRANSACTIONS, TIMESTAMP, PUNCHES, LEASES, THRESHOLDS), REGISTERS)
QUEUE_TABLES = {
    **dict.fromkeys((QUEUE_PROGRESS, NAME_TO_ID, ID_TO_NAME, PROTECTIONS), REGISTERS),
    **dict.fromkeys((QUEUE_CELLS, QUEUE_TIMESTAMPS, PARKED, QUARANTINE), CELLS),
}
ALERT_TABLES = {ALERTS: REGISTERS}
LEGACY_TABLES = {LEGACY_SWEEPS: REGISTERS}
DELETION_TABLES = {DELETIONS: REGISTERS}
OBSERVATION_TABLES = {OBSERVATIONS: REGISTERS}
OPERATOR_TABLES = {PAUSES: REGISTERS, JOURNAL: CELLS}

Step = Mapping[TableRef, TableMetadata]
STEPS: Sequence[Step] = (
    COORDINATION_TABLES,
    QUEUE_TABLES,
    ALERT_TABLES,
    LEGACY_TABLES,
    DELETION_TABLES,
    OBSERVATION_TABLES,
    OPERATOR_TABLES,
)
"""Only ever added to. Step n takes a store from version n to n + 1."""
SYSTEM_TABLES = {table: metadata for step in STEPS for table, metadata in step.items()}

SCAN_ROWS = (b"run", b"written", b"turn")
"""What is kept of a table's scans by its name."""


def scan_row(kind: bytes, table: TableRef) -> bytes:
    return kind + b":" + str(table).encode()
