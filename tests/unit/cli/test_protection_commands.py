"""Protecting, releasing and listing from a terminal, on real files; most of it in this process, which is quicker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sweep_tasks.cli.command import moment_ms
from sweep_tasks.cli.protections import held_back
from sweep_tasks.clock import from_ms
from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.coordination.thresholds import Thresholds
from sweep_tasks.coordination.timestamps import TimestampService
from sweep_tasks.diagnosis.held_back import HeldByRecord
from sweep_tasks.errors import AlreadySwept, BadValue, LimitExceeded, SnapshotSwept, UnknownTable
from sweep_tasks.model import Cell, TableMetadata, TableRef
from sweep_tasks.protection.catalog import ProtectionCatalog
from sweep_tasks.protection.records import Mode, Record, State, Target
from sweep_tasks.store import Store
from sweep_tasks.transactions import TransactionManager
from tests.support.command import Answer, sweepflow, sweepflow_process

TABLE = TableRef.parse("shop.items")
ROW = b"secret-row"
CELL = Cell(ROW, b"c")
BYTES = len(ROW) + len(b"c") + len(b"v0")


@contextmanager
def opened(url: str) -> Iterator[Store]:
    with open_store(url, Settings()) as store:
        yield store


def write(url: str, value: bytes) -> None:
    with opened(url) as store, TransactionManager(store, renew_leases=False) as manager, manager.transaction() as tx:
        tx.put(TABLE, *CELL, value)


def read_at(url: str, ts: int) -> bytes | None:
    with opened(url) as store, TransactionManager(store, renew_leases=False) as manager:
        return manager.read_at(ts).get(TABLE, *CELL)


def records(url: str) -> list[Record]:
    with opened(url) as store:
        return ProtectionCatalog(store).records()


@pytest.fixture
def url(sqlite_url: str) -> str:
    """A store whose one cell holds v0."""
    with opened(sqlite_url) as store:
        store.create_table(TABLE, TableMetadata())
    write(sqlite_url, b"v0")
    return sqlite_url


def ask(url: str, *arguments: str, **environment: str) -> Answer:
    return run(*arguments, "--store", url, **environment)


def sweep_now(url: str) -> Answer:
    """Without the hour that conservative tables are kept, so that what was just written can be swept."""
    return ask(url, "sweep", "--json", SWEEPFLOW_RETENTION_S="0")


def run(*arguments: str, **environment: str) -> Answer:
    return sweepflow(*arguments, cwd=None, stdin=b"", **{"COLUMNS": "200", **environment})


def test_a_protection_from_its_creation_to_its_release(url: str) -> None:
    empty = ask(url, "protections", "--json").document
    assert (empty["protections"], empty["records"]["used"], empty["spans"]["used"]) == ([], 0, 0)
    assert ask(url, "protections").out.count("\n") == 1
    created = ask(url, "protect", "shop.items", "--id", "backup", "--meta", "team=data", "--meta", "why=a=b", "--json")
    assert created.code == 0
    ts = created.document["ts"]
    expected = {"id": "backup", "mode": "at", "state": "accepted", "owner": "manual", "targets": ["shop.items"],
                "meta": {"team": "data", "why": "a=b"}, "expires": None, "expired": False}  # fmt: skip
    assert created.document.items() >= expected.items()
    before = ask(url, "protections", "--json").document
    assert [(each["entries"], each["blocking"]) for each in before["protections"]] == [(0, False)]
    assert before["records"] == {"used": 1, "limit": 512}
    for value in (b"v1", b"v2"):
        write(url, value)
    sweep_now(url)
    assert read_at(url, ts) == b"v0"
    held = {"entries": 1, "versions": 1, "bytes": BYTES, "at_least": False, "blocking": True}
    (shown,) = ask(url, "protections", "--json").document["protections"]
    assert shown.items() >= held.items()
    reported = ask(url, "release", "backup", "--dry-run", "--json").document
    assert reported.items() >= (held | {"released": False}).items()
    assert len(records(url)) == 1
    assert ask(url, "release", "backup", "--yes", "--json").document.items() >= (held | {"released": True}).items()
    sweep_now(url)
    with pytest.raises(SnapshotSwept):
        read_at(url, ts)
    again = ask(url, "release", "backup", "--json")
    assert (again.code, again.document["error"]) == (3, "not_found")


def test_a_script_gets_one_document_from_each_command(url: str) -> None:
    arguments = ("--json", "--store", url)
    created = sweepflow_process("protect", "shop.items[00:ff)", "--id", "backup", *arguments)
    assert (created.code, created.messages) == (0, "")
    assert created.document["targets"] == ["shop.items[00:ff)"]
    listed = sweepflow_process("protections", *arguments)
    assert [each["id"] for each in listed.document["protections"]] == ["backup"]
    assert sweepflow_process("release", "backup", "--yes", *arguments).document["released"] is True


def test_text_output_does_not_show_the_protected_rows(url: str) -> None:
    rows = f"shop.items[{ROW.hex()}:)"
    created = ask(url, "protect", rows, "--mode", "after", "--id", "[bold]tail", "--expires", "7d")
    (record,) = records(url)
    assert created.out.count("\n") == 1
    assert {"[bold]tail", "after", str(record.ts), rows} <= set(created.out.split())
    write(url, b"v1")
    sweep_now(url)
    listed = ask(url, "protections")
    assert record.expires_ms
    until = str(from_ms(record.expires_ms))[:16]
    for shown in ("[bold]tail", "expiry", f"after {record.ts}", rows, "accepted", until, f"{BYTES} bytes"):
        assert shown in listed.out
    assert re.findall(r"\d+", listed.out.splitlines()[-1]) == ["1", "512", "1", "4096"]
    one = ask(url, "protections", "--id", "[bold]tail")
    for shown in ("[bold]tail", "expiry", f"after {record.ts}", rows, "accepted", until, f"{BYTES} bytes"):
        assert shown in one.out
    assert re.findall(r"│ +(\d+) +│", one.out) == ["1", "1"], "entries and versions"
    released = ask(url, "release", "[bold]tail", "--yes")
    assert released.out.startswith("[bold]tail ")
    assert re.findall(r"\d+", released.out) == ["1", "1", str(BYTES)]
    assert records(url) == []
    for answer in (listed, one, released):
        assert ROW.decode() not in answer.out + answer.err


def test_a_swept_timestamp_is_refused_with_the_earliest_one_allowed(url: str) -> None:
    write(url, b"v1")
    sweep_now(url)
    with opened(url) as store:
        earliest = Thresholds(store).of_tables([TABLE])[TABLE].for_readers
    for arguments in (["--id", "late"], ["--json"]):
        refused = ask(url, "protect", "shop.items", "--at", str(earliest - 1), *arguments)
        assert refused.code == 5
        assert isinstance(refused.error, AlreadySwept)
        assert (refused.error.ts, refused.error.earliest) == (earliest - 1, earliest)
        assert str(refused.error) in refused.out + refused.err
    assert refused.document["error"] == "already_swept"
    assert records(url) == []
    assert ask(url, "protect", "shop.items", "--at", str(earliest), "--id", "just").code == 0
    ahead = ask(url, "protect", "shop.items", "--at", "900000", "--id", "ahead")
    with opened(url) as store:
        last = TimestampService(store).greatest()
    assert re.findall(r"\d+", ahead.out) == ["900000", str(last)]


def test_a_record_moves_forward_or_stays_where_it_is(url: str) -> None:
    ts = ask(url, "protect", "shop.items", "--id", "job", "--now", "--json").document["ts"]
    assert ask(url, "protections", "--json", "move", "job", str(ts + 1), "--yes").document["ts"] == ts + 1
    back = ask(url, "protections", "move", "job", str(ts))
    assert (back.code, back.out) == (2, "")
    assert back.error
    assert (back.error.field, back.error.reason) == ("ts", "backwards")
    write(url, b"v1")
    sweep_now(url)
    refused = ask(url, "protections", "move", "job", str(ts + 2), "--yes", "--json")
    assert (refused.code, refused.document["error"]) == (5, "already_swept")
    assert [record.ts for record in records(url)] == [ts + 1]
    gone = run("protections", "--store", url, "--json", "move", "missing", "9")
    assert (gone.code, gone.document["error"]) == (3, "not_found")


@pytest.mark.parametrize(
    ("arguments", "field", "reason", "named"),
    [
        (["shop.items", "--at", "5", "--now"], "at", None, "--now"),
        (["shop.items", "--at", "-5"], "ts", "out_of_range", "-5"),
        (["shop"], "table", "malformed", "'shop'"),
        (["shop.items[0a:0)"], "target", "malformed", "target"),
        (["other.*"], "targets", "no_match", "other.*"),
        (["shop.items", "--meta", "secretvalue"], "meta", None, "meta"),
        (["shop.items", "--owner", "expiry"], "expires", "missing", "'expiry'"),
        (["shop.items", "--expires", "soon"], "expires", "not_a_time", "'soon'"),
    ],
)
def test_what_can_not_be_protected_is_a_sentence_and_changes_nothing(
    url: str, arguments: list[str], field: str, reason: str | None, named: str
) -> None:
    refused = ask(url, "protect", *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert isinstance(refused.error, BadValue)
    assert (refused.error.field, refused.error.reason) == (field, reason)
    assert refused.messages == f"error: {refused.error}\n"
    assert named in refused.messages
    assert "secretvalue" not in refused.err
    assert records(url) == []


def test_a_table_that_does_not_exist_is_not_protected(url: str) -> None:
    refused = ask(url, "protect", "shop.none")
    assert (refused.code, refused.out, refused.messages) == (3, "", f"error: {refused.error}\n")
    assert isinstance(refused.error, UnknownTable)
    assert refused.error.table == TableRef.parse("shop.none")
    assert records(url) == []


def test_more_than_the_limit_allows_is_not_protected(url: str) -> None:
    targets = ["shop.items", "shop.items[00:)", "shop.items[01:)"]
    refused = ask(url, "protect", *targets, SWEEPFLOW_MAX_PROTECTION_SPANS="2")
    assert (refused.code, refused.out, refused.messages) == (5, "", f"error: {refused.error}\n")
    assert isinstance(refused.error, LimitExceeded)
    assert refused.error.field == "max_protection_spans"
    assert (refused.error.details["used"], refused.error.details["more"], refused.error.details["limit"]) == (0, 3, 2)
    assert records(url) == []


def test_an_existing_id_is_a_conflict_and_a_missing_one_is_generated(url: str) -> None:
    first = ask(url, "protect", "shop.*", "--owner", "airflow_run", "--json").document
    assert first["id"].startswith("airflow_run-")
    again = ask(url, "protect", "shop.items", "--id", first["id"], "--json")
    assert (again.code, again.document["error"]) == (5, "exists")


def test_records_of_interrupted_operations_are_shown_in_their_state(url: str) -> None:
    with opened(url) as store:
        catalog = ProtectionCatalog(store)
        catalog.begin(Record("pending", 50, Mode.AT, (Target(TABLE),), created_ms=1, expires_ms=2))
    (shown,) = ask(url, "protections", "--json").document["protections"]
    assert (shown["state"], shown["expired"]) == (State.PENDING.value, True)
    for_people = ask(url, "protections").out
    assert State.PENDING.value in for_people
    assert "expired" in for_people


def test_a_truncated_count_is_shown_as_at_least(url: str) -> None:
    ask(url, "protect", "shop.items", "--mode", "after", "--id", "tail")
    for value in (b"v1", b"v2", b"v3"):
        write(url, value)
    sweep_now(url)
    release = ["release", "tail", "--dry-run"]
    whole = ask(url, *release, "--json").document
    assert not whole["at_least"]
    cut = ask(url, "protections", "--id", "tail", "--most", "1", "--json").document
    assert (cut["entries"], cut["versions"], cut["at_least"]) == (1, 1, True)
    cut = ask(url, *release, "--most", "1", "--json").document
    assert (cut["entries"], cut["versions"], cut["at_least"]) == (1, 1, True)
    for found, most in ((whole, []), (cut, ["--most", "1"])):
        for_people = ask(url, *release, *most).out
        held = HeldByRecord(*(found[name] for name in HeldByRecord._fields))
        assert held_back(held) in for_people
        assert held_back(held) != held_back(held._replace(at_least=not held.at_least))


def test_the_retention_of_a_table_is_set_and_removed(url: str) -> None:
    given = ask(url, "tables", "change", "shop.items", "--retention", "12h", "--json")
    assert given.code == 0
    assert given.document.items() >= {"table": "shop.items", "retention_s": 43_200, "strategy": "conservative"}.items()
    write(url, b"v1")
    before = sweep_now(url).document["shards"][0]
    assert (before["parked"], before["range_deletes"]) == (2, 0)
    taken = ask(url, "tables", "change", "shop.items", "--retention", "default", "--yes", "--json")
    assert (taken.code, taken.document["table"], taken.document["retention_s"]) == (0, "shop.items", None)
    after = sweep_now(url).document["shards"][0]
    assert (after["unparked"], after["range_deletes"]) == (2, 1)
    for arguments, code in ((["shop.items"], 2), (["shop.items", "--retention", "soon"], 2),
                            (["shop.none", "--retention", "1h"], 3)):  # fmt: skip
        assert ask(url, "tables", "change", *arguments).code == code


class TestMoments:
    NOW = 1_700_000_000_000

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("90s", NOW + 90_000),
            ("90m", NOW + 5_400_000),
            ("7d", NOW + 7 * 86_400_000),
            ("2027-01-31T18:00:00Z", 1_801_418_400_000),
            ("2027-01-31T20:00:00+02:00", 1_801_418_400_000),
            ("2027-01-31", 1_801_353_600_000),
        ],
    )
    def test_from_now_or_by_the_calendar(self, text: str, expected: int) -> None:
        assert moment_ms(text, "expires", self.NOW) == expected

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            *((text, "not_a_time") for text in ("", "soon", "7w", "-1d", "P7D", "1e3")),
            *((text, "no_unit") for text in ("90", "0", "2027", "1.5", "1234567890123")),
            ("2001-01-01", "past"),
        ],
    )
    def test_a_time_that_is_not_in_the_future_is_refused(self, text: str, reason: str) -> None:
        with pytest.raises(BadValue) as refused:
            moment_ms(text, "expires", self.NOW)
        assert (refused.value.field, refused.value.reason) == ("expires", reason)


def test_operations_are_added_up_over_commands(url: str) -> None:
    for name in ("one", "two", "two"):
        ask(url, "protect", "shop.items", "--id", name)
    ask(url, "release", "one", "--yes")
    found = {
        (each["labels"]["operation"], each["labels"]["outcome"]): each["value"]
        for each in ask(url, "metrics", "--json").document["metrics"]
        if each["name"] == "sweepflow_protection_operations_total" and each["value"]
    }
    assert found == {("protect", "ok"): 2, ("protect", "refused"): 1, ("release", "ok"): 1}
