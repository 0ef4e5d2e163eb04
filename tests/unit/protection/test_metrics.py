from __future__ import annotations

import subprocess
import sys
import threading

import prometheus_client
import pytest

from sweep_tasks.errors import AlreadyExists, StoreUnavailable
from sweep_tasks.protection.metrics import OPERATIONS, OUTCOMES, collect_counts, count_call


def count(outcome: str) -> float:
    labels = {"operation": "protect", "outcome": outcome}
    found = prometheus_client.REGISTRY.get_sample_value("sweepflow_protection_operations_total", labels)
    assert found is not None
    return found


@pytest.fixture
def before() -> dict[str, float]:
    return {outcome: count(outcome) for outcome in OUTCOMES}


def since(before: dict[str, float]) -> dict[str, float]:
    return {outcome: count(outcome) - number for outcome, number in before.items() if count(outcome) != number}


def test_every_operation_has_its_figures_before_it_happens_first() -> None:
    program = (
        "import prometheus_client, sweep_tasks.protection.metrics\nprint(prometheus_client.generate_latest().decode())"
    )
    reported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    for operation in OPERATIONS:
        for outcome in OUTCOMES:
            line = f'sweepflow_protection_operations_total{{operation="{operation}",outcome="{outcome}"}} 0.0'
            assert line in reported


def test_what_ends_well_is_ok(before: dict[str, float]) -> None:
    with count_call("protect"):
        pass
    assert since(before) == {"ok": 1}


def test_a_refusal_is_counted_whether_raised_or_returned(before: dict[str, float]) -> None:
    with count_call("protect") as call:
        call.mark_refused()
    with pytest.raises(AlreadyExists), count_call("protect"):
        raise AlreadyExists("a")
    assert since(before) == {"refused": 2}


@pytest.mark.parametrize("error", [StoreUnavailable("store: away"), RuntimeError("a defect"), KeyboardInterrupt()])
def test_a_call_without_an_answer_has_failed(before: dict[str, float], error: BaseException) -> None:
    with pytest.raises(type(error)), count_call("protect"):
        raise error
    assert since(before) == {"failed": 1}


def test_a_function_can_be_counted_too(before: dict[str, float]) -> None:
    @count_call("protect")
    def protect() -> int:
        return 7

    assert (protect(), protect()) == (7, 7)
    assert since(before) == {"ok": 2}


def test_a_listener_counts_what_happens_in_its_own_thread() -> None:
    def another() -> None:
        with count_call("release"):
            pass

    with collect_counts() as heard:
        with count_call("protect"):
            pass
        elsewhere = threading.Thread(target=another)
        elsewhere.start()
        elsewhere.join()
        with collect_counts() as within, count_call("move"):
            pass
    with count_call("protect"):
        pass
    assert {name: number for name, number in heard.items() if number} == {("protect", "ok"): 1, ("move", "ok"): 1}
    assert {name: number for name, number in within.items() if number} == {("move", "ok"): 1}
    assert len(heard) == len(OPERATIONS) * len(OUTCOMES), "what did not happen is there too"
