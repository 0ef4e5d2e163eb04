"""Names that an operator meets in the Airflow UI."""

from __future__ import annotations

TARGETED_SWEEP = "targeted_sweep"
PROTECTED_TIMESTAMPS = "protected_timestamps"
SNAPSHOT_EXPORT = "snapshot_export"
LEGACY_SWEEP = "legacy_sweep"
COMPACTION = "compaction"
SCHEDULED = (TARGETED_SWEEP, PROTECTED_TIMESTAMPS, LEGACY_SWEEP, COMPACTION)
"""What runs by itself, once it is switched on."""
TOMBSTONES_ASSET = "sweepflow_tombstones"
"""Changes when a run of the sweep has written many."""
SPARK_CONNECTION = "spark_default"
AIRFLOW_CONNECTION = "sweepflow_airflow"
