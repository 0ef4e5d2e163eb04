from __future__ import annotations

import multiprocessing
import os
import signal
import stat
from contextlib import ExitStack
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from sweep_tasks.config import Settings, load_settings
from sweep_tasks.errors import BadValue
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.spark_job import machine_slot, task_folder
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


def test_a_strategy_has_as_many_slots_as_configured(tmp_path: Path) -> None:
    settings = load_settings(task_folder=tmp_path, sweep_tasks_at_once=2)
    with machine_slot(settings, CONSERVATIVE, refuse), machine_slot(settings, CONSERVATIVE, refuse):
        with pytest.raises(Waits) as waits:
            machine_slot(settings, CONSERVATIVE, refuse).__enter__()
        assert values_in(str(waits.value)) == ["2"]
        assert all(name in str(waits.value) for name in (CONSERVATIVE, "sweep_tasks_at_once"))
        with machine_slot(settings, THOROUGH, refuse):
            pass
    with machine_slot(settings, CONSERVATIVE, refuse):
        pass


def test_each_strategy_has_its_own_number_of_slots(tmp_path: Path) -> None:
    settings = load_settings(task_folder=tmp_path, sweep_tasks_at_once={"conservative": 2, "thorough": 1})
    with ExitStack() as held:
        for strategy in (CONSERVATIVE, CONSERVATIVE, THOROUGH):
            held.enter_context(machine_slot(settings, strategy, refuse))
        for strategy, slots in ((CONSERVATIVE, "2"), (THOROUGH, "1")):
            with pytest.raises(Waits) as waits:
                held.enter_context(machine_slot(settings, strategy, refuse))
            assert values_in(str(waits.value)) == [slots]


def test_a_waiting_task_continues_when_a_slot_is_free(tmp_path: Path) -> None:
    settings = load_settings(task_folder=tmp_path, sweep_tasks_at_once=1)
    first = machine_slot(settings, CONSERVATIVE, refuse)
    first.__enter__()
    reported: list[str] = []

    def waiting(message: str) -> None:
        reported.append(message)
        first.__exit__(None, None, None)

    with machine_slot(settings, CONSERVATIVE, waiting):
        assert len(reported) == 1


def test_a_killed_task_releases_its_slot(tmp_path: Path) -> None:
    settings = load_settings(task_folder=tmp_path, sweep_tasks_at_once=1)
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


class TestAFolderThatOthersCanReach:
    @staticmethod
    def refusal(folder: Path) -> tuple[str, str | None]:
        with pytest.raises(BadValue) as refused:
            task_folder(Settings(task_folder=folder))
        assert str(folder) in str(refused.value)
        assert "task_folder_shared" in str(refused.value)
        return refused.value.field, refused.value.reason

    @pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
    def test_is_refused_if_they_may_write_to_it(self, tmp_path: Path, mode: int) -> None:
        folder = tmp_path / "tasks"
        folder.mkdir()
        folder.chmod(mode)
        assert self.refusal(folder) == ("setting task_folder", "writable_by_others")
        assert stat.S_IMODE(folder.stat().st_mode) == mode, "nothing was changed"
        assert task_folder(Settings(task_folder=folder, task_folder_shared=True)) == folder

    def test_a_folder_that_others_may_only_read_is_accepted(self, tmp_path: Path) -> None:
        folder = tmp_path / "tasks"
        folder.mkdir()
        folder.chmod(0o755)
        assert task_folder(Settings(task_folder=folder)) == folder

    def test_is_refused_if_it_is_another_users(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path / "tasks"
        folder.mkdir(0o700)
        another_user = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: another_user)
        assert self.refusal(folder) == ("setting task_folder", "other_owner")
        assert task_folder(Settings(task_folder=folder, task_folder_shared=True)) == folder

    def test_a_symbolic_link_of_another_user_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As any user can in the temporary folder, for a process that runs as root."""
        ours, link = tmp_path / "ours", tmp_path / "link"
        ours.mkdir(0o700)
        link.symlink_to(ours)
        assert task_folder(Settings(task_folder=link)) == link
        others = os.stat_result((*link.lstat()[:4], os.geteuid() + 1, *link.lstat()[5:]))
        monkeypatch.setattr(Path, "lstat", lambda _: others)
        assert self.refusal(link) == ("setting task_folder", "other_owner")

    def test_is_refused_if_it_is_no_folder(self, tmp_path: Path) -> None:
        (tmp_path / "tasks").touch()
        with pytest.raises(BadValue) as refused:
            task_folder(Settings(task_folder=tmp_path / "tasks"))
        assert (refused.value.field, refused.value.reason) == ("setting task_folder", "unusable")


def test_the_folder_of_tasks_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = task_folder(Settings(task_folder=tmp_path / "a" / "b"))
    finally:
        os.umask(before)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, folder.parent)] == [0o700, 0o700]
