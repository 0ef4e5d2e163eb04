"""Snapshot transactions for applications: read, write, commit, abort."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweep_tasks.transactions.manager import TransactionManager
    from sweep_tasks.transactions.snapshot import Snapshot
    from sweep_tasks.transactions.transaction import Transaction

__all__ = ["Snapshot", "Transaction", "TransactionManager"]

_HOMES = {"Snapshot": "snapshot", "Transaction": "transaction", "TransactionManager": "manager"}
"""Imported on first use: whatever reads the outcome of a commit imports this package."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
