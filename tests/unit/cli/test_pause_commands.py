"""Pausing and resuming from a terminal, and the journal of it."""

from __future__ import annotations

import getpass

import pytest

from sweep_tasks.journal import NO_REASON, QUARANTINED_ENTRIES
from tests.unit.cli.test_protection_commands import ask, sweep_now, url, write

__all__ = ["url"]


def test_a_pause_from_its_beginning_to_its_end(url: str) -> None:
    for value in (b"v1", b"v2"):
        write(url, value)
    assert ask(url, "pause", "--list", "--json").document == {"paused": []}
    assert ask(url, "pause", "--list").out.count("\n") == 1
    told = ask(url, "pause", "shop.items", "--reason", "a closer look")
    assert (told.code, "shop.items" in told.out) == (0, True)
    assert sum(each["parked"] for each in sweep_now(url).document["shards"]) == 1
    shown = ask(url, "pause", "--list").out
    assert "shop.items" in shown
    assert "a closer look" in shown
    again = ask(url, "pause", "shop.items", "--reason", "me too", "--json")
    assert (again.code, again.document["error"]) == (5, "exists")
    resumed = ask(url, "resume", "shop.items", "--reason", "seen enough", "--json").document
    assert resumed.items() >= {"resumed": "shop.items", "by": getpass.getuser(), "reason": "a closer look"}.items()
    assert sum(each["unparked"] for each in sweep_now(url).document["shards"]) == 1
    notes = ask(url, "journal", "--json").document["notes"]
    assert [(note["what"], note["about"], note["reason"], note["outcome"]) for note in notes] == [
        ("resume", "shop.items", "seen enough", "done"),
        ("pause", "shop.items", "me too", "failed: exists"),
        ("pause", "shop.items", "a closer look", "done"),
    ]
    assert "seen enough" in ask(url, "journal").out


def test_what_is_released_and_retried_by_command_is_in_the_journal_too(url: str) -> None:
    assert ask(url, "protect", "shop.items", "--id", "backup").code == 0
    assert ask(url, "release", "backup", "--reason", "the backup is done", "--yes").code == 0
    assert ask(url, "queue", "quarantine", "retry").code == 0
    notes = ask(url, "journal", "--json").document["notes"]
    assert [(note["by"], note["what"], note["about"], note["reason"], note["outcome"]) for note in notes] == [
        (getpass.getuser(), "retry", QUARANTINED_ENTRIES, NO_REASON, "done"),
        (getpass.getuser(), "release", "backup", "the backup is done", "done"),
    ]


def test_everything_is_paused_and_a_sweep_says_so(url: str) -> None:
    assert ask(url, "pause", "--everything", "--reason", "an incident").code == 0
    assert {each["stopped"] for each in sweep_now(url).document["shards"]} == {"paused"}
    refused = ask(url, "queue", "quarantine", "retry", "--json")
    assert (refused.code, refused.document["error"]) == (5, "paused")
    assert ask(url, "resume", "--everything", "--reason", "over").code == 0
    assert {each["stopped"] for each in sweep_now(url).document["shards"]} == {None}


@pytest.mark.parametrize(
    ("arguments", "error", "code"),
    [
        (["pause", "shop.items"], "bad_value", 2),
        (["pause", "--reason", "why"], "bad_value", 2),
        (["pause", "shop.items", "--everything", "--reason", "why"], "bad_value", 2),
        (["pause", "shop.nothing", "--reason", "why"], "unknown_table", 3),
        (["resume", "shop.items", "--reason", "why"], "not_found", 3),
    ],
)
def test_bad_input_pauses_nothing(url: str, arguments: list[str], error: str, code: int) -> None:
    answer = ask(url, *arguments, "--json")
    assert (answer.code, answer.document["error"]) == (code, error)
    assert ask(url, "pause", "--list", "--json").document == {"paused": []}
