"""`sweepflow status` and `sweepflow explain` for people and for scripts."""

from __future__ import annotations

import os
import pty
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sweep_tasks.cli.status import HEADLINES, OUTDATED, backlog_shown
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.coordination.clock_history import ClockHistory, ClockSample
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.diagnosis.problems import Verdict
from sweep_tasks.diagnosis.status import ShardBacklog
from sweep_tasks.errors import BadValue, UnknownTable
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, Target
from sweep_tasks.queue.encoding import cells_column, shared_row
from sweep_tasks.queue.progress import Progress
from sweep_tasks.store.schema import QUEUE_CELLS
from tests.support.command import COMMAND, Answer
from tests.unit.cli.test_protection_commands import run as sweepflow
from tests.unit.cli.test_sweep_commands import TABLE, overwrite, url, versions

__all__ = ["url"]


def sweep_now(*arguments: str) -> Answer:
    return sweepflow("sweep", *arguments, SWEEPFLOW_RETENTION_S="0")


class TestHealth:
    def test_a_shard_that_is_behind_sets_the_exit_code_and_names_the_remedy(self, url: str) -> None:
        with open_store(url, Settings()) as store:
            ClockHistory(store).record(ClockSample(1_000, 0))
        for_scripts = sweepflow("status", "--json", "--store", url)
        assert (for_scripts.code, for_scripts.document["health"]["verdict"]) == (7, "behind")
        assert [each["behind"] for each in for_scripts.document["shards"]] == [True, True]
        for_people = sweepflow("status", "--store", url, COLUMNS="200")
        assert for_people.code == 7
        assert HEADLINES[Verdict.BEHIND] in for_people.out
        problems = for_scripts.document["health"]["problems"]
        assert [(each["verdict"], each["about"]) for each in problems] == [
            ("behind", "conservative lag"), ("behind", "thorough lag"),
        ]  # fmt: skip
        assert {each["cause"] for each in problems} == {"not_running"}
        ways_out = [line.split("→ ")[1] for line in for_people.out.splitlines() if "→" in line]
        assert ways_out == [each["do"] for each in problems]

    def test_needs_attention_has_another_exit_code(self, url: str) -> None:
        with open_store(url, Settings()) as store:
            catalog = ProtectionCatalog(store)
            catalog.protect(Record("backup", 1, Mode.AT, (Target(TABLE),), created_ms=1))
        answer = sweepflow("status", "--store", url, COLUMNS="200")
        assert answer.code == 6
        assert HEADLINES[Verdict.ATTENTION] in answer.out
        assert "release backup" in answer.out

    def test_a_store_that_does_not_answer_has_a_third_exit_code(self, tmp_path: object) -> None:
        assert sweepflow("status", "--json", "--store", f"sqlite:///{tmp_path}/none.db").code == 4

    def test_watching_cannot_be_combined_with_json(self, url: str) -> None:
        assert sweepflow("status", "--watch", "--json", "--store", url).code == 2


def test_of_many_shards_the_furthest_behind_are_shown(url: str) -> None:
    with open_store(url, Settings()) as store:
        ClockHistory(store).record(ClockSample(1_000, 0))
        ClockHistory(store).record(ClockSample(SystemClock().now_ms() - 60_000, 10**6))
        progress = Progress(store)
        progress.raise_shards(40)
        for shard in range(40):
            if shard != 33:
                progress.advance(SweepStrategy.CONSERVATIVE, shard, 10**6)
                progress.advance(SweepStrategy.THOROUGH, shard, 10**6)
    lines = sweepflow("status", "--store", url, COLUMNS="200").out.splitlines()
    rows = [line for line in lines if line.startswith("│ conservative") or line.startswith("│ thorough")]
    assert len(rows) == 16
    assert [row.split("│")[2].strip() for row in rows[:2]] == ["33", "33"]
    (more,) = [line for line in lines if "--all" in line]
    assert re.findall(r"\d+", more) == ["64", "0"]
    every = sweepflow("status", "--all", "--store", url, COLUMNS="200").out
    assert sum(line.startswith(("│ conservative", "│ thorough")) for line in every.splitlines()) == 80


def test_a_partly_counted_backlog_is_marked() -> None:
    assert backlog_shown(ShardBacklog(timestamps=9, entries_estimated=10_000, at_least=False)) == "10,000"
    in_part = backlog_shown(ShardBacklog(timestamps=9, entries_estimated=10_000, at_least=True))
    assert in_part.split()[-1] == "10,000" != in_part
    assert backlog_shown(ShardBacklog(timestamps=9, entries_estimated=None, at_least=False)) == "-"


