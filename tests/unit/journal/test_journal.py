"""The journal: who did what, when and why, as a chain that reveals changed and missing entries."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.errors import BadValue, NotFound, OutcomeUnknown, StoreBusy, StoreUnavailable, SweepflowError
from sweep_tasks.journal import actors
from sweep_tasks.journal.actors import MOST_CHARACTERS, NO_REASON, SCHEDULER, Process, acting_for, current_user
from sweep_tasks.journal.journal import Journal
from sweep_tasks.model import MAX_TS, Cell
from sweep_tasks.store import Change, Store
from sweep_tasks.store.faults import FaultyStore, StoreCall, on
from sweep_tasks.store.schema import JOURNAL, JOURNAL_HEAD
from tests.support.clock import ManualClock
from tests.support.errors import having

HEAD = Cell(b"journal", b"head")


def record(store: Store, clock: ManualClock, *about: str) -> None:
    for each in about:
        with Journal(store, clock).record_as("ada", "pause", each, "a closer look"):
            pass
        clock.advance(1)


def entry(number: int) -> Cell:
    return Cell(b"entry" + number.to_bytes(8, "big"), b"v")


def set_head(store: Store, stored: bytes | None) -> None:
    existing = store.read(JOURNAL_HEAD, [HEAD])[HEAD]
    assert store.compare_and_set(JOURNAL_HEAD, HEAD.row, {HEAD.column: Change(existing, stored)})


def broken(store: Store) -> tuple[int | None, str | None]:
    with pytest.raises(SweepflowError, check=having(code="journal_broken")) as found:
        Journal(store).verify()
    return found.value.details["number"], found.value.reason


def test_the_newest_act_is_listed_first_with_its_outcome(store: Store, clock: ManualClock) -> None:
    journal = Journal(store, clock)
    with journal.record_as("ada", "pause", "shop.orders", "a  closer\nlook"):
        pass
    clock.advance(1)
    with pytest.raises(NotFound), journal.record_as("bob", "release", "backup", "done"):
        raise NotFound("there is none")
    assert [(note.by, note.what, note.about, note.reason, note.outcome) for note in journal.last()] == [
        ("bob", "release", "backup", "done", "failed: not_found"),
        ("ada", "pause", "shop.orders", "a closer look", "done"),
    ]
    assert [note.by for note in journal.last(1)] == ["bob"]


def test_an_act_without_an_outcome_is_recorded_as_requested(store: Store, clock: ManualClock) -> None:
    with pytest.raises(KeyboardInterrupt), Journal(store, clock).record_as("ada", "pause", "", "why not"):
        raise KeyboardInterrupt
    assert [note.outcome for note in Journal(store, clock).last()] == ["asked"]


@pytest.mark.parametrize("reason", ["", "  \n ", "x" * (MOST_CHARACTERS + 1), "a\x1b[2J", "\u202eevil"])
def test_without_a_proper_reason_nothing_is_done(store: Store, clock: ManualClock, reason: str) -> None:
    with pytest.raises(BadValue) as refused, Journal(store, clock).record_as("ada", "pause", "", reason):
        pytest.fail("it was done")
    assert refused.value.field == "reason"
    assert Journal(store, clock).last() == []


def test_what_cannot_be_recorded_is_not_done(store: Store, clock: ManualClock) -> None:
    def fail(call: StoreCall) -> None:
        if call.name == "compare_and_set":
            raise StoreUnavailable("store: away")

    journal = Journal(FaultyStore(store, before=fail), clock)
    with pytest.raises(StoreUnavailable), journal.record_as("ada", "drop", "shop.orders", "old"):
        pytest.fail("it was done")


def test_an_outcome_that_cannot_be_recorded_fails_nothing_and_is_logged(store: Store, clock: ManualClock) -> None:
    done = False

    def fail(call: StoreCall) -> None:
        if done and call.name == "compare_and_set":
            raise StoreUnavailable("store: away")

    with capture_logs() as lines, Journal(FaultyStore(store, before=fail), clock).record_as("ada", "drop", "t", "old"):
        done = True
    assert [note.outcome for note in Journal(store).last()] == ["asked"]
    assert [line["outcome"] for line in lines if line["code"] == "outcome_not_recorded"] == ["done"]


def test_the_last_few_take_as_many_reads_however_many_there_are(store: Store, clock: ManualClock) -> None:
    record(store, clock, *map(str, range(30)))
    calls: list[str] = []
    watched = FaultyStore(store, before=lambda call: calls.append(call.name))
    assert [note.about for note in Journal(watched, clock).last(3)] == ["29", "28", "27"]
    assert calls == ["read", "get"]


def test_what_users_asked_for_is_found_among_the_runs_of_every_hour(store: Store, clock: ManualClock) -> None:
    journal = Journal(store, clock)
    for hour in range(130):
        with journal.record_as("ada" if hour in (5, 60, 90) else SCHEDULER, "sweep", str(hour), "because"):
            pass
    assert [note.about for note in journal.last(of_people=True)] == ["90", "60"], "of the last hundred"
    assert [note.about for note in journal.last(1, of_people=True)] == ["90"]
    assert [note.about for note in journal.last(2)] == ["129", "128"]
    calls: list[str] = []
    Journal(FaultyStore(store, before=lambda call: calls.append(call.name)), clock).last(of_people=True)
    assert calls == ["read", "get"]


class TestActors:
    def test_is_the_user_of_the_process_whatever_its_environment_says(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "SUDO_USER"):
            monkeypatch.setenv(name, "mallory")
        assert pwd.getpwuid(os.getuid()).pw_name in current_user()
        assert "mallory" not in current_user()

    def test_is_in_every_entry_and_its_log_line(self, store: Store, clock: ManualClock) -> None:
        with capture_logs() as lines:
            record(store, clock, "shop.orders")
        expected = Process.current()
        assert [(line["number"], line["what"], line["outcome"]) for line in lines] == [
            (1, "pause", "asked"),
            (2, "pause", "done"),
        ]
        assert all(line["process"] == expected._asdict() for line in lines)
        head = json.loads(store.read(JOURNAL_HEAD, [HEAD])[HEAD])
        assert Process(*head["process"]) == expected
        assert (expected.uid, expected.pid) == (os.getuid(), os.getpid())

    @pytest.fixture
    def login(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        """The file in which the kernel shows the user who logged in."""
        found = tmp_path / "loginuid"
        monkeypatch.setattr(actors, "LOGIN_UID", found)
        actors._login_uid.cache_clear()
        yield found
        actors._login_uid.cache_clear()

    def test_behind_sudo_is_the_user_who_logged_in_too(self, login: Path) -> None:
        other = os.getuid() + 54_321
        login.write_text(str(other))
        assert Process.current().login_uid == other
        assert current_user() == f"uid {other} (as {pwd.getpwuid(os.getuid()).pw_name})"

    @pytest.mark.parametrize("shown", [str(2**32 - 1), "", "none", str(os.getuid())])
    def test_is_one_user_where_no_other_logged_in(self, login: Path, shown: str) -> None:
        login.write_text(shown)
        assert Process.current().login_uid in (None, os.getuid())
        assert current_user() == pwd.getpwuid(os.getuid()).pw_name

    def test_is_one_user_where_the_kernel_shows_nothing(self, login: Path) -> None:
        assert not login.exists()
        assert Process.current().login_uid is None
        assert current_user() == pwd.getpwuid(os.getuid()).pw_name

    def test_is_taken_from_the_enclosing_block_like_the_reason(self, store: Store, clock: ManualClock) -> None:
        def act() -> tuple[str, str]:
            with Journal(store, clock).record("pause", "shop.orders"):
                pass
            note = Journal(store).last(1)[0]
            return note.by, note.reason

        with acting_for(reason="on my own"):
            assert act() == (current_user(), "on my own")
        with acting_for("ada", "a migration"):
            with acting_for(reason="its last step"):
                assert act() == ("ada", "its last step")
                with acting_for("bob"):
                    assert act() == ("bob", "its last step")
            with acting_for():
                assert act() == ("ada", "a migration")
            assert act() == ("ada", "a migration")
        assert act() == (current_user(), NO_REASON)

    def test_can_be_shown_anywhere_whatever_others_call_themselves(self, store: Store, clock: ManualClock) -> None:
        nasty = "a\x1b[2J\u202eb\nc" + "x" * 1_000
        with acting_for(nasty, "because"), Journal(store, clock).record("pause", "shop.orders"):
            pass
        Journal(store, clock).begin(nasty, "pause", "shop.orders", "because")
        names = {note.by for note in Journal(store).last()}
        assert {name.isprintable() and len(name) <= 200 for name in names} == {True}


class TestTheChain:
    def test_of_what_was_recorded_is_whole(self, store: Store, clock: ManualClock) -> None:
        assert Journal(store).verify().entries == 0
        record(store, clock, *map(str, range(5)))
        found = Journal(store).verify()
        assert (found.entries, found.kept_from) == (10, 1)

    def test_shows_an_entry_that_was_changed(self, store: Store, clock: ManualClock) -> None:
        record(store, clock, "one", "two", "three")
        stored = store.get(JOURNAL, {entry(3): MAX_TS})[entry(3)]
        store.put(stored.ts, {JOURNAL: {entry(3): stored.value.replace(b'"ada"', b'"bob"')}})
        assert broken(store) == (3, "changed")

    def test_shows_an_entry_that_is_missing(self, store: Store, clock: ManualClock) -> None:
        record(store, clock, "one", "two", "three")
        store.delete_rows(JOURNAL, [entry(4).row])
        assert broken(store) == (4, "missing")

    def test_shows_an_invalid_entry(self, store: Store, clock: ManualClock) -> None:
        record(store, clock, "one", "two")
        store.put(1, {JOURNAL: {entry(2): b"{"}})
        assert broken(store) == (2, "unreadable")

    def test_shows_that_the_oldest_were_removed_without_a_record(self, store: Store, clock: ManualClock) -> None:
        record(store, clock, "one", "two", "three")
        head = store.read(JOURNAL_HEAD, [HEAD])[HEAD]
        forged = head.replace(b'"kept_from":1', b'"kept_from":3')
        assert store.compare_and_set(JOURNAL_HEAD, HEAD.row, {HEAD.column: Change(head, forged)})
        store.delete_rows(JOURNAL, [entry(1).row, entry(2).row])
        assert broken(store) == (2, "missing")

    def test_shows_that_the_newest_entry_was_removed(self, store: Store, clock: ManualClock) -> None:
        record(store, clock, "one", "two")
        set_head(store, None)
        assert broken(store) == (None, "missing")
        with pytest.raises(SweepflowError, check=having(code="journal_broken")):
            Journal(store).begin("ada", "drop", "t", "to begin a new chain")
        assert store.read(JOURNAL_HEAD, [HEAD]) == {}

    def test_shows_that_it_was_removed_also_after_the_first_were_pruned(self, store: Store, clock: ManualClock) -> None:
        record(store, clock, "one", "two")
        Journal(store, clock).prune("ada", "enough", clock.now_ms())
        set_head(store, None)
        assert broken(store) == (None, "missing")

    @pytest.mark.parametrize("number", [1, 2, 3])
    def test_shows_that_it_was_set_back_to_an_earlier_one(self, store: Store, clock: ManualClock, number: int) -> None:
        record(store, clock, "one", "two", "three")
        set_head(store, store.get(JOURNAL, {entry(number): MAX_TS})[entry(number)].value)
        assert broken(store) == (5, "detached")

    @pytest.mark.parametrize("acts", [0, 1, 2])
    @pytest.mark.parametrize("calls", range(9))
    def test_is_whole_after_a_crash_between_any_two_calls(
        self, store: Store, clock: ManualClock, acts: int, calls: int
    ) -> None:
        record(store, clock, *map(str, range(acts)))
        left = calls

        def die(_: StoreCall) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt

        with suppress(KeyboardInterrupt):
            record(FaultyStore(store, before=die), clock, "last")
        Journal(store).verify()
        record(store, clock, "next")
        Journal(store).verify()

    def test_is_begun_by_one_of_two_writers_that_both_find_it_empty(self, store: Store, clock: ManualClock) -> None:
        """The other one writes its entries between two reads of the first."""

        def be_first(_: StoreCall) -> None:
            record(store, clock, "theirs")

        slow = FaultyStore(store, before=on("scan", 1, be_first))
        record(slow, clock, "ours")
        assert Journal(store).verify().entries == 4

    @pytest.mark.parametrize(
        "forged",
        [
            {"number": "6"}, {"number": -1}, {"number": 10**30}, {"number": None}, {"kept_from": []}, {"kept_from": 7},
            {"details": None}, {"details": [], "what": "prune"}, {"details": {}, "what": "prune", "intent": None},
            {"details": {"through": "1", "hash": ""}, "what": "prune", "intent": None}, {"previous": 5}, {"intent": ""},
            {"process": []}, {"process": None}, {"at_ms": "now"}, {"by": 5},
        ],
        ids=str,
    )  # fmt: skip
    def test_shows_a_newest_entry_that_makes_no_sense(
        self, store: Store, clock: ManualClock, forged: dict[str, Any]
    ) -> None:
        record(store, clock, "one", "two", "three")
        plain = json.loads(store.read(JOURNAL_HEAD, [HEAD])[HEAD])
        set_head(store, json.dumps(plain | forged).encode())
        assert broken(store) == (None, "unreadable")

    @pytest.mark.parametrize("stored", [b"[]", b"5", b"{}", b"\xff", b"[" * 100_000])
    def test_shows_a_newest_entry_that_is_none(self, store: Store, clock: ManualClock, stored: bytes) -> None:
        record(store, clock, "one")
        set_head(store, stored)
        assert broken(store) == (None, "unreadable")

    def test_has_every_entry_of_writers_that_race(self, sqlite_url: str) -> None:
        """Two acts each, by eight threads with their own stores."""

        def act(number: int) -> None:
            with open_store(sqlite_url, Settings()) as store:
                for index in range(2):
                    with Journal(store).record_as("ada", "pause", f"{number}.{index}", "again"):
                        pass

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(act, range(8)))
        with open_store(sqlite_url, Settings()) as store:
            assert Journal(store).verify().entries == 32
            notes = Journal(store).last(100)
        assert {note.about for note in notes} == {f"{number}.{index}" for number in range(8) for index in range(2)}
        assert {note.outcome for note in notes} == {"done"}

    def test_gives_up_after_a_bounded_number_of_attempts(self, store: Store, clock: ManualClock) -> None:
        others = 0

        def be_first(call: StoreCall) -> None:
            nonlocal others
            if call.name == "compare_and_set":
                others += 1
                Journal(store, clock).begin("bob", "pause", "", "first")

        with pytest.raises(StoreBusy) as refused:
            Journal(FaultyStore(store, before=be_first), clock).begin("ada", "pause", "", "second")
        assert refused.value.reason == "journal"
        assert {note.by for note in Journal(store).last(100)} == {"bob"}
        assert Journal(store).verify().entries == others

    @pytest.mark.parametrize("carried_out", [True, False])
    @pytest.mark.parametrize("overtaken", [True, False])
    def test_has_an_entry_once_though_its_answer_was_lost(
        self, store: Store, clock: ManualClock, carried_out: bool, overtaken: bool
    ) -> None:
        record(store, clock, "before")
        lost = False

        def lose(call: StoreCall) -> None:
            nonlocal lost
            if lost or call.name != "compare_and_set":
                return
            lost = True
            if carried_out:
                call.perform(*call.arguments)
            if overtaken:
                Journal(store, clock).begin("bob", "pause", "", "meanwhile")
            raise OutcomeUnknown("store: no answer")

        Journal(FaultyStore(store, before=lose), clock).begin("ada", "drop", "t", "old")
        assert Journal(store).verify().entries == 3 + overtaken
        assert [note.what for note in Journal(store).last() if note.what == "drop"] == ["drop"]


class TestPruning:
    def test_removes_what_is_old_and_the_rest_can_be_verified(self, store: Store, clock: ManualClock) -> None:
        record(store, clock, "one", "two")
        limit = clock.now_ms()
        record(store, clock, "three")
        assert Journal(store, clock).prune("ada", "a year is enough", limit) == 4
        assert [note.about for note in Journal(store).last()] == ["entries 1 to 4", "three"]
        found = Journal(store).verify()
        assert (found.entries, found.kept_from) == (4, 5)
        assert store.timestamps(JOURNAL, [entry(number) for number in range(1, 5)]) == {}
        assert Journal(store, clock).prune("ada", "again", limit) == 0

    def test_again_and_again_leaves_a_chain(self, store: Store, clock: ManualClock) -> None:
        for index in range(4):
            record(store, clock, f"{index}.one", f"{index}.two")
            Journal(store, clock).prune("ada", "enough", clock.now_ms())
            Journal(store).verify()
        assert Journal(store).last(1)[0].what == "prune"

    def test_shows_when_its_own_record_was_forged(self, store: Store, clock: ManualClock) -> None:
        record(store, clock, "one", "two")
        Journal(store, clock).prune("ada", "enough", clock.now_ms())
        first = Journal(store).verify().kept_from
        stored = store.get(JOURNAL, {entry(first): MAX_TS})[entry(first)]
        plain = json.loads(stored.value) | {"previous": "0" * 64}
        store.put(stored.ts, {JOURNAL: {entry(first): json.dumps(plain, sort_keys=True).encode()}})
        assert broken(store) == (first, "changed")

    @pytest.mark.parametrize("calls", range(9))
    def test_that_is_cut_off_anywhere_is_finished_by_the_next(
        self, store: Store, clock: ManualClock, calls: int
    ) -> None:
        record(store, clock, *map(str, range(4)))
        limit = clock.now_ms()
        left = calls

        def die(_: StoreCall) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt

        try:
            Journal(FaultyStore(store, before=die), clock).prune("ada", "enough", limit)
        except KeyboardInterrupt:
            Journal(store).verify()
        Journal(store, clock).prune("ada", "enough", limit)
        Journal(store).verify()
        assert store.timestamps(JOURNAL, [entry(number) for number in range(1, 8)]) == {}
