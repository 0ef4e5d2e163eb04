"""A process that has opened a SQLite store forks: acknowledged writes stay, and no timestamp is issued twice.

SQLite's record of its locks is copied by a fork, the locks are not. So what matters is who closes or dies first: with a
wrong record the closing process removes the log that others write to.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from sweep_tasks.model import Cell, TableMetadata, TableRef
from sweep_tasks.store import Store
from sweep_tasks.store.schema import CLOCK_SAMPLES
from sweep_tasks.transactions import TransactionManager
from tests.support.forks import Family, end_if_it_hangs, fork
from tests.unit.store.forking import BY_THREAD, call_when_shut, open_quickly

TABLE = TableRef.parse("app.items")
COLUMN = b"c"
EACH = 2
"""Transactions of a process in each phase."""


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


def fork_while_a_thread_drops_a_store(opened: Opened, own: bool) -> None:
    """Not closed: its finaliser has to wait for the fork, but nothing refers to the store any more."""
    have, drop, dropped = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        store = open_quickly(opened.url)
        store.read(CLOCK_SAMPLES, [BY_THREAD])
        watched.append(weakref.ref(store.connections, lambda _: dropped.set()))
        have.set()
        assert drop.wait(30)
        del store

    def drop_and_wait() -> None:
        drop.set()
        assert dropped.wait(30)

    watched: list[object] = []
    thread = threading.Thread(target=work)
    thread.start()
    have.wait()
    call_when_shut(drop_and_wait)
    fork(lambda: work_in_child(opened, "child", own))
    thread.join()


def fork_while_a_thread_opens_a_store(opened: Opened, own: bool) -> None:
    """A thread that was not there when the others were stopped."""
    thread = threading.Thread(target=lambda: open_quickly(opened.url).read(CLOCK_SAMPLES, [BY_THREAD]))
    call_when_shut(thread.start)
    fork(lambda: work_in_child(opened, "child", own))
    thread.join()


CHILDREN: dict[Callable[[Opened, bool], None], int] = {
    fork_plainly: 1,
    fork_several: 3,
    fork_a_daemon: 1,
    fork_a_pool: 2,
    fork_while_a_thread_writes: 1,
    fork_while_a_thread_has_a_transaction: 1,
    fork_while_a_thread_drops_a_store: 1,
    fork_while_a_thread_opens_a_store: 1,
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


def program_that_forks_and_ends(url: str) -> None:
    """Run in an interpreter of its own: parent and child end as programs do, and their interpreters finalise what is
    left. The child continues when its parent has ended."""
    store = open_quickly(url)
    opened = Opened(url, store, TransactionManager(store, renew_leases=False), Printing())
    commit(opened, "first", 0)
    ended, ending = os.pipe()
    if os.fork() != 0:
        commit(opened, "first", 1)
        return
    end_if_it_hangs()
    os.close(ending)
    os.read(ended, 1)
    opened.family.tell(ready="child")
    sys.stdin.readline()
    commit(opened, "child", 3)


class Printing(Family):
    def __init__(self) -> None:
        self._input = sys.stdout.fileno()


def test_a_program_that_forks_and_ends_normally_before_its_child_loses_nothing(sqlite_url: str) -> None:
    with open_quickly(sqlite_url) as store:
        store.create_table(TABLE, TableMetadata())
    program = f"from {__name__} import *; program_that_forks_and_ends({sqlite_url!r})"
    said: list[Any] = []
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin
        assert running.stdout
        for line in running.stdout:
            said.append(json.loads(line))
            if "ready" in said[-1]:
                assert running.wait() == 0
                with open_quickly(sqlite_url) as store:
                    commit(Opened(sqlite_url, store, TransactionManager(store), Outside(said)), "outside", 2)
                running.stdin.write(b"\n")
                running.stdin.flush()
    reported = [each for each in said if "row" in each]
    assert [each["phase"] for each in reported] == sorted(EACH * [0, 1, 2, 3])
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
    """Check that the timestamps of each process rise, and that those of a phase are below those of the next one."""
    everything = [ts for each in reported for ts in each["ts"]]
    assert len(set(everything)) == len(everything)
    for who in {each["who"] for each in reported}:
        own = [ts for each in reported if each["who"] == who for ts in each["ts"]]
        assert own == sorted(own)
    phases = [[ts for each in reported if each["phase"] == phase for ts in each["ts"]] for phase in range(4)]
    assert all(max(earlier) < min(later) for earlier, later in pairwise(phases))
