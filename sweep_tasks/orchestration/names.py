"""Names that an operator meets in the Airflow UI."""

from __future__ import annotations

TARGETED_SWEEP = "targeted_sweep"
SPARK_CONNECTION = "spark_default"
AIRFLOW_CONNECTION = "sweepflow_airflow"
