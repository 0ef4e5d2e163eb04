"""A process that has opened a SQLite store forks: acknowledged writes stay, and no timestamp is issued twice.

SQLite's record of its locks is copied by a fork, the locks are not. So what matters is who closes or dies first: with a
wrong record the closing process removes the log that others write to.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.encoding import var_long
from sweep_tasks.errors import StoreError
from sweep_tasks.model import Cell, TableMetadata, TableRef
from sweep_tasks.store import Store, initialise_store
from sweep_tasks.store.schema import CLOCK_SAMPLES, LEASES
from sweep_tasks.store.sqlite import SQLiteStore, connection
from sweep_tasks.transactions import TransactionManager
from tests.support.forks import Family, end_if_it_hangs, fork, in_child

TABLE = TableRef.parse("app.items")
COLUMN = b"c"
BY_THREAD = Cell(b"thread", b"v")
EACH = 2
"""Transactions of a process in each phase."""


def open_quickly(url: str) -> SQLiteStore:
    """Processes end here, the machine does not: nothing has to be synced."""
    return SQLiteStore(url.removeprefix("sqlite:///"), durability="off")


class Opened(NamedTuple):
    url: str
    store: Store
    manager: TransactionManager
    family: Family


def commit(opened: Opened, who: str, phase: int) -> None:
    """Some transactions, each reported once it is acknowledged."""
    for number in range(EACH):
        row = f"{who}-{phase}-{number}"
        with opened.manager.transaction() as tx:
            tx.put(TABLE, row.encode(), COLUMN, row.encode())
        fresh = opened.manager.timestamps.fresh()
        opened.family.tell(phase=phase, who=who, row=row, ts=[tx.start, tx.commit_ts, fresh])


def work_in_child(opened: Opened, who: str, own: bool) -> None:
    """Before and after the end of the first process."""
    if own:
        store = open_quickly(opened.url)
        opened = opened._replace(store=store, manager=TransactionManager(store))
    commit(opened, who, 1)
    opened.family.tell(ready=who)
    opened.family.wait_for_release()
    commit(opened, who, 3)


# --- ways to fork -----------------------------------------------------------------------------------------------


def fork_plainly(opened: Opened, own: bool) -> None:
    fork(lambda: work_in_child(opened, "child", own))


def fork_several(opened: Opened, own: bool) -> None:
    """As a server does that loads the application before it forks its workers."""
    for number in range(3):
        fork(partial(work_in_child, opened, f"worker {number}", own))


def fork_a_daemon(opened: Opened, own: bool) -> None:
    between = fork(lambda: fork(lambda: work_in_child(opened, "daemon", own)))
    assert os.waitpid(between, 0)[1] == 0


def fork_a_pool(opened: Opened, own: bool) -> None:
    global _for_the_pool
    _for_the_pool = opened
    pool = multiprocessing.get_context("fork").Pool(2)
    for number in range(2):
        pool.apply_async(_work_in_pool, (f"pool {number}", own))
    _pools.append(pool)


_for_the_pool: Opened
_pools: list[Any] = []


def _work_in_pool(who: str, own: bool) -> None:
    end_if_it_hangs()
    work_in_child(_for_the_pool, who, own)


def fork_while_a_thread_writes(opened: Opened, own: bool) -> None:
    """The thread is inside its transaction in the store when the fork begins."""
    inside, forking = threading.Event(), threading.Event()

    def change(_: bytes | None) -> bytes:
        inside.set()
        assert forking.wait(30)
        return b"written"

    os.register_at_fork(before=forking.set)
    thread = threading.Thread(target=opened.store.update, args=(CLOCK_SAMPLES, BY_THREAD, change))
    thread.start()
    inside.wait()
    fork(lambda: work_in_child(opened, "child", own))
    thread.join()
    assert opened.store.read(CLOCK_SAMPLES, [BY_THREAD]) == {BY_THREAD: b"written"}


def fork_while_a_thread_has_a_transaction(opened: Opened, own: bool) -> None:
    """An application's transaction, open over the fork."""
    begun, forked = threading.Event(), threading.Event()

    def work() -> None:
        with opened.manager.transaction() as tx:
            tx.put(TABLE, b"thread", COLUMN, b"thread")
            begun.set()
            forked.wait()
        opened.family.tell(phase=1, who="thread", row="thread", ts=[tx.start, tx.commit_ts])

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    fork(lambda: work_in_child(opened, "child", own))
    forked.set()
    thread.join()


