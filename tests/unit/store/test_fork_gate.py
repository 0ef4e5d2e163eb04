"""What a fork refuses and waits for: threads that use SQLite at that moment, and signals that interrupt the wait."""

from __future__ import annotations

import gc
import os
import queue
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.encoding import var_long
from sweep_tasks.errors import StoreError
from sweep_tasks.store import initialise_store
from sweep_tasks.store.schema import CLOCK_SAMPLES, LEASES
from sweep_tasks.store.sqlite import SQLiteStore, connection, forks
from sweep_tasks.store.sqlite.forks import Gate
from tests.support.forks import Family, end_if_it_hangs, fork, in_child
from tests.unit.store.forking import BY_THREAD, call_while_shutting, open_quickly

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


class Held(sqlite3.Connection):
    """A connection that is opened or closed for as long as a test needs."""

    during = ""
    inside, forked = threading.Event(), threading.Event()

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if statement.startswith("PRAGMA cache_size"):
            super().execute("SELECT * FROM sqlite_master").fetchall()
            self._wait_in("open")
        return super().execute(statement, *values)

    def close(self) -> None:
        self._wait_in("close")
        super().close()

    def _wait_in(self, what: str) -> None:
        if self.during == what and threading.current_thread() is not threading.main_thread():
            self.inside.set()
            assert self.forked.wait(30)


@pytest.mark.parametrize("during", ["open", "close"])
def test_a_thread_that_is_only_opening_or_closing_a_connection_costs_the_child_that_file_too(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    monkeypatch.setattr(connection._gate, "patience_s", 0.0)
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Held))

    def first(family: Family) -> None:
        def work() -> None:
            store = SQLiteStore(sqlite_url.removeprefix("sqlite:///"), busy_timeout_s=0)
            store.read(CLOCK_SAMPLES, [BY_THREAD])
            store.close()

        Held.during = during
        thread = threading.Thread(target=work)
        thread.start()
        Held.inside.wait()
        fork(lambda: family.tell(child=reason_of(lambda: open_quickly(sqlite_url))))
        Held.forked.set()
        thread.join()
        family.tell(parent=reason_of(lambda: open_quickly(sqlite_url)))

    with Family().started(first) as family:
        reported = {who: reason for each in family.hear_all() for who, reason in each.items()}
    assert reported == {"child": "forked_while_in_use", "parent": None}


