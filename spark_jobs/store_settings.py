"""What Spark's workers are told about the store, and what they are not."""

from __future__ import annotations

from typing import Any

from sweep_tasks.config import Settings
from sweep_tasks.store import from_anywhere

_SECRETS = {"cassandra_user", "cassandra_password", "cassandra_key_password"}
"""Workers have these from their own environment or file: what a task is given can be seen in Spark's pages and logs."""
_NAMES = {name for name in Settings.model_fields if name.startswith(("store", "sqlite_", "cassandra_"))} - _SECRETS


def store_settings(settings: Settings) -> dict[str, Any]:
    """The settings that open the store. Workers of a cluster each work in a folder of their own, so its place is given
    in full."""
    return settings.model_dump(include=_NAMES) | {"store": from_anywhere(settings.store)}
