"""Goals, and results with the machine that they were measured on."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.shared.goals import Goal, at_least, at_most
from benchmarks.shared.recorded import Machine, Recorded, load_all


@pytest.mark.parametrize(
    ("goal", "held", "held_within_twice"),
    [
        (at_most("ratio", 1.1, 1.1), True, True),
        (at_most("ratio", 2.2, 1.1), False, True),
        (at_most("ratio", 2.3, 1.1), False, False),
        (at_least("ratio", 0.9, 0.9), True, True),
        (at_least("ratio", 0.45, 0.9), False, True),
        (at_least("ratio", 0.44, 0.9), False, False),
    ],
)
def test_a_goal_is_held_up_to_its_bound(goal: Goal, held: bool, held_within_twice: bool) -> None:
    assert (goal.held, goal.held_within(2)) == (held, held_within_twice)
    assert Goal.parse(goal.document()) == goal


def test_a_result_is_recorded_with_its_date_and_its_machine(tmp_path: Path) -> None:
    recorded = Recorded.now("growth", {"ratio": 1.05, "goals": [at_most("growth", 1.05, 1.1).document()]})
    file = recorded.store(tmp_path / "results")
    assert file.name == "growth.json"
    assert load_all(tmp_path / "results") == {"growth": recorded}
    assert recorded.goals == [at_most("growth", 1.05, 1.1)]
    assert recorded.machine == Machine.this()
    assert recorded.machine.cores >= 1
    assert recorded.machine.python in sys.version


def test_a_recorded_result_does_not_name_its_host(tmp_path: Path) -> None:
    machine = json.loads(Recorded.now("growth", {}).store(tmp_path).read_text())["machine"]
    assert socket.gethostname() not in machine.values()
    assert not {"host", "node", "name"} & machine.keys()


def test_sizes_are_refused_for_a_benchmark_that_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["journal", "--sizes", "1000"])
    assert "'journal' has no sizes" in capsys.readouterr().err


def test_an_unknown_benchmark_is_refused_before_any_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["growth", "swoop"])
    assert "no benchmark 'swoop'" in capsys.readouterr().err