CHILDREN: dict[Callable[[Opened, bool], None], int] = {
    fork_plainly: 1,
    fork_several: 3,
    fork_a_daemon: 1,
    fork_a_pool: 2,
    fork_while_a_thread_writes: 1,
    fork_while_a_thread_has_a_transaction: 1,
}


# --- which side continues first ------------------------------------------------------------------------------------


def close_first(family: Family) -> None:
    family.release_first()
    assert family.hear() == {"closed": True}


def end_first(family: Family) -> None:
    os.kill(family.first, signal.SIGUSR1)
    family.wait_for_first()


def kill_first(family: Family) -> None:
    os.kill(family.first, signal.SIGKILL)
    family.wait_for_first()


@pytest.mark.parametrize("leave", [close_first, end_first, kill_first])
@pytest.mark.parametrize("own", [False, True], ids=["inherited store", "own store"])
@pytest.mark.parametrize("forking", CHILDREN)
def test_acknowledged_writes_stay_and_no_timestamp_is_issued_twice(
    sqlite_url: str,
    forking: Callable[[Opened, bool], None],
    own: bool,
    leave: Callable[[Family], None],
) -> None:
    with open_quickly(sqlite_url) as store:
        store.create_table(TABLE, TableMetadata())

    def first(family: Family) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
        store = open_quickly(sqlite_url)
        opened = Opened(sqlite_url, store, TransactionManager(store), family)
        commit(opened, "first", 0)
        forking(opened, own)
        family.tell(ready="first")
        family.wait_for_leave()
        opened.manager.close()
        store.close()
        family.tell(closed=True)
        family.wait_for_leave()

    output = []
    with Family().started(first) as family:
        ready = 0
        while ready < CHILDREN[forking] + 1:
            output.append(family.hear())
            ready += "ready" in output[-1]
        leave(family)
        with open_quickly(sqlite_url) as store:
            outside = Outside(output)
            commit(Opened(sqlite_url, store, TransactionManager(store), outside), "outside", 2)
        family.release(CHILDREN[forking])
        if leave is close_first:
            family.release_first()
        output += family.hear_all()

    reported = [each for each in output if "row" in each]
    assert {each["who"] for each in reported if each["phase"] == 3} == {
        each["who"] for each in reported if each["phase"] == 1 and each["who"] != "thread"
    }
    check_all_are_there(sqlite_url, [each["row"] for each in reported])
    check_order(reported)


class Outside(Family):
    """A process that is no relative: the test itself."""

    def __init__(self, output: list[Any]) -> None:
        self._said = output

    def tell(self, **document: Any) -> None:
        self._said.append(document)


def check_all_are_there(url: str, rows: list[str]) -> None:
    with open_quickly(url) as store, TransactionManager(store).transaction(read_only=True) as tx:
        found = dict(tx.scan(TABLE))
    assert found == {Cell(row.encode(), COLUMN): row.encode() for row in rows}
    raw = sqlite3.connect(url.removeprefix("sqlite:///"))
    assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    raw.close()


def check_order(reported: list[Any]) -> None:
    """Of each process they rise, and what was reported before something else began is below all of it."""
    everything = [ts for each in reported for ts in each["ts"]]
    assert len(set(everything)) == len(everything)
    for who in {each["who"] for each in reported}:
        own = [ts for each in reported if each["who"] == who for ts in each["ts"]]
        assert own == sorted(own)
    phases = [[ts for each in reported if each["phase"] == phase for ts in each["ts"]] for phase in range(4)]
    assert all(max(earlier) < min(later) for earlier, later in pairwise(phases))


# --- what a fork may not do -------------------------------------------------------------------------------------


