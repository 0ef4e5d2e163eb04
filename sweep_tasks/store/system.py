"""The tables of the system itself, which every store creates when it is initialised.

All of these are registers: they are changed by compare-and-set, and on Cassandra a table changed that way must not
also be written at store timestamps.
"""

from __future__ import annotations

from sweep_tasks.model import Layout, SweepStrategy, TableMetadata, TableRef

TRANSACTIONS = TableRef("", "_transactions")
TIMESTAMP = TableRef("", "_timestamp")
PUNCHES = TableRef("", "_punches")
LEASES = TableRef("", "_leases")
THRESHOLDS = TableRef("", "_thresholds")

REGISTERS = TableMetadata(strategy=SweepStrategy.NOTHING, layout=Layout.REGISTERS)

SYSTEM_TABLES = dict.fromkeys((TRANSACTIONS, TIMESTAMP, PUNCHES, LEASES, THRESHOLDS), REGISTERS)
