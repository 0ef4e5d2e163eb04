"""The command as a person or a script meets it: real files, and a few times a process of its own."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.opening import open_store
from sweep_tasks.store.sqlite import SQLiteStore
from sweep_tasks.store.sqlite.schema import STEPS
from sweep_tasks.transactions import TransactionManager
from tests.support.command import sweepflow, sweepflow_process


@pytest.fixture
def url(tmp_path: Path) -> str:
    address = f"sqlite:///{tmp_path}/store.db"
    assert sweepflow("init", "--store", address).code == 0
    return address


class TestInit:
    def test_it_creates_a_store_and_says_so(self, tmp_path: Path) -> None:
        first = sweepflow_process("init", "--store", "sqlite:///deep/down/store.db", "--json", cwd=tmp_path)
        assert first.document == {"store": "sqlite:///deep/down/store.db", "created": True}
        again = sweepflow_process("init", "--store", "sqlite:///deep/down/store.db", "--json", cwd=tmp_path)
        assert again.document["created"] is False
        assert (tmp_path / "deep/down/store.db").exists()

    def test_the_store_is_a_setting_too(self, tmp_path: Path) -> None:
        answer = sweepflow("init", "--json", SWEEPFLOW_STORE=f"sqlite:///{tmp_path}/env.db")
        assert answer.code == 0
        assert (tmp_path / "env.db").exists()


class TestTables:
    def test_a_table_from_creation_to_its_end(self, url: str) -> None:
        created = sweepflow(
            "tables", "create", "app.orders", "--strategy", "thorough", "--retention", "2h", "--json", "--store", url
        )
        assert created.document == {
            "table": "app.orders", "strategy": "thorough", "conflicts": "first-committer-wins", "retention_s": 7200,
            "look_before_delete": False,
        }  # fmt: skip
        assert sweepflow("--store", url, "--json", "tables", "list").document == {"tables": [created.document]}
        with open_store(url, Settings()) as store, TransactionManager(store).transaction() as tx:
            tx.put("app.orders", b"r", b"c", b"v")
            tx.put("app.orders", b"r", b"d", b"v")
        would = sweepflow("tables", "truncate", "app.orders", "--dry-run", "--json", "--store", url)
        assert would.document == {"table": "app.orders", "dry_run": True, "cells": 2, "versions": 2}
        did = sweepflow("tables", "truncate", "app.orders", "--json", "--store", url)
        assert did.document == {"table": "app.orders", "dry_run": False, "cells": 2, "versions": 2}
        shown = sweepflow("tables", "show", "app.orders", "--json", "--store", url).document
        assert shown["threshold"] == shown["truncated_before"] > 0
        assert sweepflow("tables", "drop", "app.orders", "--json", "--store", url).document["versions"] == 0
        assert sweepflow("tables", "list", "--json", "--store", url).document == {"tables": []}

    def test_people_get_tables_and_sentences(self, url: str) -> None:
        assert "no tables yet" in sweepflow("tables", "list", "--store", url).out
        assert sweepflow("tables", "create", "app.orders", "--store", url).out == "app.orders created (conservative)\n"
        assert "app.orders" in sweepflow("tables", "list", "--store", url).out
        assert "truncated before" in sweepflow("tables", "show", "app.orders", "--store", url).out
        assert "would remove 0 versions" in sweepflow("tables", "drop", "app.orders", "--dry-run", "--store", url).out
        assert "app.orders dropped" in sweepflow("tables", "drop", "app.orders", "--store", url).out


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "code", "word", "sentence"),
        [
            (["tables", "show", "app.x"], 3, "unknown_table", "app.x does not exist"),
            (["tables", "drop", "app.x"], 3, "unknown_table", "app.x does not exist"),
            (["tables", "truncate", "app.x", "--dry-run"], 3, "unknown_table", "app.x does not exist"),
            (["tables", "create", "nodot"], 2, "bad_value", "'nodot' is not a table name"),
            (["tables", "create", "sweep.x"], 2, "bad_value", "the namespace 'sweep' is the system's own"),
            (["tables", "create", "a." + "x" * 200], 2, "bad_value", "at most 128"),
            (["tables", "create", "a.b", "--retention", "soon"], 2, "bad_value", "'soon' is not a time"),
        ],
    )
    def test_an_error_is_one_sentence_with_a_code_and_changes_nothing(
        self, url: str, arguments: list[str], code: int, word: str, sentence: str
    ) -> None:
        for_people = sweepflow(*arguments, "--store", url)
        assert (for_people.code, for_people.out) == (code, "")
        assert for_people.err.count("\n") == 1
        assert sentence in for_people.err
        for_scripts = sweepflow(*arguments, "--json", "--store", url)
        assert for_scripts.code == code
        assert for_scripts.document["error"] == word
        assert sentence in for_scripts.document["message"]
        assert sweepflow("tables", "list", "--json", "--store", url).document == {"tables": []}

    def test_a_table_that_exists_is_a_conflict(self, url: str) -> None:
        sweepflow("tables", "create", "app.x", "--store", url)
        again = sweepflow("tables", "create", "app.x", "--strategy", "thorough", "--json", "--store", url)
        assert (again.code, again.document["error"]) == (5, "exists")

    def test_a_store_that_is_not_initialised_names_the_command_that_does_it(self, tmp_path: Path) -> None:
        answer = sweepflow("tables", "list", "--store", f"sqlite:///{tmp_path}/none.db")
        assert answer.code == 4
        assert f"run 'sweepflow init --store sqlite:///{tmp_path}/none.db' once" in answer.err
        assert not (tmp_path / "none.db").exists()

    def test_a_locked_store_is_told_apart(self, url: str, tmp_path: Path) -> None:
        hog = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
        hog.execute("BEGIN IMMEDIATE")
        answer = sweepflow("tables", "create", "app.x", "--store", url, SWEEPFLOW_SQLITE_BUSY_TIMEOUT_S="0.1")
        hog.close()
        assert answer.code == 4
        assert "locked by another process for 0.1 s" in answer.err

    def test_a_newer_schema_is_told_apart(self, tmp_path: Path) -> None:
        SQLiteStore.initialise(tmp_path / "new.db", steps=[*STEPS, lambda connection: None])
        for arguments in (["tables", "list"], ["init"]):
            answer = sweepflow(*arguments, "--store", f"sqlite:///{tmp_path}/new.db")
            assert answer.code == 4
            assert "upgrade sweepflow" in answer.err

    @pytest.mark.parametrize(
        ("address", "sentence"),
        [
            ("oracle:x", "unknown kind of store"),
            ("nonsense", "is not a store address"),
            ("sqlite://x", "names no file"),
            ("sqlite:///", "names no file"),
            ("memory:x", "takes nothing"),
        ],
    )
    def test_a_bad_address_is_explained(self, address: str, sentence: str) -> None:
        answer = sweepflow("tables", "list", "--store", address)
        assert answer.code == 2
        assert sentence in answer.err

    def test_a_folder_that_cannot_be_written_is_a_sentence(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        answer = sweepflow("init", "--store", f"sqlite:///{tmp_path}/file/store.db")
        assert answer.code == 4
        assert "store: " in answer.err

    def test_a_bad_setting_is_named(self, url: str) -> None:
        answer = sweepflow("tables", "list", "--store", url, SWEEPFLOW_SQLITE_DURABILITY="maybe")
        assert answer.code == 2
        assert "setting sqlite_durability" in answer.err

    def test_unknown_commands_and_options_are_usage_errors(self, url: str) -> None:
        assert sweepflow("tabels").code == 2
        assert sweepflow("tables", "list", "--sotre", url).code == 2
        assert sweepflow("tables", "create", "a.b", "--strategy", "eager", "--store", url).code == 2


def test_help_tells_the_exit_codes_and_every_command() -> None:
    answer = sweepflow("--help")
    assert "Exit codes" in answer.out
    assert "tables" in answer.out
    assert "init" in answer.out
    assert sweepflow("--version").out.startswith("sweepflow 0.")


class TestStrategies:
    def test_a_change_says_what_it_leaves_to_be_done_and_so_does_the_table(self, url: str) -> None:
        sweepflow("tables", "create", "app.orders", "--store", url)
        changed = sweepflow("tables", "set-strategy", "app.orders", "thorough", "--json", "--store", url).document
        assert (changed["before"], changed["strategy"]) == ("conservative", "thorough")
        assert changed["scan_due"]["why"] == "markers"
        shown = sweepflow("tables", "show", "app.orders", "--json", "--store", url).document
        assert shown["scan_due"] == changed["scan_due"]
        again = sweepflow("tables", "set-strategy", "app.orders", "thorough", "--store", url)
        assert (again.code, "is thorough already" in again.out, "legacy-sweep app.orders" in again.out) == (
            0,
            True,
            True,
        )

    def test_who_leaves_the_table_out_of_all_turns_is_told_that_nobody_will_do_it(self, url: str) -> None:
        sweepflow("tables", "create", "app.orders", "--store", url)
        change = ["tables", "set-strategy", "app.orders", "thorough"]
        told = sweepflow(*change, "--store", url, SWEEPFLOW_LEGACY_NEVER="app.*")
        assert "it has to be asked for: the DAG legacy_sweep leaves it out (setting legacy_never)" in told.out
        show = ["tables", "show", "app.orders", "--json", "--store", url]
        shown = sweepflow(*show, SWEEPFLOW_LEGACY_BUDGET_S="0").document
        assert "legacy_budget_s" in shown["scan_not_by_turns"]
        assert sweepflow(*show).document["scan_not_by_turns"] is None

    def test_a_table_or_strategy_that_does_not_exist_is_refused(self, url: str) -> None:
        assert sweepflow("tables", "set-strategy", "app.nowhere", "thorough", "--store", url).code == 3
        assert sweepflow("tables", "set-strategy", "app.nowhere", "careless", "--store", url).code == 2
