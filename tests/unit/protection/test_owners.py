"""Owners of records, and what happens if they give no answer."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import prometheus_client
import pytest

from sweep_tasks.config import Settings
from sweep_tasks.errors import SweepflowError
from sweep_tasks.model import TableRef
from sweep_tasks.protection.owners import AIRFLOW_RUN, EXPIRY, GROUP, MANUAL, SPARK_APP, Answer, Asked, Owners
from sweep_tasks.protection.records import Mode, Record, Target
from tests.support.clock import ManualClock

PACKAGE = """
from sweep_tasks.errors import BadValue, OwnerSilent
from sweep_tasks.protection.owners import Answer, Owner

class Stored(Owner):
    "Answers as recorded."
    def answer(self, record):
        return Answer(record.meta["says"])

class Silent(Owner):
    asked = 0
    closed = 0
    def answer(self, record):
        Silent.asked += 1
        raise OwnerSilent("farm: barn locked")
    def close(self):
        Silent.closed += 1

class Hoarse(Silent):
    "Answers at the third time."
    def answer(self, record):
        Hoarse.asked += 1
        if Hoarse.asked < 3:
            raise OwnerSilent("farm: try again")
        return Answer.FINISHED

class Mumbling(Owner):
    def answer(self, record):
        return "finished"

class Breaking(Owner):
    def answer(self, record):
        raise RuntimeError(f"password of {record.id}")

class Unmakable(Owner):
    def __init__(self, settings):
        raise RuntimeError("secret")
    answer = None

def nothing(settings):
    return None