def test_what_a_sweep_did_is_in_the_status_afterwards(url: str) -> None:
    sweep_now("--store", url)
    found = sweepflow("status", "--json", "--store", url).document
    conservative = found["shards"][0]
    assert conservative["last_run"]["entries"] == 3
    assert (conservative["last_run"]["dag"], conservative["last_run"]["engine"]) == ("command", "local")
    assert conservative["backlog"]["entries_estimated"] is not None
    assert found["counted"] is not None
    sweep_now("--dry-run", "--store", url)
    assert sweepflow("status", "--json", "--store", url).document["shards"][0]["last_run"] == conservative["last_run"]


def read_clock(url: str) -> None:
    with open_store(url, Settings()) as store:
        ClockHistory(store).record_now(TimestampService(store), SystemClock(), 900)


@contextmanager
def watching(url: str, *options: str, lines: int = 24) -> Iterator[Callable[[bytes, int], None]]:
    """In a terminal of its own, which is what it draws on; until something was seen so often. Ends well with Ctrl-C."""
    controller, terminal = pty.openpty()
    around = os.environ | {"COLUMNS": "160", "LINES": str(lines)}
    command = [COMMAND, "status", "--watch", "--every", "1s", "--store", url, *options]
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, close_fds=True, env=around)
    os.close(terminal)

    def until_seen(what: bytes, times: int) -> None:
        seen = b""
        deadline = time.monotonic() + 60
        while seen.count(what) < times:
            assert time.monotonic() < deadline, seen
            seen += os.read(controller, 65_536)

    yield until_seen
    process.send_signal(signal.SIGINT)
    try:
        while os.read(controller, 65_536):
            continue
    except OSError:  # how a terminal reports that its other side is closed
        pass
    os.close(controller)
    assert process.wait(timeout=60) == 0


def test_watching_repeats_until_it_is_ended_also_while_the_store_is_unreachable(url: str) -> None:
    file = Path(url.removeprefix("sqlite:///"))
    read_clock(url)
    with watching(url) as until_seen:
        until_seen(HEADLINES[Verdict.OK].encode(), 2)
        with closing(sqlite3.connect(file)) as connection:
            named = "SELECT name FROM sqlite_master WHERE name LIKE '%pauses#__'"
            (name,) = connection.execute(named).fetchone()
            connection.execute(f'ALTER TABLE "{name}" RENAME TO elsewhere')
            connection.commit()
            until_seen(OUTDATED.encode(), 1)
            connection.execute(f'ALTER TABLE elsewhere RENAME TO "{name}"')
            connection.commit()
        until_seen(HEADLINES[Verdict.OK].encode(), 1)


def test_watching_every_shard_shows_every_shard(url: str) -> None:
    with open_store(url, Settings()) as store:
        Progress(store).raise_shards(40)
    read_clock(url)
    with watching(url, "--all", lines=120) as until_seen:
        until_seen("│ 39".encode(), 2)


def explained(url: str, table: str) -> dict[str, Any]:
    return sweepflow("explain", table, "--json", "--store", url).document


