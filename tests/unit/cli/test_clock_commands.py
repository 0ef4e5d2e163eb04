"""The store's clock from a terminal: what is wrong with it, and the two ways out."""

from __future__ import annotations

import pytest

from sweep_tasks.clock import SystemClock, from_ms
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.coordination.clock_history import ClockHistory, ClockSample
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.journal.journal import Journal, JournalEntry
from sweep_tasks.store import Store
from tests.support.clock import ManualClock
from tests.unit.cli.test_protection_commands import ask, url

__all__ = ["url"]

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
HERE = SystemClock().uptime().host


def sample(url: str, later_ms: int, host: str, step_max_s: int = 900) -> None:
    """By a host whose clock is ahead of this one."""
    with open_store(url, Settings()) as store:
        clock = ManualClock(SystemClock().now_ms() + later_ms, host)
        ClockHistory(store).record_now(TimestampService(store), clock, step_max_s)


def last(url: str) -> ClockSample | None:
    with open_store(url, Settings()) as store:
        return ClockHistory(store).last()


def acts(store: Store, what: str) -> list[JournalEntry]:
    numbers = range(1, Journal(store).verify().entries + 1)
    return [each for number in numbers if (each := Journal(store).entry(number)) and each.what == what]


def codes(url: str) -> list[tuple[str, str]]:
    found = ask(url, "clock", "show", "--json").document["problems"]
    return [(each["code"], each["host"]) for each in found]


def test_a_store_without_a_sample_shows_none(url: str) -> None:
    assert ask(url, "clock", "show", "--json").document.items() >= {"last_ms": None, "problems": []}.items()
    assert ask(url, "clock", "show").code == 0


def test_a_host_that_is_ahead_is_shown_in_every_command(url: str) -> None:
    sample(url, 0, "right")
    sample(url, DAY_MS, "wrong.example")
    (problem,) = ask(url, "clock", "show", "--json").document["problems"]
    assert (problem["code"], problem["host"]) == ("clock_ahead", "wrong.example")
    assert abs(problem["by_ms"] - DAY_MS) < 60_000
    assert "wrong.example" in ask(url, "clock", "show").out
    status = ask(url, "status", "--json")
    assert status.code == 6
    assert [each["cause"] for each in status.document["health"]["problems"]] == ["clock_ahead"]
    assert [each["host"] for each in status.document["clock"]["problems"]] == ["wrong.example"]
    doctor = ask(url, "doctor", "--json")
    assert doctor.code == 1
    assert ("clock_ahead", "do") in [(each["code"], each["level"]) for each in doctor.document["findings"]]
    assert [each["host"] for each in doctor.document["facts"]["clocks"]] == ["wrong.example"]


def test_a_pause_is_confirmed_and_this_host_continues_from_it(url: str) -> None:
    sample(url, -10 * DAY_MS, "gone")
    assert ask(url, "sweep").code == 0
    assert codes(url) == [("clock_ahead", HERE)]
    confirmed = ask(url, "clock", "confirm", "--reason", "holidays", "--yes", "--json")
    assert (confirmed.code, confirmed.document["host"], confirmed.document["problems"]) == (0, HERE, [])
    assert confirmed.document["last_ms"] >= confirmed.document["wall_ms"]
    assert codes(url) == []
    (note,) = [each for each in ask(url, "journal", "--json").document["notes"] if each["what"].startswith("clock")]
    assert (note["what"], note["about"], note["reason"], note["outcome"]) == ("clock confirm", HERE, "holidays", "done")


def test_what_is_ahead_of_this_host_too_is_confirmed_only_by_force(url: str) -> None:
    sample(url, 0, "right")
    sample(url, DAY_MS, "wrong")
    refused = ask(url, "clock", "confirm", "--json")
    assert (refused.code, refused.document["field"], refused.document["reason"]) == (2, "host", "ahead_of_here")
    assert codes(url) == [("clock_ahead", "wrong")]
    assert ask(url, "clock", "confirm", "--force", "--yes", "--json").code == 0
    assert codes(url) == [("clock_sample_in_future", HERE), ("clock_behind", HERE)]
    with open_store(url, Settings()) as store:
        forced = [each.details for each in acts(store, "clock confirm") if each.intent is None]
    assert [(each["forced"], each["ahead_s"] // 3_600) for each in forced] == [(True, 23)]


def test_the_right_one_of_several_hosts_is_named(url: str) -> None:
    sample(url, -10 * DAY_MS, "gone")
    sample(url, -3 * DAY_MS, "wrong")
    sample(url, 0, "new")
    refused = ask(url, "clock", "confirm", "--json")
    assert (refused.code, refused.document["reason"]) == (2, "several")
    assert ask(url, "clock", "confirm", "missing", "--json").code == 3
    assert ask(url, "clock", "confirm", "new", "--yes", "--json").document["host"] == "new"
    assert codes(url) == []


def test_where_nothing_waits_there_is_nothing_to_confirm(url: str) -> None:
    refused = ask(url, "clock", "confirm", "--json")
    assert (refused.code, refused.document["error"]) == (3, "not_found")


def test_a_sample_of_tomorrow_is_discarded_and_the_time_of_this_host_recorded(url: str) -> None:
    sample(url, -2 * HOUR_MS, "right")
    sample(url, DAY_MS, "wrong", step_max_s=0)
    polluted = last(url)
    assert ask(url, "sweep").code == 0
    assert codes(url) == [("clock_sample_in_future", HERE), ("clock_behind", HERE)]
    assert ask(url, "clock", "discard", "--dry-run", "--json").document["discarded"] == 1
    assert last(url) == polluted
    done = ask(url, "clock", "discard", "--reason", "a wrong clock", "--yes", "--json").document
    assert (done["discarded"], done["problems"]) == (1, [])
    assert done["above_ms"] <= done["last_ms"] <= done["now_ms"]
    assert ask(url, "status", "--json").document["clock"]["problems"] == []
    notes = [each for each in ask(url, "journal", "--json").document["notes"] if each["reason"] == "a wrong clock"]
    assert [(note["what"], note["outcome"]) for note in notes] == [("clock sample", "done"), ("clock discard", "done")]


def test_where_nothing_is_later_nothing_is_discarded_or_recorded(url: str) -> None:
    sample(url, -10 * DAY_MS, "right")
    before = last(url)
    assert ask(url, "clock", "discard", "--json").document["discarded"] == 0
    assert last(url) == before, "a clock that is ahead gets no further by it"


def test_samples_since_a_clock_went_wrong_are_discarded(url: str) -> None:
    for hours in (-30, -20, -10):
        sample(url, hours * HOUR_MS, "right", step_max_s=0)
    since = from_ms(SystemClock().now_ms() - 25 * HOUR_MS).isoformat()
    assert ask(url, "clock", "discard", "--above", since, "--yes", "--json").document["discarded"] == 2
    refused = ask(url, "clock", "discard", "--above", "yesterday", "--json")
    assert (refused.code, refused.document["field"], refused.document["reason"]) == (2, "above", "not_a_time")


@pytest.mark.parametrize("command", ["confirm", "discard"])
def test_the_result_is_reported_as_text(url: str, command: str) -> None:
    sample(url, -10 * DAY_MS, "gone")
    ask(url, "sweep")
    sample(url, DAY_MS, "wrong", step_max_s=0 if command == "discard" else 900)
    reported = ask(url, "clock", command, *([HERE] if command == "confirm" else []), "--yes")
    assert reported.code == 0
    assert reported.out.count("\n") == 1