def test_a_child_that_was_forked_inside_a_store_call_is_refused_that_file_and_the_parent_is_not_disturbed(
    sqlite_url: str, tmp_path: Path
) -> None:
    other = f"sqlite:///{tmp_path / 'other.db'}"
    initialise_store(other, Settings())

    def first(family: Family) -> None:
        store = open_quickly(sqlite_url)
        uses: list[Callable[[], object]] = [
            lambda: store.update(
                CLOCK_SAMPLES, BY_THREAD, lambda _: b"by the child" if os.fork() == 0 else b"by the parent"
            ),
            lambda: store.read(CLOCK_SAMPLES, [BY_THREAD]),
            lambda: open_quickly(sqlite_url),
            lambda: open_quickly(other),
        ]
        family.tell(refused=[reason_of(use) for use in uses])

    with Family().started(first) as family:
        shown = [each["refused"] for each in family.hear_all()]
    assert sorted(shown, key=str) == [["forked_while_in_use"] * 3 + [None], [None] * 4]
    with open_quickly(sqlite_url) as store:
        assert store.read(CLOCK_SAMPLES, [BY_THREAD]) == {BY_THREAD: b"by the parent"}


def reason_of(use: Callable[[], object]) -> str | None:
    try:
        use()
    except StoreError as error:
        return error.reason
    return None


def test_a_thread_that_does_not_leave_its_store_call_holds_a_fork_up_for_a_while_and_costs_the_child_that_file(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be waiting for the very thread that forks."""
    monkeypatch.setattr(connection._gate, "patience_s", 0.1)

    def first(family: Family) -> None:
        store = SQLiteStore(sqlite_url.removeprefix("sqlite:///"), busy_timeout_s=0.1)
        inside, forked = threading.Event(), threading.Event()

        def change(_: bytes | None) -> bytes:
            inside.set()
            forked.wait()
            return b"written"

        thread = threading.Thread(target=store.update, args=(CLOCK_SAMPLES, BY_THREAD, change))
        thread.start()
        inside.wait()
        fork(lambda: family.tell(child=reason_of(lambda: store.read(CLOCK_SAMPLES, [BY_THREAD]))))
        forked.set()
        thread.join()
        family.tell(parent=reason_of(lambda: store.read(CLOCK_SAMPLES, [BY_THREAD])))

    with Family().started(first) as family:
        shown = {who: reason for each in family.hear_all() for who, reason in each.items()}
    assert shown == {"child": "forked_while_in_use", "parent": None}
    with open_quickly(sqlite_url) as store:
        assert store.read(CLOCK_SAMPLES, [BY_THREAD]) == {BY_THREAD: b"written"}


def test_a_fork_does_not_wait_for_a_thread_that_waits_for_the_write_lock(sqlite_url: str) -> None:
    """Another process has the lock, and releases it only when the child has reported that it runs."""
    hog = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)

    def first(family: Family) -> None:
        store = open_quickly(sqlite_url)
        store.read(CLOCK_SAMPLES, [BY_THREAD])
        family.tell(opened=True)
        family.wait_for_release()
        thread = threading.Thread(target=store.update, args=(CLOCK_SAMPLES, BY_THREAD, lambda _: b"late"))
        thread.start()
        fork(lambda: family.tell(forked=True))
        thread.join()
        family.tell(written=store.read(CLOCK_SAMPLES, [BY_THREAD]) == {BY_THREAD: b"late"})

    with Family().started(first) as family:
        assert family.hear() == {"opened": True}
        hog.execute("BEGIN IMMEDIATE")
        family.release(1)
        assert family.hear(within_s=10) == {"forked": True}
        hog.execute("ROLLBACK")
        hog.close()
        assert family.hear() == {"written": True}


def test_connections_of_threads_that_have_ended_do_not_pile_up(sqlite: SQLiteStore) -> None:
    for _ in range(20):
        thread = threading.Thread(target=sqlite.read, args=(LEASES, [BY_THREAD]))
        thread.start()
        thread.join()
    assert open_connections(sqlite) < 5


def test_a_fork_closes_all_connections_and_both_sides_open_new_ones(sqlite: SQLiteStore) -> None:
    sqlite.update(CLOCK_SAMPLES, BY_THREAD, lambda _: var_long(1))
    assert in_child(lambda: open_connections(sqlite)) == 0
    assert open_connections(sqlite) == 0
    assert sqlite.read(CLOCK_SAMPLES, [BY_THREAD]) == {BY_THREAD: var_long(1)}
    assert open_connections(sqlite) == 1


def open_connections(store: SQLiteStore) -> int:
    return sum(os.path.realpath(each) == str(store.connections.path) for each in Path("/proc/self/fd").iterdir())
