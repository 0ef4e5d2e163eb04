"""Names that an operator meets in the Airflow UI."""

from __future__ import annotations

TARGETED_SWEEP = "targeted_sweep"
PROTECTED_TIMESTAMPS = "protected_timestamps"
SNAPSHOT_EXPORT = "snapshot_export"
SCHEDULED = (TARGETED_SWEEP, PROTECTED_TIMESTAMPS)
"""What runs by itself, once it is switched on."""
SPARK_CONNECTION = "spark_default"
AIRFLOW_CONNECTION = "sweepflow_airflow"
