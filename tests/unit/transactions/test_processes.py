"""Conflicts and isolation with real processes on one SQLite file."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.errors import WriteConflict
from sweep_tasks.model import Cell, TableMetadata, TableRef
from sweep_tasks.store import Store
from sweep_tasks.transactions import Transaction, TransactionManager
from tests.support.processes import in_processes

ACCOUNTS = TableRef.parse("bank.accounts")
COLUMN = b"balance"
PEOPLE = [b"p%d" % n for n in range(6)]
TOTAL = 100 * len(PEOPLE)
PATIENT = Settings(transaction_attempts=1_000)


def transfer(number: int, url: str, times: int) -> int:
    """Transfer money between accounts. Return how often a transfer was repeated because of a conflict."""
    chance = random.Random(number)
    tries = 0

    def once(tx: Transaction) -> None:
        nonlocal tries
        tries += 1
        giver, taker = chance.sample(PEOPLE, 2)
        balances = tx.get_many(ACCOUNTS, [Cell(giver, COLUMN), Cell(taker, COLUMN)])
        amount = chance.randint(1, 10)
        tx.put(ACCOUNTS, giver, COLUMN, b"%d" % (int(balances[Cell(giver, COLUMN)]) - amount))
        tx.put(ACCOUNTS, taker, COLUMN, b"%d" % (int(balances[Cell(taker, COLUMN)]) + amount))

    with open_store(url, PATIENT) as store, TransactionManager(store, PATIENT) as manager:
        for _ in range(times):
            manager.run(once)
    return tries - times


def audit(_: int, url: str, times: int) -> list[int]:
    """The total, as transactions and read-only ones see it while money moves."""
    totals = []
    with open_store(url, PATIENT) as store, TransactionManager(store, PATIENT) as manager:
        for step in range(times):
            with manager.transaction(read_only=step % 2 == 0) as tx:
                totals.append(sum(int(value) for _, value in tx.scan(ACCOUNTS)))
    return totals


def transfer_or_audit(number: int, url: str, times: int) -> list[int] | int:
    return audit(number, url, times) if number == 0 else transfer(number, url, times)


@pytest.fixture
def bank(sqlite: Store) -> TransactionManager:
    sqlite.create_table(ACCOUNTS, TableMetadata())
    manager = TransactionManager(sqlite, PATIENT)
    with manager.transaction() as tx:
        tx.put_many(ACCOUNTS, {Cell(person, COLUMN): b"100" for person in PEOPLE})
    return manager


def test_seven_writers_neither_create_nor_lose_money_and_every_audit_adds_up(
    bank: TransactionManager, sqlite_url: str
) -> None:
    totals, *conflicts = in_processes(8, transfer_or_audit, sqlite_url, 30)
    assert totals == [TOTAL] * 30
    assert sum(conflicts) > 0, "they never met, so nothing was tested"  # type: ignore[arg-type]
    assert sum(int(value) for _, value in bank.transaction().scan(ACCOUNTS)) == TOTAL
    assert bank.leases.open()[1:] == [], "only our own transaction is still open"


DIES_WHILE_COMMITTING = """
import os, signal, sys
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.store.faults import FaultyStore
from sweep_tasks.transactions import TransactionManager

settings = Settings(lease_ttl_s=float(sys.argv[2]))
inner = open_store(sys.argv[1], settings)
store = FaultyStore(inner)
tx = TransactionManager(store, settings).transaction()
tx.put("bank.accounts", b"p0", b"balance", b"0")
store.before = lambda call: os.kill(os.getpid(), signal.SIGKILL) if call.name == "put_if_absent" else None
tx.commit()
"""


def die_while_committing(url: str, lease_ttl_s: float) -> None:
    ended = subprocess.run([sys.executable, "-c", DIES_WHILE_COMMITTING, url, str(lease_ttl_s)], check=False)
    assert ended.returncode == -signal.SIGKILL


def test_a_writer_killed_between_its_values_and_its_commit_is_rolled_back_by_the_next_reader(
    bank: TransactionManager, sqlite_url: str, sqlite: Store
) -> None:
    die_while_committing(sqlite_url, lease_ttl_s=1.0)
    assert len(sqlite.timestamps(ACCOUNTS, [Cell(b"p0", COLUMN)])[Cell(b"p0", COLUMN)]) == 2, "its value is there"
    with bank.transaction() as tx:
        assert tx.get(ACCOUNTS, b"p0", COLUMN) == b"100", "the reader waited for the lease and continued"
        tx.put(ACCOUNTS, b"p0", COLUMN, b"99")
    assert bank.transaction().get(ACCOUNTS, b"p0", COLUMN) == b"99"


def test_an_idle_transaction_keeps_its_lease_by_itself(sqlite: Store) -> None:
    sqlite.create_table(ACCOUNTS, TableMetadata())
    with TransactionManager(sqlite, Settings(lease_ttl_s=0.6)) as manager:
        tx = manager.transaction()
        tx.put(ACCOUNTS, b"p0", COLUMN, b"1")
        time.sleep(1.5)
        assert len(manager.leases.open()) == 1
        assert tx.commit()
        assert manager.leases.open() == []


def test_a_manager_survives_a_fork(bank: TransactionManager) -> None:
    child = os.fork()
    if child == 0:
        with bank.transaction() as tx:
            tx.put(ACCOUNTS, b"p0", COLUMN, b"1")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert bank.transaction().get(ACCOUNTS, b"p0", COLUMN) == b"1"


def hold_and_commit(number: int, url: str) -> bool:
    """Both write the same cell, each in a transaction that began before the other's ended, then commit."""
    with open_store(url, PATIENT) as store, TransactionManager(store, PATIENT) as manager:
        tx = manager.transaction()
        tx.put(ACCOUNTS, b"p0", COLUMN, b"%d" % (1_000 + number))
        folder = Path(url.removeprefix("sqlite:///")).parent
        (folder / f"{number}.ready").touch()
        while len(list(folder.glob("*.ready"))) < 2:  # the lease of the other one may be removed before it is seen
            time.sleep(0.001)
        try:
            tx.commit()
        except WriteConflict:
            return False
        return True


def test_of_two_processes_that_write_one_cell_at_once_one_loses(bank: TransactionManager, sqlite_url: str) -> None:
    committed = in_processes(2, hold_and_commit, sqlite_url)
    value = bank.transaction().get(ACCOUNTS, b"p0", COLUMN)
    assert sum(committed) == 1
    assert value == b"%d" % (1_000 + committed.index(True))
