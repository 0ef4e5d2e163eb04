"""Real processes: which are ours, and which end with us."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep_tasks.local.processes import Started, start_process

PATIENCE_S = 240.0
SLEEP = ["sleep", "600"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def sleeping(log: Path) -> Iterator[Started]:
    started = start_process(SLEEP, log, dies_with_parent=False)
    yield started
    started.signal(signal.SIGKILL)
    started.wait(PATIENCE_S)


def test_a_process_is_alive_until_it_is_killed(sleeping: Started) -> None:
    assert sleeping.alive
    sleeping.signal(signal.SIGKILL)
    assert sleeping.wait(PATIENCE_S)
    assert not sleeping.alive
    with pytest.raises(ProcessLookupError):
        os.kill(sleeping.pid, 0)  # not even an entry in the kernel's table


def test_a_process_that_reuses_the_id_of_an_ended_one_is_left_alone(sleeping: Started) -> None:
    ended_long_ago = Started(sleeping.pid, sleeping.at - 3_600)
    assert not ended_long_ago.alive
    ended_long_ago.signal(signal.SIGKILL)
    assert ended_long_ago.wait(0)
    assert sleeping.alive


def test_a_process_that_does_not_end_in_time_is_reported_as_running(sleeping: Started) -> None:
    assert not sleeping.wait(0.1)


def test_a_paused_process_is_alive_and_can_be_resumed(sleeping: Started) -> None:
    sleeping.pause()
    assert sleeping.paused
    assert sleeping.alive
    sleeping.resume()
    assert not sleeping.paused
    assert sleeping.alive


def test_what_a_process_prints_is_in_its_log_start_after_start(log: Path) -> None:
    for word in ("first", "second"):
        output = start_process(["sh", "-c", f"echo {word}; echo {word} >&2"], log, dies_with_parent=True)
        assert output.wait(PATIENCE_S)
    assert log.read_text().split() == ["first", "first", "second", "second"]


def test_a_process_is_no_part_of_our_session(sleeping: Started) -> None:
    assert os.getsid(sleeping.pid) == sleeping.pid != os.getsid(0)


def test_a_process_outlives_the_thread_that_started_it(log: Path) -> None:
    """The kernel would end it with that thread, although our process continues."""
    found: list[Started] = []
    thread = threading.Thread(target=lambda: found.append(start_process(SLEEP, log, dies_with_parent=True)))
    thread.start()
    thread.join()
    assert not found[0].wait(1)
    found[0].signal(signal.SIGKILL)
    assert found[0].wait(PATIENCE_S)


def test_a_process_that_dies_with_its_parent_does_so_when_that_is_killed(log: Path) -> None:
    child = child_of_a_killed_parent(log, dies_with_parent=True)
    assert child.wait(PATIENCE_S)


def test_a_process_whose_parent_was_killed_before_it_was_bound_to_it_exits(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "setpriv"
    slow.write_text(f'#!/bin/sh\nsleep 1\nexec {shutil.which("setpriv")} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert child_of_a_killed_parent(log, dies_with_parent=True).wait(PATIENCE_S)


def test_a_process_that_is_not_bound_to_its_parent_survives_it(log: Path) -> None:
    child = child_of_a_killed_parent(log, dies_with_parent=False)
    assert not child.wait(1)
    child.signal(signal.SIGKILL)
    assert child.wait(PATIENCE_S)


def child_of_a_killed_parent(log: Path, *, dies_with_parent: bool) -> Started:
    program = (
        "import sys, time; from pathlib import Path; from sweep_tasks.local.processes import start_process\n"
        f"started = start_process({SLEEP!r}, Path({str(log)!r}), dies_with_parent={dies_with_parent})\n"
        "print(started.pid, started.at, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        pid, at = parent.stdout.readline().split()
        child = Started(int(pid), float(at))
        assert child.alive
        parent.kill()
    return child
