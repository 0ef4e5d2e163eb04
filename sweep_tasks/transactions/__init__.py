"""Snapshot transactions for applications: read, write, commit, abort."""

from sweep_tasks.transactions.manager import TransactionManager
from sweep_tasks.transactions.snapshot import Snapshot
from sweep_tasks.transactions.transaction import Transaction

__all__ = ["Snapshot", "Transaction", "TransactionManager"]
