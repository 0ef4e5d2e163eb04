"""`sweepflow demo` as a person or a script meets it: real files, no Spark."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.environment import LEAST_JAVA, java_problem
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.demo.measure import measure
from sweep_tasks.demo.workload import BACKUP_ID, INVOICES, MINUTES
from sweep_tasks.errors import BadValue, ProgramMissing, StoreError
from sweep_tasks.model import TableMetadata, TableRef
from sweep_tasks.store import initialise_store
from tests.support.command import Answer, sweepflow

ROOT = Path(__file__).parents[3]
STORE = Path(".sweepflow", "demo", "demo.db")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("anywhere")


@pytest.fixture(scope="module")
def shown(folder: Path) -> Answer:
    """From an empty folder, as a script asks for it."""
    return sweepflow("demo", "--engine", "local", "--json", cwd=folder)


class TestFromAnEmptyFolder:
    def test_the_report_is_one_document(self, shown: Answer) -> None:
        assert shown.code == 0, shown.err
        assert shown.document["store"] == f"sqlite:///{STORE}"
        assert shown.document["engine"] == "local"
        assert len(shown.document["shards"]) == 4
        assert shown.document["after"]["versions"] < shown.document["before"]["versions"] / 2
        assert shown.document["after"]["bytes_used"] < shown.document["before"]["bytes_used"]

    def test_progress_is_shown_beside_it(self, shown: Answer) -> None:
        done = [line for line in shown.err.splitlines() if line.startswith("✓")]
        assert [re.findall(r"[\d,]+", line)[0] for line in done] == [
            str(MINUTES // 60),
            f"{shown.document['before']['versions']:,}",
            str(len(shown.document["shards"])),
            f"{shown.document['after']['versions']:,}",
        ]
        assert shown.document["store"] not in shown.err, "no earlier store is replaced"

    def test_the_store_is_kept_for_inspection(self, shown: Answer, folder: Path) -> None:
        status = sweepflow("status", "--store", shown.document["store"], "--json", cwd=folder)
        assert status.document["open_transactions"] == 0
        assert status.document["protections"] == 1
        assert [each["lag_s"] // 3600 for each in status.document["shards"]] == [1, 1, 0, 0]

    def test_versions_held_back_by_the_open_transaction_are_removed_by_the_next_sweep(
        self, shown: Answer, folder: Path
    ) -> None:
        again = sweepflow("sweep", "--strategy", "thorough", "--store", shown.document["store"], "--json", cwd=folder)
        assert all(shard["range_deletes"] > 100 for shard in again.document["shards"])


def test_the_report_is_printed_and_the_removal_of_an_earlier_store_is_announced(tmp_path: Path) -> None:
    (tmp_path / "demo.db").touch()
    answer = sweepflow("demo", "--engine", "local", "--shards", "1", "--folder", str(tmp_path), COLUMNS="100")
    assert answer.code == 0, answer.err
    url = f"sqlite:///{tmp_path}/demo.db"
    assert url in answer.err, "the earlier store that is replaced"
    with open_store(url, Settings()) as store:
        kept = sum(measure(store).versions.values())
    for shown in ("conservative", "thorough", f"{kept:,}", BACKUP_ID, str(INVOICES)):
        assert shown in answer.out
    assert f"sweepflow sweep --store sqlite:///{tmp_path}/demo.db" in answer.out


def test_a_foreign_store_is_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/demo.db"
    initialise_store(url, Settings())
    with open_store(url, Settings()) as store:
        store.create_table(TableRef.parse("app.items"), TableMetadata())
    answer = sweepflow("demo", "--engine", "local", "--folder", str(tmp_path))
    assert (answer.code, answer.err) == (2, f"error: {answer.error}\n")
    assert isinstance(answer.error, BadValue)
    assert answer.error.field == "folder"
    with open_store(url, Settings()) as store:
        assert TableRef.parse("app.items") in store.tables()


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "demo.db") as theirs:
        theirs.execute("CREATE TABLE theirs (x)")
    theirs.close()
    answer = sweepflow("demo", "--engine", "local", "--folder", str(tmp_path))
    assert (answer.code, answer.err) == (4, f"error: {answer.error}\n")
    assert isinstance(answer.error, StoreError)
    assert answer.error.reason == "another_program"


def test_a_store_for_inspection_is_created_once(tmp_path: Path) -> None:
    created = [sweepflow("demo", "--only-load", "--json", "--folder", str(tmp_path)) for _ in range(2)]
    assert [answer.document["created"] for answer in created] == [True, False]
    status = sweepflow("status", "--store", created[0].document["store"], "--json")
    assert [each["progress"] for each in status.document["shards"]] == [-1] * 4


@pytest.mark.parametrize("how", [[], ["--airflow"]])
def test_without_java_there_is_one_sentence_and_nothing_else(tmp_path: Path, how: list[str]) -> None:
    answer = sweepflow("demo", *how, cwd=tmp_path, PATH=str(Path(sys.executable).parent))
    assert answer.code == 4
    assert isinstance(answer.error, ProgramMissing)
    assert (answer.error.field, answer.error.reason) == ("java", "missing")
    assert answer.err == f"error: {answer.error}\n"
    for named in ("Spark", str(LEAST_JAVA)):
        assert named in answer.err
    assert len(answer.err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_make_run_asks_for_java_before_it_installs_anything(tmp_path: Path) -> None:
    make = shutil.which("make")
    assert make
    asked = subprocess.run(
        [make, "--directory", str(ROOT), "run", f"VENV={tmp_path}/venv", f"PYTHON={sys.executable}", "SHELL=/bin/sh"],
        capture_output=True,
        text=True,
        env={"PATH": str(tmp_path)},
        check=False,
    )
    assert asked.returncode == 2
    assert asked.stderr.splitlines()[0] == str(java_problem("no-such-program"))
    assert list(tmp_path.iterdir()) == []


def test_airflow_is_not_asked_to_run_without_spark(tmp_path: Path) -> None:
    answer = sweepflow("demo", "--airflow", "--engine", "local", cwd=tmp_path)
    assert answer.code == 2
    assert answer.error
    assert answer.error.field == "engine"
    for option in ("--engine", "--airflow"):
        assert option in answer.err
    assert list(tmp_path.iterdir()) == []


def test_one_shard_can_be_left_behind_for_demonstration(tmp_path: Path) -> None:
    created = sweepflow("demo", "--only-load", "--one-behind", "--json", "--folder", str(tmp_path))
    assert created.code == 0, created.err
    status = sweepflow("status", "--store", created.document["store"], "--json")
    assert (status.code, status.document["health"]["verdict"]) == (7, "behind")
    behind = [(each["strategy"], each["shard"]) for each in status.document["shards"] if each["behind"]]
    assert behind == [("conservative", 1)]
    assert status.document["shards"][1]["backlog"]["entries_estimated"] > 1_000
    refused = sweepflow("demo", "--one-behind", "--engine", "local", "--folder", str(tmp_path))
    assert (refused.code, refused.error and refused.error.field) == (2, "one_behind")
    assert "--only-load" in refused.err
