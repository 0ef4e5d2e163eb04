from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.machine import machine_slot, task_folder
from tests.support.lines import values_in

CONSERVATIVE, THOROUGH = SweepStrategy.CONSERVATIVE, SweepStrategy.THOROUGH


class Waits(Exception):
    """Raised instead of waiting."""


def refuse(message: str) -> None:
    raise Waits(message)


def hold(settings: Settings, held: Event) -> None:
    with machine_slot(settings, CONSERVATIVE, refuse):
        held.set()
        signal.pause()


def test_a_strategy_has_as_many_places_as_the_setting_says(tmp_path: Path) -> None:
    settings = Settings(task_folder=tmp_path, sweep_tasks_at_once=2)
    with machine_slot(settings, CONSERVATIVE, refuse), machine_slot(settings, CONSERVATIVE, refuse):
        with pytest.raises(Waits) as waits:
            machine_slot(settings, CONSERVATIVE, refuse).__enter__()
        assert values_in(str(waits.value)) == ["2"]
        assert all(name in str(waits.value) for name in (CONSERVATIVE, "sweep_tasks_at_once"))
        with machine_slot(settings, THOROUGH, refuse):
            pass
    with machine_slot(settings, CONSERVATIVE, refuse):
        pass


def test_whoever_waits_goes_on_when_a_place_is_free(tmp_path: Path) -> None:
    settings = Settings(task_folder=tmp_path, sweep_tasks_at_once=1)
    first = machine_slot(settings, CONSERVATIVE, refuse)
    first.__enter__()
    told: list[str] = []

    def waiting(message: str) -> None:
        told.append(message)
        first.__exit__(None, None, None)

    with machine_slot(settings, CONSERVATIVE, waiting):
        assert len(told) == 1


def test_a_task_that_is_killed_leaves_its_place(tmp_path: Path) -> None:
    settings = Settings(task_folder=tmp_path, sweep_tasks_at_once=1)
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    task = context.Process(target=hold, args=(settings, held))
    task.start()
    assert held.wait(240)
    with pytest.raises(Waits):
        machine_slot(settings, CONSERVATIVE, refuse).__enter__()
    assert task.pid
    os.kill(task.pid, signal.SIGKILL)
    task.join(240)
    with machine_slot(settings, CONSERVATIVE, refuse):
        pass


def test_the_folder_of_tasks_is_private_and_can_be_chosen(tmp_path: Path) -> None:
    chosen = task_folder(Settings(task_folder=tmp_path / "a" / "b"))
    assert chosen == tmp_path / "a" / "b"
    assert chosen.stat().st_mode & 0o077 == 0
    assert str(os.getuid()) in task_folder(Settings()).name
