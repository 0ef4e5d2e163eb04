"""A server as a child process: its output is reported if it fails, and all its processes end."""

from __future__ import annotations

import re
from pathlib import Path

import psutil
import pytest

from sweep_tasks.errors import ServerNotReady
from sweep_tasks.local.processes import Server, has_ended
from sweep_tasks.processes import inherited_environment


def child(folder: Path, script: str) -> Server:
    log = folder / "log"
    return Server.start("clock", ["sh", "-c", script], log, environment=inherited_environment(), folder=folder)


def test_output_of_a_process_can_be_waited_for(tmp_path: Path) -> None:
    started = child(tmp_path, "echo it is ten; exec sleep 600")
    assert started.wait_for("the time", re.compile("it is (.*)").search)[1] == "ten"
    started.check()
    started.stop()


def test_an_ended_process_is_not_waited_for_and_its_last_output_is_reported(tmp_path: Path) -> None:
    started = child(tmp_path, "echo the spring is broken; exit 1")
    with pytest.raises(ServerNotReady) as refused:
        started.wait_for("the time", re.compile("it is").search)
    assert (refused.value.field, refused.value.reason) == ("clock", "ended")
    for named in (str(tmp_path / "log"), "the spring is broken"):
        assert named in str(refused.value)
    started.stop()


def test_whatever_it_started_ends_with_it_even_if_it_will_not(tmp_path: Path) -> None:
    started = child(tmp_path, "trap '' TERM; sleep 600 & echo inner $!; wait; sleep 600")
    inner = int(started.wait_for("its child", re.compile(r"inner (\d+)").search)[1])
    family = [psutil.Process(started.pid), psutil.Process(inner)]
    started.stop(patience_s=0.5)
    assert all(map(has_ended, family))
