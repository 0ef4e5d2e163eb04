"""The context that Airflow passes to a task."""

from __future__ import annotations

from types import SimpleNamespace

A_RUN = SimpleNamespace(triggering_user_name=None, note=None)
"""The context of a run that the scheduler started."""
