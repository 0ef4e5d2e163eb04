"""The command as a person or a script meets it: real files, and a few times a process of its own."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from sweep_tasks import errors
from sweep_tasks.cli.main import COMMANDS, load_all
from sweep_tasks.config import FILE_VARIABLE, Settings
from sweep_tasks.connections import open_store
from sweep_tasks.errors import BadValue, NotInitialised, OtherSchema, StoreBusy, StoreMissing
from sweep_tasks.legacy.candidates import Unscheduled
from sweep_tasks.store.sqlite import SQLiteStore
from sweep_tasks.store.sqlite.schema import STEPS
from sweep_tasks.transactions import TransactionManager
from tests.support.command import COMMAND, sweepflow, sweepflow_process


@pytest.fixture
def url(tmp_path: Path) -> str:
    address = f"sqlite:///{tmp_path}/store.db"
    assert sweepflow("init", "--store", address).code == 0
    return address


def bad_value(field: str, reason: str) -> dict[str, str]:
    return {"error": "bad_value", "field": field, "reason": reason}


class TestInit:
    def test_it_creates_a_store_and_reports_it(self, tmp_path: Path) -> None:
        first = sweepflow_process("init", "--store", "sqlite:///store.db", "--json", cwd=tmp_path)
        assert first.document == {"store": "sqlite:///store.db", "created": True}
        again = sweepflow_process("init", "--store", "sqlite:///store.db", "--json", cwd=tmp_path)
        assert again.document["created"] is False
        assert (tmp_path / "store.db").exists()

    def test_a_folder_that_is_not_there_is_not_created(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        for folder in ("not/mounted", "file"):
            answer = sweepflow("init", "--json", "--store", f"sqlite:///{tmp_path}/{folder}/store.db")
            assert (answer.code, answer.document["field"], answer.document["reason"]) == (4, "store", "missing_folder")
            assert isinstance(answer.error, StoreMissing)
            assert str(tmp_path / folder) in str(answer.error)
        assert [each.name for each in tmp_path.iterdir()] == ["file"]

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
        did = sweepflow("tables", "truncate", "app.orders", "--yes", "--json", "--store", url)
        assert did.document == {"table": "app.orders", "dry_run": False, "cells": 2, "versions": 2}
        shown = sweepflow("tables", "show", "app.orders", "--json", "--store", url).document
        assert shown["threshold"] == shown["truncated_before"] > 0
        assert sweepflow("tables", "drop", "app.orders", "--yes", "--json", "--store", url).document["versions"] == 0
        assert sweepflow("tables", "list", "--json", "--store", url).document == {"tables": []}

    def test_text_output_has_tables_and_sentences(self, url: str) -> None:
        assert sweepflow("tables", "list", "--store", url).out.count("\n") == 1
        created = sweepflow("tables", "create", "app.orders", "--store", url).out
        assert created.count("\n") == 1
        assert {"app.orders", "(conservative)"} <= set(created.split())
        assert "app.orders" in sweepflow("tables", "list", "--store", url).out
        with open_store(url, Settings()) as store, TransactionManager(store).transaction() as tx:
            for row in range(12):
                tx.put("app.orders", b"%d" % row, b"c", b"v")
        assert sweepflow("tables", "truncate", "app.orders", "--yes", "--store", url).code == 0
        shown = sweepflow("tables", "show", "app.orders", "--json", "--store", url).document
        assert str(shown["truncated_before"]) in sweepflow("tables", "show", "app.orders", "--store", url).out
        with open_store(url, Settings()) as store, TransactionManager(store).transaction() as tx:
            for row in range(34):
                tx.put("app.orders", b"%d" % row, b"c", b"v")
        for arguments in (["--dry-run"], ["--yes"]):
            assert "app.orders" in sweepflow("tables", "list", "--store", url).out
            removed = sweepflow("tables", "drop", "app.orders", *arguments, "--store", url).out
            assert re.findall(r"\d+", removed) == ["34", "34"]
        assert "app.orders" not in sweepflow("tables", "list", "--store", url).out


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "code", "expected", "named"),
        [
            (["tables", "show", "app.x"], 3, {"error": "unknown_table"}, "app.x"),
            (["tables", "drop", "app.x"], 3, {"error": "unknown_table"}, "app.x"),
            (["tables", "truncate", "app.x", "--dry-run"], 3, {"error": "unknown_table"}, "app.x"),
            (["tables", "create", "nodot"], 2, bad_value("table", "malformed"), "'nodot'"),
            (["tables", "create", "sweep.x"], 2, bad_value("table", "reserved"), "'sweep'"),
            (["tables", "create", "a." + "x" * 200], 2, bad_value("table", "too_long"), "128"),
            (["tables", "create", "a.b", "--retention", "soon"], 2, bad_value("retention", "not_a_time"), "'soon'"),
            (["tables", "create", "a.b", "--retention", "90"], 2, bad_value("retention", "no_unit"), "90s"),
        ],
    )
    def test_an_error_is_one_sentence_with_a_code_and_changes_nothing(
        self, url: str, arguments: list[str], code: int, expected: dict[str, str], named: str
    ) -> None:
        for_people = sweepflow(*arguments, "--store", url)
        assert (for_people.code, for_people.out) == (code, "")
        assert for_people.err.count("\n") == 1
        assert named in for_people.err
        for_scripts = sweepflow(*arguments, "--json", "--store", url)
        assert for_scripts.code == code
        document = for_scripts.document
        assert document.pop("message") in for_people.err
        assert document == expected
        assert sweepflow("tables", "list", "--json", "--store", url).document == {"tables": []}

    def test_a_table_that_exists_is_a_conflict(self, url: str) -> None:
        sweepflow("tables", "create", "app.x", "--store", url)
        again = sweepflow("tables", "create", "app.x", "--strategy", "thorough", "--json", "--store", url)
        assert (again.code, again.document["error"]) == (5, "exists")

    def test_the_default_store_of_a_fresh_folder_names_the_command_that_creates_it(self, tmp_path: Path) -> None:
        answer = sweepflow("tables", "list", cwd=tmp_path)
        assert answer.code == 4
        assert isinstance(answer.error, NotInitialised)
        assert answer.error.where == Settings().store
        assert f"sweepflow init --store {answer.error.where}" in answer.err
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("left", ["-wal", "-shm"])
    def test_a_default_store_whose_file_is_gone_while_others_of_it_are_left_is_missing(
        self, tmp_path: Path, left: str
    ) -> None:
        (tmp_path / f"{Path(Settings().store).name}{left}").touch()
        answer = sweepflow("tables", "list", cwd=tmp_path)
        assert answer.code == 4
        assert isinstance(answer.error, StoreMissing)
        assert "sweepflow init" not in answer.err

    @pytest.mark.parametrize("named_by", ["option", "variable", "file"])
    def test_a_missing_store_that_was_named_is_an_error_without_advice_to_create_it(
        self, tmp_path: Path, named_by: str
    ) -> None:
        """Also if it is the one that would be used anyway."""
        url = Settings().store
        settings = tmp_path / "sweepflow.toml"
        settings.write_text(f'store = "{url}"')
        option = ["--store", url] if named_by == "option" else []
        environment = {"variable": {"SWEEPFLOW_STORE": url}, "file": {FILE_VARIABLE: str(settings)}}.get(named_by, {})
        answer = sweepflow("tables", "list", *option, cwd=tmp_path, stdin=b"", **environment)
        assert answer.code == 4
        assert isinstance(answer.error, StoreMissing)
        assert (answer.error.field, answer.error.reason, answer.error.where) == ("store", "missing_file", url)
        assert "sweepflow init" not in answer.err
        assert [each.name for each in tmp_path.iterdir()] == ["sweepflow.toml"]

    def test_a_locked_store_has_its_own_error(self, url: str, tmp_path: Path) -> None:
        hog = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
        hog.execute("BEGIN IMMEDIATE")
        answer = sweepflow("tables", "create", "app.x", "--store", url, SWEEPFLOW_SQLITE_BUSY_TIMEOUT_S="0.1")
        hog.close()
        assert answer.code == 4
        assert isinstance(answer.error, StoreBusy)
        assert answer.error.reason == "locked"
        assert "0.1 s" in answer.err

    def test_a_newer_schema_has_its_own_error(self, tmp_path: Path) -> None:
        SQLiteStore.initialise(tmp_path / "new.db", steps=[*STEPS, lambda connection: None])
        for arguments in (["tables", "list"], ["init"]):
            answer = sweepflow(*arguments, "--store", f"sqlite:///{tmp_path}/new.db")
            assert answer.code == 4
            assert isinstance(answer.error, OtherSchema)
            assert (answer.error.found, answer.error.known) == (len(STEPS) + 1, len(STEPS))

    @pytest.mark.parametrize(
        ("address", "reason"),
        [
            ("oracle:x", "unknown"),
            ("nonsense", "malformed"),
            ("sqlite://x", "missing"),
            ("sqlite:///", "missing"),
            ("memory:x", "unexpected"),
        ],
    )
    def test_a_bad_address_is_explained(self, address: str, reason: str) -> None:
        answer = sweepflow("tables", "list", "--store", address)
        assert answer.code == 2
        assert answer.error
        assert (answer.error.field, answer.error.reason) == ("store", reason)
        assert answer.err == f"error: {answer.error}\n"

    def test_a_bad_setting_is_named(self, url: str) -> None:
        answer = sweepflow("tables", "list", "--store", url, SWEEPFLOW_SQLITE_DURABILITY="maybe")
        assert answer.code == 2
        assert answer.error
        assert answer.error.field == "setting sqlite_durability"

    @pytest.mark.parametrize(
        "arguments", [["tables", "list"], ["init"], ["sweep"], ["queue", "decode"], ["--json", "status"]]
    )
    def test_a_variable_that_names_no_setting_is_refused_with_the_nearest_name(
        self, tmp_path: Path, arguments: list[str]
    ) -> None:
        answer = sweepflow(*arguments, cwd=tmp_path, SWEEPFLOW_RETENTON_S="secret", SWEEPFLOW_SHARDS="3")
        assert answer.code == 2
        assert isinstance(answer.error, BadValue)
        assert (answer.error.field, answer.error.reason) == ("SWEEPFLOW_RETENTON_S", "unknown_variable")
        assert answer.error.details["nearest"] == "SWEEPFLOW_RETENTION_S"
        assert answer.error.details["nearest"] in answer.out + answer.err
        assert "secret" not in answer.out + answer.err
        assert list(tmp_path.iterdir()) == []

    def test_unknown_commands_and_options_are_usage_errors(self, url: str) -> None:
        assert sweepflow("tabels").code == 2
        assert sweepflow("tables", "list", "--sotre", url).code == 2
        assert sweepflow("tables", "create", "a.b", "--strategy", "eager", "--store", url).code == 2


def test_help_lists_the_exit_codes_and_every_command() -> None:
    answer = sweepflow("--help")
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert codes
    for code in (0, *codes):
        assert re.search(rf"\b{code}\b", answer.out), code
    assert "tables" in answer.out
    assert "init" in answer.out
    assert sweepflow("--version").out == f"sweepflow {version('sweepflow')}\n"


class TestStrategies:
    def test_a_change_reports_the_remaining_work_and_so_does_the_table(self, url: str) -> None:
        sweepflow("tables", "create", "app.orders", "--store", url)
        changed = sweepflow(
            "tables", "set-strategy", "app.orders", "thorough", "--yes", "--json", "--store", url
        ).document
        assert (changed["before"], changed["strategy"]) == ("conservative", "thorough")
        assert changed["scan_due"]["why"] == "markers"
        shown = sweepflow("tables", "show", "app.orders", "--json", "--store", url).document
        assert shown["scan_due"] == changed["scan_due"]
        change = ["tables", "set-strategy", "app.orders", "thorough", "--store", url]
        again = sweepflow(*change, "--json").document
        assert (again["before"], again["strategy"], again["scan_due"]) == ("thorough", "thorough", changed["scan_due"])
        for_people = sweepflow(*change)
        assert for_people.code == 0
        for named in ("thorough", "legacy-sweep app.orders", str(changed["scan_due"]["since"])):
            assert named in for_people.out
        assert "conservative" not in for_people.out.splitlines()[0]

    def test_a_table_without_scheduled_scans_is_marked(self, url: str) -> None:
        sweepflow("tables", "create", "app.orders", "--store", url)
        change = ["tables", "set-strategy", "app.orders", "thorough", "--yes"]
        reported = sweepflow(*change, "--store", url, SWEEPFLOW_LEGACY_NEVER="app.*")
        assert Unscheduled.NEVER.sentence in reported.out
        show = ["tables", "show", "app.orders", "--json", "--store", url]
        shown = sweepflow(*show, SWEEPFLOW_LEGACY_BUDGET_S="0").document
        assert shown["scan_not_by_turns_code"] == "legacy_budget_s"
        assert shown["scan_not_by_turns"] == Unscheduled.BUDGET.sentence
        shown = sweepflow(*show, SWEEPFLOW_LEGACY_NEVER="app.*").document
        assert shown["scan_not_by_turns_code"] == "legacy_never"
        scheduled = sweepflow(*show).document
        assert (scheduled["scan_not_by_turns"], scheduled["scan_not_by_turns_code"]) == (None, None)

    def test_a_table_or_strategy_that_does_not_exist_is_refused(self, url: str) -> None:
        assert sweepflow("tables", "set-strategy", "app.nowhere", "thorough", "--store", url).code == 3
        assert sweepflow("tables", "set-strategy", "app.nowhere", "careless", "--store", url).code == 2


def test_the_command_loads_what_it_needs_and_not_what_only_some_of_it_needs() -> None:
    """Airflow, Spark and the rest take seconds to import: each is loaded by the command that uses it."""
    heavy = ["airflow", "pyspark", "pyarrow", "fastapi", "opentelemetry", "sqlalchemy"]
    code = f"import sys, sweep_tasks.cli.main; print(*(name for name in {heavy} if name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert ran.stdout.split() == []


def test_the_list_of_commands_has_the_summary_of_each_command() -> None:
    """The list is shown without loading any command."""
    for name, loaded in load_all().commands.items():
        shown = COMMANDS[name].help
        assert " ".join(loaded.help.split()).startswith(shown.removesuffix(".")), name


def test_a_shell_completes_commands_and_their_options() -> None:
    def completed(*words: str) -> set[str]:
        environment = {
            **os.environ,
            "_SWEEPFLOW_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(["sweepflow", *words]),
            "COMP_CWORD": str(len(words)),
        }
        ran = subprocess.run([COMMAND], env=environment, capture_output=True, text=True, check=True, timeout=240)
        return set(ran.stdout.split())

    assert completed("sta") == {"status"}
    assert {"create", "drop", "truncate"} <= completed("tables", "")
    assert "--dry-run" in completed("sweep", "--dry")
