"""What removes something or lifts a safeguard is confirmed first: at a terminal, or ahead with --yes."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.errors import EXIT_BAD_INPUT, BadValue
from sweep_tasks.texts import duration
from tests.support.command import sweepflow_at_terminal
from tests.unit.cli.test_clock_commands import DAY_MS, acts, sample
from tests.unit.cli.test_protection_commands import ask, url, write

__all__ = ["url"]

COMMANDS = {
    "truncate": ["tables", "truncate", "shop.items"],
    "drop": ["tables", "drop", "shop.items"],
    "truncate by force": ["tables", "truncate", "shop.items", "--force"],
    "drop by force": ["tables", "drop", "shop.items", "--force"],
    "another strategy": ["tables", "set-strategy", "shop.items", "thorough"],
    "a lower retention": ["tables", "change", "shop.items", "--retention", "1m"],
    "release": ["release", "backup"],
    "move": ["protections", "move", "backup", "900000"],
    "resume a table": ["resume", "shop.paused", "--reason", "over"],
    "resume everything": ["resume", "--everything", "--reason", "over"],
    "discard clock samples": ["clock", "discard", "--above", "2001-01-01"],
    "confirm a clock by force": ["clock", "confirm", "wrong", "--force"],
}
NOT_WHILE_PROTECTED = {"truncate", "drop"}


@pytest.fixture
def safeguarded(url: str) -> str:
    """A store with something for every command to remove or to lift."""
    write(url, b"v1")
    sample(url, 0, "right")
    sample(url, DAY_MS, "wrong")
    for command in (
        ["tables", "create", "shop.paused"],
        ["protect", "shop.items", "--id", "backup"],
        ["pause", "shop.paused", "--reason", "an incident"],
        ["pause", "--everything", "--reason", "an incident"],
    ):
        assert ask(url, *command).code == 0
    return url


def everything_in(url: str) -> list[str]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        return list(connection.iterdump())


@pytest.mark.parametrize("name", COMMANDS)
def test_without_a_terminal_it_needs_yes_and_changes_nothing_without(safeguarded: str, name: str) -> None:
    before = everything_in(safeguarded)
    for as_json in ([], ["--json"]):
        refused = ask(safeguarded, *COMMANDS[name], *as_json)
        assert refused.code == EXIT_BAD_INPUT
        assert isinstance(refused.error, BadValue)
        assert (refused.error.code, refused.error.field) == ("not_confirmed", "yes")
        assert refused.error.details["question"] in refused.out + refused.err
    assert (refused.document["error"], refused.document["field"]) == ("not_confirmed", "yes")
    assert everything_in(safeguarded) == before
    if name in NOT_WHILE_PROTECTED:
        refused = ask(safeguarded, *COMMANDS[name], "--yes", "--json")
        assert (refused.code, refused.document["reason"]) == (EXIT_BAD_INPUT, "protected")
        assert ask(safeguarded, "release", "backup", "--yes").code == 0
    assert ask(safeguarded, *COMMANDS[name], "--yes").code == 0
    assert everything_in(safeguarded) != before


@pytest.mark.parametrize("what", ["truncate", "drop"])
def test_removing_what_is_protected_is_recorded_as_forced(safeguarded: str, what: str) -> None:
    assert ask(safeguarded, "tables", what, "shop.items", "--force", "--yes").code == 0
    with open_store(safeguarded, Settings()) as store:
        (intent, outcome) = acts(store, what)
    assert (intent.details["forced"], outcome.outcome) == (True, "done")


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_an_operator_at_a_terminal_is_asked_and_may_decline(url: str, as_json: list[str]) -> None:
    before = everything_in(url)
    drop = ["tables", "drop", "shop.items", "--store", url, *as_json]
    declined = sweepflow_at_terminal(*drop, typed="n")
    assert (declined.code, declined.out.strip()) == (1, "")
    assert "shop.items" in declined.err
    assert everything_in(url) == before
    assert sweepflow_at_terminal(*drop, typed="y").code == 0
    assert ask(url, "tables", "list", "--json").document == {"tables": []}


def test_the_prompt_shows_the_old_and_the_new_retention(url: str) -> None:
    def change(retention: str, typed: str = "") -> str:
        given = ["tables", "change", "shop.items", "--retention", retention, "--store", url]
        return sweepflow_at_terminal(*given, typed=typed).messages

    default_s = Settings().retention_s
    assert change("12h") == "", "longer than before"
    assert change("12h") == "", "as before"
    for retention, after_s in (("3h", 10_800), ("default", default_s)):
        asked = change(retention, typed="n")
        assert asked.index(duration(43_200)) < asked.index(duration(after_s))
    shown = ask(url, "tables", "show", "shop.items", "--json").document
    assert shown["retention_s"] == 43_200
    change("3h", typed="y")
    assert ask(url, "tables", "show", "shop.items", "--json").document["retention_s"] == 10_800


def test_a_command_without_changes_asks_nothing(safeguarded: str) -> None:
    for command in (
        ["tables", "set-strategy", "shop.items", "conservative"],
        ["tables", "change", "shop.items", "--retention", "default"],
        ["tables", "drop", "shop.items", "--dry-run"],
        ["release", "backup", "--dry-run"],
        ["clock", "discard", "--above", "2001-01-01", "--dry-run"],
        ["sweep"],
        ["sweep", "--dry-run"],
    ):
        assert ask(safeguarded, *command).code == 0, command
