"""Pausing and resuming from a terminal, and the journal of it."""

from __future__ import annotations

import pytest

from sweep_tasks.journal.actors import NO_REASON, current_user
from sweep_tasks.journal.journal import QUARANTINED_ENTRIES, Journal
from sweep_tasks.protection.ledger import Ledger
from sweep_tasks.protection.records import Mode, Record, Target
from tests.support.pauses import put_pause
from tests.unit.cli.test_protection_commands import TABLE, ask, opened, sweep_now, url, write

__all__ = ["url"]


def test_a_pause_from_its_beginning_to_its_end(url: str) -> None:
    for value in (b"v1", b"v2"):
        write(url, value)
    assert ask(url, "pause", "--list", "--json").document == {"paused": []}
    assert ask(url, "pause", "--list").out.count("\n") == 1
    reported = ask(url, "pause", "shop.items", "--reason", "a closer look")
    assert (reported.code, "shop.items" in reported.out) == (0, True)
    assert sum(each["parked"] for each in sweep_now(url).document["shards"]) == 1
    shown = ask(url, "pause", "--list").out
    assert "shop.items" in shown
    assert "a closer look" in shown
    again = ask(url, "pause", "shop.items", "--reason", "me too", "--json")
    assert (again.code, again.document["error"]) == (5, "exists")
    resumed = ask(url, "resume", "shop.items", "--reason", "seen enough", "--yes", "--json").document
    assert resumed.items() >= {"resumed": "shop.items", "by": current_user(), "reason": "a closer look"}.items()
    assert sum(each["unparked"] for each in sweep_now(url).document["shards"]) == 1
    notes = [each for each in ask(url, "journal", "--json").document["notes"] if each["about"] == "shop.items"]
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
        (current_user(), "retry", QUARANTINED_ENTRIES, NO_REASON, "done"),
        (current_user(), "release", "backup", "the backup is done", "done"),
        (current_user(), "protect", "backup", NO_REASON, "done"),
    ]


def test_no_text_that_is_stored_drives_the_terminal(url: str) -> None:
    """As it was stored before texts were checked, or by another program."""
    nasty = "a\x1b[2J\x1b]0;owned\x07\u202eb\n\x9b31mc"
    with opened(url) as store:
        put_pause(store, TABLE, nasty, nasty)
        with Journal(store).record_as(nasty, nasty, nasty, "why not"):
            pass
        Ledger(store).change(nasty, lambda _: Record(nasty, 5, Mode.AT, (Target(TABLE),), meta={"why": nasty}))
    commands = (
        ["pause", "--list"], ["journal"], ["status"], ["protections"], ["protections", "--id", nasty], ["doctor"],
        ["pause", "shop.items", "--reason", "me too"], ["release", f"no{nasty}"], ["sweep"], ["metrics"],
        ["resume", "shop.items", "--reason", "over"], ["tables", "show", f"no{nasty}"],
    )  # fmt: skip
    for command in commands:
        answer = ask(url, *command)
        shown = answer.out + answer.err
        assert [each for each in shown if not each.isprintable() and each != "\n"] == [], command
    assert "a\\x1b[2J" in ask(url, "protections").out
    assert ask(url, "journal", "--json").document["notes"][-1]["what"] == nasty, "programs get what is stored"


@pytest.mark.parametrize("reason", ["a\x1b[2Jb", "\u202eevil"])
def test_a_reason_that_drives_a_terminal_is_refused(url: str, reason: str) -> None:
    refused = ask(url, "pause", "shop.items", "--reason", reason, "--json")
    assert (refused.code, refused.document["field"], refused.document["reason"]) == (2, "reason", "control_character")
    assert ask(url, "pause", "--list", "--json").document == {"paused": []}


def test_everything_is_paused_and_a_sweep_says_so(url: str) -> None:
    assert ask(url, "pause", "--everything", "--reason", "an incident").code == 0
    assert {each["stopped"] for each in sweep_now(url).document["shards"]} == {"paused"}
    refused = ask(url, "queue", "quarantine", "retry", "--json")
    assert (refused.code, refused.document["error"]) == (5, "paused")
    assert ask(url, "resume", "--everything", "--reason", "over", "--yes").code == 0
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
