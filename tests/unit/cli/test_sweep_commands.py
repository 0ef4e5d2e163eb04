"""Sweeping from a terminal, on real files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.coordination.clock_history import ClockHistory, ClockSample
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.errors import EXIT_BEHIND, BadValue, StoreMissing
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.queue.encoding import cells_column, hash_prefix, read_write, shared_row
from sweep_tasks.queue.progress import Progress
from sweep_tasks.queue.writer import QueueWriter
from sweep_tasks.store import Store
from sweep_tasks.store.schema import QUEUE_CELLS, QUEUE_TIMESTAMPS
from sweep_tasks.transactions import TransactionManager
from tests.support.command import Answer, sweepflow
from tests.unit.queue.test_jsonlines import VECTORS

TABLE = TableRef.parse("app.items")
CELL = Cell(b"r", b"c")
SCENARIO = """\
{"op":"table","table":"app.items","strategy":"conservative"}
{"op":"write","start":10,"commit":11,"writes":[["app.items","0a","01","aa"]]}

{"op":"write","start":20,"commit":21,"writes":[["app.items","0a","01","bb"]]}
{"op":"sweep","strategy":"conservative","sweep_ts":100}
{"op":"versions","table":"app.items"}
"""
OUTCOMES: list[dict[str, Any]] = [
    {"ok": True},
    {"ok": True},
    {"ok": True},
    {
        "progress": {"0": 99}, "entries": 2, "range_deletes": 1, "sentinels": 1, "aborted_deletes": 0, "parked": 0,
        "unparked": 0, "blocked": 0,
    },
    {"versions": [["0a", "01", -1, "sentinel"], ["0a", "01", 20, "value"]]},
]  # fmt: skip


def with_input(text: str, *arguments: str) -> Answer:
    return sweepflow(*arguments, stdin=text.encode())


def sweep_now(*arguments: str) -> Answer:
    """Without the hour that conservative tables are kept, so that what was just written can be swept."""
    return sweepflow("sweep", *arguments, SWEEPFLOW_RETENTION_S="0", COLUMNS="200")


def lines(answer: Answer) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.out.splitlines()]


@pytest.fixture
def url(sqlite_url: str) -> str:
    """A store with three versions of one cell."""
    with open_store(sqlite_url, Settings()) as store:
        store.create_table(TABLE, TableMetadata())
        overwrite(store, 3)
    return sqlite_url


def overwrite(store: Store, times: int) -> None:
    with TransactionManager(store, queue=QueueWriter(store), renew_leases=False) as manager:
        for index in range(times):
            with manager.transaction() as tx:
                tx.put(TABLE, *CELL, b"%d" % index)


def versions(url: str) -> list[int]:
    with open_store(url, Settings()) as store:
        return sorted(store.timestamps(TABLE, [CELL])[CELL])


class TestSweep:
    def test_a_dry_run_reports_what_the_sweep_then_does(self, url: str) -> None:
        before = versions(url)
        foretold = sweep_now("--dry-run", "--json", "--store", url)
        assert (foretold.code, foretold.document["dry_run"]) == (0, True)
        assert versions(url) == before
        done = sweep_now("--json", "--store", url)
        assert (done.code, done.document["dry_run"]) == (0, False)
        assert versions(url) == [-1, before[-1]]
        for name in ("entries", "range_deletes", "sentinels", "progress_before", "stopped"):
            assert [shard[name] for shard in foretold.document["shards"]] == [
                shard[name] for shard in done.document["shards"]
            ]
        conservative, thorough = done.document["shards"]
        assert (conservative["strategy"], conservative["entries"], conservative["range_deletes"]) == (
            "conservative",
            3,
            1,
        )
        assert (thorough["strategy"], thorough["entries"]) == ("thorough", 0)

    def test_a_dry_run_of_a_store_that_is_behind_ends_well_and_leaves_the_verdict_to_status(self, url: str) -> None:
        with open_store(url, Settings()) as store:
            ClockHistory(store).record(ClockSample(SystemClock().now_ms() - 7 * 86_400_000, 0))
        assert sweepflow("status", "--store", url).code == EXIT_BEHIND
        assert sweepflow("sweep", "--dry-run", "--store", url).code == 0
        assert sweepflow("status", "--store", url).code == EXIT_BEHIND

    def test_what_was_written_within_the_hour_stays(self, url: str) -> None:
        before = versions(url)
        done = sweepflow("sweep", "--strategy", "conservative", "--json", "--store", url)
        assert [shard["sweep_ts"] for shard in done.document["shards"]] == [0]
        assert versions(url) == before

    def test_an_open_transaction_holds_it_back(self, url: str) -> None:
        with open_store(url, Settings()) as store, TransactionManager(store, queue=QueueWriter(store)) as manager:
            lease = manager.transaction()
            overwrite(store, 1)
            done = sweep_now("--strategy", "conservative", "--json", "--store", url)
            assert done.document["shards"][0]["sweep_ts"] < lease.start
            shown = sweepflow("status", "--json", "--store", url).document
            assert shown["open_transactions"] == 1
            assert shown["oldest_open_transaction"]["lease"] == done.document["shards"][0]["sweep_ts"]
            lease.abort()

    def test_a_budget_ends_a_sweep_early_and_the_next_one_continues(self, url: str) -> None:
        sweep = ("--strategy", "conservative", "--max-entries", "2", "--json", "--store", url)
        first, second = (sweep_now(*sweep).document["shards"][0] for _ in range(2))
        assert (first["stopped"], first["entries"]) == ("entries", 2)
        assert (second["stopped"], second["entries"], second["progress_before"]) == (None, 1, first["progress"])

    def test_a_given_timestamp_lowers_the_horizon(self, url: str) -> None:
        _, second, last = versions(url)
        arguments = ("--strategy", "conservative", "--shard", "0", "--stop-at", str(last))
        done = sweep_now(*arguments, "--json", "--store", url)
        assert [(shard["sweep_ts"], shard["progress"]) for shard in done.document["shards"]] == [(last, last - 1)]
        assert versions(url) == [-1, second, last]

    def test_text_output_is_a_table(self, url: str) -> None:
        shown = sweep_now("--dry-run", "--store", url)
        assert shown.code == 0
        for name in ("strategy", "shard", "progress", "entries", "range_deletes"):
            assert name.replace("_", " ") in shown.out
        assert shown.out.count("done") == 2
        end_of_table = "└"
        assert not shown.out.splitlines()[-1].startswith(end_of_table), "a dry run is marked as one"
        assert sweep_now("--store", url).out.splitlines()[-1].startswith(end_of_table)

    @pytest.mark.parametrize(
        ("arguments", "field", "reason"),
        [
            (["--stop-at", "99999999"], "stop_at", "too_high"),
            (["--shard", "1"], "shard", "unknown"),
            (["--shard", "-1"], "shard", "unknown"),
            (["--strategy", "nothing"], "strategy", None),
        ],
    )
    def test_what_cannot_be_done_is_a_sentence_and_changes_nothing(
        self, url: str, arguments: list[str], field: str, reason: str | None
    ) -> None:
        before = versions(url)
        for_people = sweep_now(*arguments, "--store", url)
        assert (for_people.code, for_people.out) == (2, "")
        assert for_people.messages.strip() == f"error: {for_people.error}"
        assert arguments[1] in for_people.err
        for_scripts = sweep_now(*arguments, "--json", "--store", url)
        document = for_scripts.document
        assert (for_scripts.code, document["error"]) == (2, "bad_value")
        assert (document["field"], document.get("reason")) == (field, reason)
        assert versions(url) == before
        with open_store(url, Settings()) as store:
            assert Thresholds(store).of_strategy(SweepStrategy.CONSERVATIVE) == 0

    def test_unknown_strategies_and_negative_budgets_are_usage_errors(self, url: str) -> None:
        assert sweepflow("sweep", "--strategy", "eager", "--store", url).code == 2
        assert sweepflow("sweep", "--max-entries", "-1", "--store", url).code == 2

    def test_a_missing_store_has_its_own_error(self, tmp_path: Path) -> None:
        for name in (["sweep"], ["queue", "quarantine", "list"]):
            answer = sweepflow(*name, "--store", f"sqlite:///{tmp_path}/none.db")
            assert answer.code == 4
            assert isinstance(answer.error, StoreMissing)


class TestStatus:
    def test_status_shows_progress_and_obstacles(self, url: str) -> None:
        before = sweepflow("status", "--json", "--store", url).document
        assert [
            {name: each[name] for name in ("strategy", "shard", "progress", "lag_s")} for each in before["shards"]
        ] == [
            {"strategy": strategy, "shard": 0, "progress": -1, "lag_s": None}
            for strategy in ("conservative", "thorough")
        ]
        assert before["thresholds"] == {"conservative": 0, "thorough": 0}
        assert (before["open_transactions"], before["oldest_open_transaction"], before["protections"]) == (0, None, 0)
        swept = sweep_now("--json", "--store", url).document["shards"]
        after = sweepflow("status", "--json", "--store", url).document
        assert [shard["progress"] for shard in after["shards"]] == [shard["progress"] for shard in swept]
        assert after["thresholds"]["conservative"] == swept[0]["sweep_ts"]
        assert after["timestamp"] >= before["timestamp"]

    def test_every_shard_has_a_line(self, url: str) -> None:
        with open_store(url, Settings()) as store:
            Progress(store).raise_shards(3)
            ClockHistory(store).record_now(TimestampService(store), SystemClock(), 900)
        shown = sweepflow("status", "--store", url, COLUMNS="200")
        assert shown.code == 0
        assert shown.out.count("conservative") == shown.out.count("thorough") == 3
        assert "never" in shown.out
        assert re.findall(r"\d+", shown.out.splitlines()[-1])[1:] == ["0", "0"], "open transactions, protections"


class TestQueue:
    def test_it_is_counted_by_strategy_and_shard(self, url: str) -> None:
        assert sweepflow("queue", "show", "--json", "--store", url).document == {
            "shards": [
                {"strategy": "conservative", "shard": 0, "entries": 3, "rows": 1, "dedicated_rows": 0, "partitions": 1}
            ]
        }
        for_people = sweepflow("queue", "show", "--store", url, COLUMNS="200").out
        for name in ("strategy", "shard", "entries", "rows", "dedicated_rows", "partitions"):
            assert name.replace("_", " ") in for_people

    def test_the_queue_that_atlasdb_keeps_of_unswept_tables_is_counted_apart(self, sqlite_url: str) -> None:
        mark = Cell(bytes.fromhex("c610abe56eff5cb5000002"), b"\0")
        components = bytes.fromhex("00" + "80008000")
        with open_store(sqlite_url, Settings()) as store:
            entry = Cell(hash_prefix(components) + components, cells_column(7, 0))
            store.put(7, {QUEUE_TIMESTAMPS: {mark: b""}, QUEUE_CELLS: {entry: b""}})
        assert sweepflow("queue", "show", "--json", "--store", sqlite_url).document == {
            "shards": [
                {"strategy": "nothing", "shard": 0, "entries": 1, "rows": 1, "dedicated_rows": 0, "partitions": 1}
            ]
        }
        assert sweepflow("status", "--store", sqlite_url).code == 0

    def test_an_empty_queue_is_reported_as_empty(self, sqlite_url: str) -> None:
        for_people = sweepflow("queue", "show", "--store", sqlite_url)
        assert (for_people.code, for_people.out.count("\n")) == (0, 1)
        assert sweepflow("queue", "show", "--json", "--store", sqlite_url).document == {"shards": []}

    def test_encode_and_decode_a_line_each(self) -> None:
        objects = "".join(json.dumps(document) + "\n" for document, _ in VECTORS)
        encoded = with_input(objects, "queue", "encode")
        assert encoded.code == 0
        assert lines(encoded) == [{"hex": expected} for _, expected in VECTORS]
        asked = "".join(json.dumps({"kind": document["kind"], "hex": found}) + "\n" for document, found in VECTORS)
        decoded = with_input(asked, "queue", "decode")
        assert decoded.code == 0
        assert lines(decoded) == [document for document, _ in VECTORS]

    def test_a_bad_line_is_answered_with_its_number_and_the_others_all_the_same(self, tmp_path: Path) -> None:
        file = tmp_path / "lines"
        good, negative, last_good = (json.dumps({"kind": "var_long", "value": value}) for value in (1, -1, 2))
        file.write_text(f"{good}\n\nnot json\n[]\n{negative}\n{last_good}\n")
        answer = sweepflow("queue", "encode", str(file))
        assert answer.code == 1
        first, *bad, last = lines(answer)
        assert (first, last) == ({"hex": "01"}, {"hex": "02"})
        assert [(each["error"], each["line"]) for each in bad] == [("bad_json", 3), ("bad_value", 4), ("bad_value", 5)]
        assert with_input('{"kind":"write","hex":"02"}\n', "queue", "decode").code == 1


class TestQuarantine:
    def test_quarantined_entries_are_listed_and_judged_again_when_the_cause_is_fixed(self, url: str) -> None:
        entry, garbled = b"\x00\x0dapp.elsewhere\x01r\x01c\x00", b"\x02"
        with open_store(url, Settings()) as store:
            row = shared_row(0, SweepStrategy.CONSERVATIVE, 0)
            store.put(1, {QUEUE_CELLS: {Cell(row, cells_column(1, 0)): entry, Cell(row, cells_column(1, 1)): garbled}})
        ask = ("queue", "quarantine", "list", "--store", url)
        assert sweepflow(*ask, "--json").document == {"quarantined": []}
        assert sweepflow(*ask).out.count("\n") == 1
        swept = sweep_now("--json", "--store", url).document["shards"][0]
        assert (swept["quarantined"], swept["entries"]) == (2, 3)
        with pytest.raises(BadValue) as unreadable:
            read_write(garbled)
        listed = sweepflow(*ask, "--json").document["quarantined"]
        of_no_table, of_no_form = (each["reason"] for each in listed)
        assert listed == [
            {"strategy": "conservative", "shard": 0, "start": 1, "reason": reason}
            for reason in (of_no_table, of_no_form)
        ]
        assert "app.elsewhere" in of_no_table
        assert of_no_form == str(unreadable.value)
        assert of_no_form in sweepflow(*ask, COLUMNS="200").out
        retry = ("queue", "quarantine", "retry", "--store", url)
        assert sweepflow(*retry, "--json").document == {"judged": 0, "left": 2}
        assert re.findall(r"\d+", sweepflow(*retry).out) == ["0", "2"]
        sweepflow("tables", "create", "app.elsewhere", "--store", url)
        assert sweepflow(*retry, "--json").document == {"judged": 1, "left": 1}
        left = sweepflow(*ask, "--json").document["quarantined"]
        assert [each["reason"] for each in left] == [of_no_form]


class TestScenario:
    def test_a_scenario_file_prints_an_outcome_for_each_operation(self, tmp_path: Path) -> None:
        file = tmp_path / "scenario.jsonl"
        file.write_text(SCENARIO)
        answer = sweepflow("scenario", "run", str(file))
        assert (answer.code, answer.err) == (0, "")
        assert lines(answer) == OUTCOMES

    def test_from_standard_input(self) -> None:
        answer = with_input(SCENARIO, "scenario", "run", "-")
        assert answer.code == 0
        assert lines(answer) == OUTCOMES

    def test_a_store_with_data_is_used_as_it_is(self, tmp_path: Path) -> None:
        address = f"sqlite:///{tmp_path}/fresh.db"
        assert with_input(SCENARIO, "scenario", "run", "-", "--store", address).code == 0
        again = with_input('{"op":"versions","table":"app.items"}\n', "scenario", "run", "-", "--store", address)
        assert lines(again) == OUTCOMES[-1:]
        shown = sweepflow("status", "--json", "--store", address).document
        assert shown["shards"][0]["progress"] == 99
        assert sweepflow("queue", "show", "--json", "--store", address).document["shards"][0]["entries"] == 2

    def test_a_store_that_no_scenario_created_is_refused_and_stays_as_it_was(self, tmp_path: Path) -> None:
        address = f"sqlite:///{tmp_path}/store.db"
        assert sweepflow("init", "--store", address).code == 0
        with open_store(address, Settings()) as store:
            TimestampService(store).move_past(7)
        answer = with_input(SCENARIO, "scenario", "run", "-", "--store", address, "--json")
        assert (answer.code, answer.document["error"], answer.document["field"]) == (2, "bad_value", "store")
        assert answer.document["reason"] == "not_for_scenarios"
        with open_store(address, Settings()) as store:
            assert TimestampService(store).greatest() == 7
            assert [table for table in store.tables() if not table.is_system] == []

    def test_a_failed_operation_is_reported_and_the_run_continues(self) -> None:
        bad = (
            'not json\n{"op":"fly"}\n{"op":"commits","extra":1}\n{"op":"versions","table":"app.none"}\n'
            '{"op":"sweep","strategy":"nothing","sweep_ts":5}\n\n{"op":"release","id":"a"}\n{"op":"commits"}\n'
        )
        answer = with_input(bad, "scenario", "run", "-")
        assert answer.code == 1
        *failed, last = lines(answer)
        assert [(each["error"], each["line"]) for each in failed] == [
            ("bad_json", 1), ("unknown_op", 2), ("unknown_field", 3), ("unknown_table", 4), ("bad_value", 5),
            ("not_found", 7),
        ]  # fmt: skip
        assert last == {"commits": {}}

    def test_a_file_that_is_not_there_and_no_file_at_all(self, tmp_path: Path) -> None:
        missing = sweepflow("scenario", "run", str(tmp_path / "none.jsonl"), "--json")
        assert (missing.code, missing.document["error"]) == (2, "bad_value")
        assert sweepflow("scenario", "run").code == 2


def test_help_names_the_new_commands() -> None:
    answer = sweepflow("--help")
    for name in ("sweep", "status", "queue", "scenario"):
        assert name in answer.out


def test_a_file_that_is_not_there_is_a_sentence() -> None:
    for translate in ("encode", "decode"):
        answer = sweepflow("queue", translate, "/nowhere/lines.jsonl")
        assert (answer.code, answer.err) == (2, f"error: {answer.error}\n")
        assert answer.error
        assert (answer.error.field, answer.error.reason) == ("file", "unreadable")
        assert "/nowhere/lines.jsonl" in answer.err


def test_brackets_in_a_message_are_shown_as_they_are(tmp_path: Path) -> None:
    assert "'[/]'" in sweepflow("tables", "create", "[/]", "--store", "memory:").err
    assert f"{tmp_path}/[red]x" in sweepflow("tables", "list", "--store", f"sqlite:///{tmp_path}/[red]x").err


def test_a_negative_stop_is_refused_in_a_dry_run_as_well() -> None:
    answer = sweepflow("sweep", "--stop-at", "-5", "--dry-run", "--store", "memory:")
    assert answer.code == 2
    assert answer.error
    assert (answer.error.field, answer.error.reason) == ("stop_at", "out_of_range")