class TestExplain:
    def test_every_version_has_a_sentence(self, url: str) -> None:
        oldest, second, newest = versions(url)
        answer = sweepflow("explain", "app.items", "r", "c", "--json", "--store", url, SWEEPFLOW_RETENTION_S="0")
        assert answer.code == 0
        assert [(each["ts"], each["state"], each["reason"]) for each in answer.document["versions"]] == [
            (oldest, "garbage", "queued"), (second, "garbage", "queued"), (newest, "live", "newest"),
        ]  # fmt: skip
        assert answer.document["physical"]["known"] is True
        by_hex = ("explain", "app.items", "0x72", "0x63", "--store", url)
        found = sweepflow(*by_hex, "--json").document
        assert [(each["ts"], each["reason"]) for each in found["versions"]] == [
            (oldest, "retention"), (second, "retention"), (newest, "newest"),
        ]  # fmt: skip
        shown = sweepflow(*by_hex).out
        for each in found["versions"]:
            (line,) = [line for line in shown.splitlines() if line.startswith(f"│ {each['ts']} ")]
            assert each["says"] in line
        assert len(found["queue"]) == 3
        assert re.findall(r"\d+", shown.splitlines()[-1])[:2] == ["3", "0"], "queued and parked"

    def test_a_protection_is_named_with_its_owner(self, url: str) -> None:
        _, second, _ = versions(url)
        assert sweepflow("protect", "app.items", "--at", str(second), "--id", "backup", "--store", url).code == 0
        sweep_now("--store", url)
        oldest, *_ = sweepflow("explain", "app.items", "r", "c", "--json", "--store", url).document["versions"][1:]
        assert (oldest["reason"], oldest["by"]) == ("protected", "backup")
        assert {"backup", "manual,"} <= set(oldest["says"].split())

    def test_a_table_and_a_shard_say_what_blocks_them_most(self, url: str) -> None:
        with open_store(url, Settings()) as store:
            other = TableRef.parse("app.other")
            store.create_table(other, TableMetadata())
            overwrite(store, 2)
        document = sweepflow("explain", "app.items", "--json", "--store", url).document
        assert (document["table"], document["entries"], document["at_least"]) == ("app.items", 5, False)
        assert [(each["reason"], each["entries"]) for each in document["blocks"]] == [("retention", 5)]
        by_shard = ("explain", "--strategy", "conservative", "--shard", "0", "--store", url)
        found = sweepflow(*by_shard, "--json", SWEEPFLOW_RETENTION_S="0").document
        assert [(each["reason"], each["entries"]) for each in found["blocks"]] == [("queued", 5)]
        (held,) = sweepflow(*by_shard, "--json").document["blocks"]
        assert held["reason"] == "retention"
        assert held["says"] in sweepflow(*by_shard).out
        idle = explained(url, "app.other")
        assert (idle["blocks"], idle["unreadable"], idle["at_least"], idle["never_swept"]) == ([], 0, False, False)
        nothing_waits = sweepflow("explain", "app.other", "--store", url).out
        assert nothing_waits.count("\n") == 1
        with open_store(url, Settings()) as store:
            store.create_table(TableRef.parse("app.kept"), TableMetadata(SweepStrategy.NOTHING))
            garbled = Cell(shared_row(0, SweepStrategy.CONSERVATIVE, 0), cells_column(1, 0))
            store.put(1, {QUEUE_CELLS: {garbled: b"\x02"}})
        assert explained(url, "app.kept")["never_swept"] is True
        never_swept = sweepflow("explain", "app.kept", "--store", url).out
        assert never_swept.count("\n") == 1
        assert nothing_waits != never_swept
        sweep_now("--store", url)
        assert explained(url, "app.other")["unreadable"] == 1
        output = sweepflow("explain", "app.other", "--store", url).out
        assert re.findall(r"\d+", output) == ["1"]
        assert "quarantine list" in output
        assert nothing_waits not in output

    @pytest.mark.parametrize(
        ("arguments", "field", "reason"),
        [
            ([], "table", "not_exactly_one"),
            (["app.items", "--shard", "0"], "table", "not_exactly_one"),
            (["app.items", "r"], "column", "incomplete"),
            (["app.items", "0xzz", "c"], "row", "not_hexadecimal"),
            (["app.items", "", "c"], "row", "empty"),
            (["--strategy", "nothing", "--shard", "0"], "strategy", None),
            (["--strategy", "thorough", "--shard", "9"], "shard", "unknown"),
        ],
    )
    def test_what_cannot_be_asked_is_a_sentence(
        self, url: str, arguments: list[str], field: str, reason: str | None
    ) -> None:
        answer = sweepflow("explain", *arguments, "--store", url)
        assert (answer.code, answer.out, answer.err) == (2, "", f"error: {answer.error}\n")
        assert isinstance(answer.error, BadValue)
        assert (answer.error.field, answer.error.reason) == (field, reason)

    @pytest.mark.parametrize("arguments", [["r", "c"], []])
    def test_a_table_that_does_not_exist_is_named(self, url: str, arguments: list[str]) -> None:
        answer = sweepflow("explain", "app.none", *arguments, "--store", url)
        assert (answer.code, answer.out, answer.err) == (3, "", f"error: {answer.error}\n")
        assert isinstance(answer.error, UnknownTable)
        assert answer.error.table == TableRef.parse("app.none")


def test_a_missing_cell_has_no_versions(url: str) -> None:
    asked = ("explain", "app.items", "nowhere", "c", "--store", url)
    assert sweepflow(*asked, "--json").document["versions"] == []
    answer = sweepflow(*asked)
    assert (answer.code, answer.out.count("\n")) == (0, 2), "a sentence in place of the table, and what waits"