"""
REGISTERED = {
    "reported": "farm_owners:Stored",
    "silent": "farm_owners:Silent",
    "hoarse": "farm_owners:Hoarse",
    "mumbling": "farm_owners:Mumbling",
    "breaking": "farm_owners:Breaking",
}
BROKEN = {
    "missing": "farm_that_is_not_there:Owner",
    "misnamed": "farm_owners:Missing",
    "unmakable": "farm_owners:Unmakable",
    "nothing": "farm_owners:nothing",
}


def record(meta_type: str, name: str = "a", expires_ms: int | None = None, **meta: str) -> Record:
    targets = (Target(TableRef.parse("app.items")),)
    return Record(name, 50, Mode.AT, targets, meta_type=meta_type, meta=meta, expires_ms=expires_ms)


def reported(asked: Asked) -> tuple[str, str | None, str | None]:
    """What identifies a missing answer."""
    assert asked.error
    return asked.error.code, asked.error.field, asked.error.reason


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to install packages in."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("farm_owners", None)


def install(site: Path, name: str, owners: dict[str, str]) -> None:
    (site / "farm_owners.py").write_text(PACKAGE)
    described = site / f"{name}-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"{kind} = {value}" for kind, value in owners.items()]
    (described / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))


@pytest.fixture
def owners(site: Path, clock: ManualClock) -> Iterator[Owners]:
    install(site, "farm", REGISTERED | BROKEN)
    with Owners(Settings(), clock) as created:
        yield created


def test_the_four_built_in_types_are_registered_and_can_be_created() -> None:
    with Owners(Settings()) as created:
        assert created.broken() == {}
        for kind in (AIRFLOW_RUN, SPARK_APP, EXPIRY, MANUAL):
            assert created.ask(record(kind)).answer is not Answer.UNKNOWN, kind


def test_a_person_as_owner_never_ends_by_itself_and_an_expiry_needs_a_time(clock: ManualClock) -> None:
    with Owners(Settings(), clock) as created:
        assert created.ask(record(MANUAL)) == Asked(Answer.RUNNING)
        assert created.ask(record(EXPIRY, expires_ms=1)) == Asked(Answer.RUNNING)
        asked = created.ask(record(EXPIRY))
        assert (asked.answer, reported(asked)) == (Answer.UNANSWERED, ("bad_value", "expires", "missing"))


@pytest.mark.parametrize(("kind", "needed"), [(AIRFLOW_RUN, "meta dag_id"), (SPARK_APP, "meta app_id")])
def test_a_record_that_lacks_what_its_owner_is_asked_by_is_not_released(
    kind: str, needed: str, clock: ManualClock
) -> None:
    with Owners(Settings(), clock) as created:
        asked = created.ask(record(kind))
        assert (asked.answer, reported(asked)) == (Answer.UNANSWERED, ("bad_value", needed, "missing"))


@pytest.mark.parametrize("says", ["finished", "running", "gone"])
def test_another_package_answers_for_its_own_type(owners: Owners, says: str) -> None:
    assert owners.ask(record("reported", says=says)) == Asked(Answer(says))


def test_a_type_without_a_registered_owner_is_unknown(owners: Owners) -> None:
    asked = owners.ask(record("sheep"))
    assert isinstance(asked.error, SweepflowError)
    assert (asked.answer, asked.error.details["owner_type"], asked.error.reason) == (Answer.UNKNOWN, "sheep", "missing")


def test_owners_that_cannot_be_loaded_are_named_and_do_not_affect_others(owners: Owners) -> None:
    broken = owners.broken()
    assert set(broken) == set(BROKEN)
    assert {name: (error.details["owner_type"], error.reason) for name, error in broken.items()} == {
        "missing": ("missing", "failed"),
        "misnamed": ("misnamed", "failed"),
        "unmakable": ("unmakable", "failed"),
        "nothing": ("nothing", "wrong_type"),
    }
    shown = {name: str(error) for name, error in broken.items()}
    assert "farm_that_is_not_there:Owner" in shown["missing"]
    assert "ModuleNotFoundError" in shown["missing"]
    assert "AttributeError" in shown["misnamed"]
    assert "RuntimeError" in shown["unmakable"]
    assert "secret" not in str(shown)
    assert owners.ask(record("missing")) == Asked(Answer.UNKNOWN, broken["missing"])
    assert owners.ask(record("reported", says="running")).answer is Answer.RUNNING


def test_a_type_that_two_packages_answer_for_is_answered_by_neither(site: Path, owners: Owners) -> None:
    install(site, "ranch", {"reported": "farm_owners:Silent"})
    with Owners(Settings()) as created:
        asked = created.ask(record("reported", says="finished"))
        assert (asked.answer, reported(asked)) == (Answer.UNKNOWN, ("failed", None, "duplicate"))
        assert "farm_owners:Silent" in asked.why
        assert "farm_owners:Stored" in asked.why


def test_the_same_owner_registered_twice_is_one(clock: ManualClock) -> None:
    twice = [EntryPoint(MANUAL, "sweep_tasks.protection.owners:ManualOwner", GROUP) for _ in range(2)]
    with Owners(Settings(), clock, twice) as created:
        assert created.ask(record(MANUAL)) == Asked(Answer.RUNNING)


def test_an_owner_that_may_answer_later_is_asked_again(owners: Owners, clock: ManualClock) -> None:
    before = clock.now_ms()
    assert owners.ask(record("hoarse")) == Asked(Answer.FINISHED)
    assert clock.now_ms() > before


def test_a_silent_owner_is_not_asked_about_every_record_and_is_closed_in_the_end(
    site: Path, clock: ManualClock
) -> None:
    install(site, "farm", REGISTERED)
    with Owners(Settings(), clock) as created:
        answers = {created.ask(record("silent", name)) for name in "abcdef"}
        silent = sys.modules["farm_owners"].Silent
        assert {(asked.answer, asked.why) for asked in answers} == {(Answer.UNANSWERED, "farm: barn locked")}
        assert (silent.asked, silent.closed) == (3, 0)
        assert created.ask(record("reported", says="gone")).answer is Answer.GONE
    assert silent.closed == 1


def test_an_invalid_answer_releases_nothing(owners: Owners) -> None:
    asked = owners.ask(record("mumbling"))
    assert (asked.answer, reported(asked)) == (Answer.UNANSWERED, ("unavailable", None, "wrong_type"))
    assert re.search(r"\bstr\b", asked.why), "the type of what came is named"


def test_the_text_of_a_foreign_error_is_not_shown(owners: Owners) -> None:
    asked = owners.ask(record("breaking"))
    assert (asked.answer, reported(asked)) == (Answer.UNANSWERED, ("unavailable", None, "failed"))
    assert "RuntimeError" in asked.why
    assert "password" not in asked.why


def test_questions_are_counted_by_how_they_ended(owners: Owners) -> None:
    def counted(outcome: str) -> float:
        labels = {"operation": "ask_owner", "outcome": outcome}
        return prometheus_client.REGISTRY.get_sample_value("sweepflow_protection_operations_total", labels) or 0

    before = {outcome: counted(outcome) for outcome in ("ok", "refused", "failed")}
    owners.ask(record("reported", says="gone"))
    owners.ask(record("breaking"))
    owners.ask(record(EXPIRY))
    assert {outcome: counted(outcome) - before[outcome] for outcome in before} == {"ok": 1, "refused": 1, "failed": 1}
