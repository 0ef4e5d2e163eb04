"""`sweepflow journal`: whether the record is whole, and pruning it."""

from __future__ import annotations

import os
import socket

from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.model import Cell
from sweep_tasks.store.schema import JOURNAL
from tests.support.command import Answer, sweepflow


def ask(url: str, *words: str) -> Answer:
    return sweepflow("journal", "--store", url, *words)


def record(url: str) -> None:
    assert sweepflow("pause", "--everything", "--reason", "a closer look", "--store", url).code == 0


def test_a_journal_that_is_whole_is_verified(sqlite_url: str) -> None:
    record(sqlite_url)
    answer = ask(sqlite_url, "verify", "--json")
    assert (answer.code, answer.document["entries"], answer.document["kept_from"]) == (0, 2, 1)
    assert answer.document["head"] in ask(sqlite_url, "verify").out


def test_an_act_is_shown_with_the_process_and_all_details(sqlite_url: str) -> None:
    create = ("tables", "create", "shop.items", "--store", sqlite_url)
    drop = ("tables", "drop", "shop.items", "--force", "--reason", "no longer used", "--yes", "--store", sqlite_url)
    assert [sweepflow(*words).code for words in (create, drop)] == [0, 0]
    (note,) = ask(sqlite_url, "--json").document["notes"]
    assert (note["what"], note["number"], note["details"]) == ("drop", 1, {"forced": True})
    assert note["result"].keys() == {"mark"}
    assert note["process"].keys() == {"uid", "login_uid", "host", "pid"}
    assert (note["process"]["uid"], note["process"]["host"]) == (os.getuid(), socket.gethostname())


def test_a_missing_entry_is_detected_and_the_exit_code_reports_it(sqlite_url: str) -> None:
    record(sqlite_url)
    with open_store(sqlite_url, Settings()) as store:
        store.delete_rows(JOURNAL, [Cell(b"entry" + (1).to_bytes(8, "big"), b"v").row])
    answer = ask(sqlite_url, "verify", "--json")
    assert (answer.code, answer.document["error"], answer.document["reason"]) == (6, "journal_broken", "missing")


def test_pruning_has_to_be_confirmed_and_is_recorded(sqlite_url: str) -> None:
    record(sqlite_url)
    words = ("prune", "--older-than", "0s", "--reason", "enough", "--json")
    refused = ask(sqlite_url, *words)
    assert (refused.code, refused.document["error"]) == (2, "not_confirmed")
    assert ask(sqlite_url, *words, "--yes").document == {"pruned": 1}
    assert [note["what"] for note in ask(sqlite_url, "--json").document["notes"]] == ["prune"]
    assert ask(sqlite_url, "verify", "--json").document["kept_from"] == 2


def test_an_age_without_a_unit_is_refused(sqlite_url: str) -> None:
    answer = ask(sqlite_url, "prune", "--older-than", "90", "--reason", "enough", "--yes", "--json")
    assert (answer.code, answer.document["field"]) == (2, "older_than")