def test_a_fork_leaves_the_connections_of_a_thread_alone_that_it_could_not_stop(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in a call on one file, and could begin one on the other file at any time. The child may use neither, and a
    third file that nothing uses."""
    urls = [sqlite_url, *(f"sqlite:///{tmp_path / name}" for name in ("other.db", "third.db"))]
    for url in urls[1:]:
        initialise_store(url, Settings())
    monkeypatch.setattr(connection._gate, "patience_s", 0.0)

    def first(family: Family) -> None:
        one, other, _ = stores = [SQLiteStore(url.removeprefix("sqlite:///"), busy_timeout_s=0) for url in urls]
        inside, forked = threading.Event(), threading.Event()
        stayed = []

        def change(_: bytes | None) -> bytes:
            inside.set()
            assert forked.wait(30)
            stayed.append(open_connections(one) > 0)
            return b"written"

        def work() -> None:
            for store in stores[:2]:
                store.read(CLOCK_SAMPLES, [BY_THREAD])
            other.update(CLOCK_SAMPLES, BY_THREAD, change)

        thread = threading.Thread(target=work)
        thread.start()
        inside.wait()
        fork(lambda: family.tell(child=[reason_of(partial(open_quickly, url)) for url in urls]))
        forked.set()
        thread.join()
        family.tell(stayed=stayed)

    with Family().started(first) as family:
        reported = {who: what for each in family.hear_all() for who, what in each.items()}
    assert reported == {"child": ["forked_while_in_use", "forked_while_in_use", None], "stayed": [True]}


def test_a_child_does_not_close_a_connection_of_its_parent(
    sqlite: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store can be finalised in the child before the child has given up the connections that it inherited."""
    sqlite.read(CLOCK_SAMPLES, [BY_THREAD])
    (held,) = sqlite.connections._held
    monkeypatch.setattr(held, "process", os.getppid())
    held.close()
    assert held.connection.execute("SELECT 1").fetchall() == [(1,)]


def test_a_child_that_ends_normally_does_not_remove_a_log_that_others_write_to(sqlite_url: str) -> None:
    """It was forked inside a store call. Afterwards its parent commits, and is killed, so the log stays."""
    path = sqlite_url.removeprefix("sqlite:///")
    program = f"from {__name__} import *; program_that_forks_inside_a_call({path!r})"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout
        assert running.stdout.readline() == b"written\n"
        running.kill()
        running.wait()
        assert running.stdin
        running.stdin.close()
        assert running.stdout.read() == b"ended\n"
    with open_quickly(sqlite_url) as store:
        assert store.read(CLOCK_SAMPLES, [BY_THREAD]) == {BY_THREAD: b"later"}


def program_that_forks_inside_a_call(path: str) -> None:
    store = SQLiteStore(path)
    store.update(CLOCK_SAMPLES, BY_THREAD, lambda _: b"earlier" if os.fork() else end_normally())
    store.close()
    store = SQLiteStore(path)
    store.update(CLOCK_SAMPLES, BY_THREAD, lambda _: b"later")
    os.write(1, b"written\n")
    signal.pause()


def end_normally() -> NoReturn:
    """The pipe is closed when the interpreter has finalised what is left."""
    end_if_it_hangs()
    sys.stdin.read()
    os.write(1, b"ended\n")
    sys.exit(0)


# --- the gate -----------------------------------------------------------------------------------------------------


class GateThread:
    """A thread with a lock, which holds the lock while it is busy."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._orders: queue.Queue[Callable[[], object] | None] = queue.Queue()
        self._answers: queue.Queue[object] = queue.Queue()
        threading.Thread(target=self._work, daemon=True).start()
        self.lock = self.ask(gate.own_lock)

    def _work(self) -> None:
        while order := self._orders.get():
            self._answers.put(order())

    def begin(self, work: Callable[[], object]) -> None:
        self._orders.put(work)

    def answer(self) -> Any:
        return self._answers.get(timeout=30)

    def ask(self, work: Callable[[], object]) -> Any:
        self.begin(work)
        return self.answer()

    def can_continue(self) -> bool:
        return bool(self.ask(lambda: self.lock.acquire(timeout=10) and self.lock.release() is None))


def test_when_the_patience_has_run_out_a_fork_still_waits_for_short_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be on another file than the call that used up the patience."""
    monkeypatch.setattr(forks, "_AT_LEAST_S", 30)
    gate = Gate()
    thread = GateThread(gate)
    shutting, acquired = threading.Event(), threading.Event()

    def short_call() -> None:
        with thread.lock:
            acquired.set()
            assert shutting.wait(30)
            time.sleep(0.05)

    thread.begin(short_call)
    acquired.wait()
    shutting.set()
    gate.shut()
    assert gate.has_stopped(thread.lock)
    gate.open()
    assert thread.answer() is None
    assert thread.can_continue()


class Interrupted(Exception):
    """Raised by the signal handler of a test."""


def test_a_signal_handler_that_raises_while_a_fork_waits_leaves_no_thread_stopped() -> None:
    gate = Gate()
    gate.patience_s = 30
    own = gate.own_lock()
    threads = {each.lock: each for each in (GateThread(gate) for _ in range(4))}
    *others, last = gate._threads - {own}
    main = threading.get_ident()
    holds, interrupted = threading.Event(), threading.Event()

    def long_call() -> None:
        with last:
            holds.set()
            while any(_acquire_at_once(each) for each in others):
                time.sleep(0.001)
            signal.pthread_kill(main, signal.SIGUSR1)
            assert interrupted.wait(30)

    def handle(*_: object) -> NoReturn:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        threads[last].begin(long_call)
        holds.wait()
        with pytest.raises(Interrupted):
            gate.shut()
    finally:
        signal.signal(signal.SIGUSR1, before)
        interrupted.set()
    assert [gate.has_stopped(each) for each in (*others, last)] == [True, True, True, False]
    threads[last].answer()
    gate.open()
    assert all(each.can_continue() for each in threads.values())
    gate.open()
    assert GateThread(gate).can_continue()


def _acquire_at_once(lock: threading.RLock) -> bool:
    acquired = lock.acquire(blocking=False)
    if acquired:
        lock.release()
    return acquired


def test_a_signal_handler_that_raises_while_a_fork_waits_harms_neither_side(sqlite_url: str) -> None:
    def first(family: Family) -> None:
        store = SQLiteStore(sqlite_url.removeprefix("sqlite:///"), busy_timeout_s=30)
        inside, forking, forked = threading.Event(), threading.Event(), threading.Event()
        main = threading.get_ident()

        def change(_: bytes | None) -> bytes:
            inside.set()
            assert forking.wait(30)
            signal.pthread_kill(main, signal.SIGUSR1)
            assert forked.wait(30)
            return b"written"

        def handle(*_: object) -> NoReturn:
            raise Interrupted

        signal.signal(signal.SIGUSR1, handle)
        thread = threading.Thread(target=store.update, args=(CLOCK_SAMPLES, BY_THREAD, change))
        thread.start()
        inside.wait()
        call_while_shutting(forking.set)
        fork(lambda: family.tell(child=reason_of(lambda: open_quickly(sqlite_url))))
        forked.set()
        thread.join()
        family.tell(parent=reason_of(lambda: store.read(CLOCK_SAMPLES, [BY_THREAD])))

    with Family().started(first) as family:
        reported = {who: reason for each in family.hear_all() for who, reason in each.items()}
    assert reported == {"child": "forked_while_in_use", "parent": None}


def test_a_store_can_be_finalised_by_a_thread_that_waits_to_fork(sqlite_url: str) -> None:
    """The garbage collector runs in any thread, also in one that has not used SQLite."""

    def first(family: Family) -> None:
        def make_garbage() -> None:
            store = open_quickly(sqlite_url)
            store.read(CLOCK_SAMPLES, [BY_THREAD])
            cycle: list[object] = [store]
            cycle.append(cycle)

        gc.disable()
        call_while_shutting(gc.collect)
        for work in (make_garbage, lambda: fork(lambda: family.tell(forked=True))):
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            thread.join(10)
        family.tell(hangs=thread.is_alive())

    with Family().started(first) as family:
        reported = {what: value for each in family.hear_all() for what, value in each.items()}
    assert reported == {"forked": True, "hangs": False}


def test_a_thread_whose_first_use_is_interrupted_is_still_known_to_a_fork() -> None:
    """It waits for a fork of another thread, and a signal handler of its own raises, or uses SQLite itself."""
    gate = Gate()
    other = GateThread(gate)
    other.ask(gate.shut)

    def handle(*_: object) -> NoReturn:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(Interrupted):
            gate.own_lock()
    finally:
        signal.signal(signal.SIGALRM, before)
    other.ask(gate.open)
    assert gate.own_lock() in gate._threads


def test_a_signal_handler_that_raises_right_after_the_write_lock_was_taken_releases_it(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupting(sqlite3.Connection):
        def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
            found = super().execute(statement, *values)
            if statement == "BEGIN IMMEDIATE":
                raise Interrupted
            return found

    path = sqlite_url.removeprefix("sqlite:///")
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Interrupting))
    with SQLiteStore(path) as store:
        with pytest.raises(Interrupted):
            store.update(CLOCK_SAMPLES, BY_THREAD, lambda _: b"never")
        monkeypatch.undo()
        other = sqlite3.connect(path, timeout=0, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        other.close()


# --- what a fork may not change -----------------------------------------------------------------------------------


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
