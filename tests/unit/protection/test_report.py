from __future__ import annotations

import json
import re

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.protection.ledger import ProtectionMetadata
from sweep_tasks.protection.reconciliation import (
    RecordFinding,
    RecordOutcome,
    RecordProblem,
    Report,
    age,
    problems,
    readable,
)
from sweep_tasks.texts import duration

HOUR_S, DAY_S = 3_600, 86_400
RELEASE = "sweepflow release nightly"
SETTINGS = Settings(max_protection_records=10, max_protection_spans=100)


def report(*findings: RecordFinding, meta: ProtectionMetadata = ProtectionMetadata(), **given: object) -> Report:  # noqa: B008
    return Report(1_000, meta=meta, findings=findings, **({"dry_run": False} | given))  # type: ignore[arg-type]


def finding(outcome: RecordOutcome, age_s: int | None = 2 * DAY_S + 3 * HOUR_S, why: str = "") -> RecordFinding:
    return RecordFinding("nightly", "airflow_run", age_s, outcome, why)


def about(found: Report, settings: Settings = SETTINGS) -> list[str]:
    return [each.about for each in problems(found, settings)]


@pytest.mark.parametrize(
    ("outcome", "why", "named"),
    [
        (RecordOutcome.GONE, "", RELEASE),
        (RecordOutcome.UNKNOWN, "no owner", RELEASE),
        (RecordOutcome.UNANSWERED, "airflow: away", "airflow: away"),
        (RecordOutcome.FAILED, "store: busy", "store: busy"),
    ],
)
def test_a_record_that_needs_attention_is_shown_with_owner_age_and_remedy(
    outcome: RecordOutcome, why: str, named: str
) -> None:
    [problem] = problems(report(finding(outcome, why=why)), SETTINGS)
    assert problem.about == f"record nightly {outcome}"
    for shown in ("nightly", "airflow_run", duration(2 * DAY_S + 3 * HOUR_S), why, named):
        assert shown in problem.sentence


@pytest.mark.parametrize(
    "outcome",
    [
        RecordOutcome.RELEASED,
        RecordOutcome.KEPT,
        RecordOutcome.PENDING,
        RecordOutcome.DROPPED,
        RecordOutcome.CHANGED,
    ],
)
def test_a_normal_outcome_is_no_problem(outcome: RecordOutcome) -> None:
    assert about(report(finding(outcome))) == []


@pytest.mark.parametrize("outcome", [RecordOutcome.KEPT, RecordOutcome.PENDING, RecordOutcome.CHANGED])
def test_a_record_older_than_allowed_is_a_problem_however_alive_its_owner(outcome: RecordOutcome) -> None:
    week = SETTINGS.protection_max_age_s
    assert about(report(finding(outcome, week))) == []
    [problem] = problems(report(finding(outcome, week + HOUR_S)), SETTINGS)
    assert problem.about == "record nightly too_old"
    old, allowed = duration(week + HOUR_S), duration(week)
    for shown in ("nightly", "airflow_run", old, "protection_max_age_s", RELEASE):
        assert shown in problem.sentence
    assert allowed in problem.sentence.replace(old, "")
    assert about(report(finding(outcome, week + HOUR_S)), Settings(protection_max_age_s=0)) == []


def test_a_record_of_unknown_age_is_reported() -> None:
    [problem] = problems(report(finding(RecordOutcome.KEPT, None)), SETTINGS)
    assert problem.about == "record nightly too_old"
    assert age(None) in problem.sentence
    assert "None" not in problem.sentence


def test_an_old_record_that_was_released_is_not_reported() -> None:
    found = report(finding(RecordOutcome.RELEASED, 9 * DAY_S), finding(RecordOutcome.KEPT, 60))
    assert (about(found), found.oldest_age_s) == ([], 60)


def test_a_limit_that_is_nearly_reached_is_a_problem_with_its_way_out() -> None:
    assert about(report(meta=ProtectionMetadata(1, 7, 79))) == []
    [problem] = problems(report(meta=ProtectionMetadata(1, 8, 79)), SETTINGS)
    assert problem.about == "limit records"
    assert {"8", "10"} <= set(re.findall(r"\d+", problem.sentence))
    assert "max_protection_records" in problem.sentence
    assert about(report(meta=ProtectionMetadata(1, 8, 80))) == ["limit records", "limit spans"]
    assert (
        about(report(meta=ProtectionMetadata(1, 8, 80)), Settings(max_protection_records=0, max_protection_spans=0))
        == []
    )


def test_an_owner_that_can_not_be_loaded_is_a_problem_even_if_no_record_names_it() -> None:
    assert problems(report(broken_owners={"x": "x: broken"}), SETTINGS) == [RecordProblem("owner x", "x: broken")]


def test_a_problem_keeps_its_name_while_it_grows_older() -> None:
    names = {
        problems(report(finding(RecordOutcome.GONE, age_s)), SETTINGS)[0].about for age_s in (1, HOUR_S, 30 * DAY_S)
    }
    assert names == {"record nightly gone"}


def test_the_document_counts_every_outcome_and_is_json() -> None:
    document = report(finding(RecordOutcome.GONE)).document(SETTINGS).model_dump(mode="json")
    assert document["outcomes"] == {outcome.value: int(outcome is RecordOutcome.GONE) for outcome in RecordOutcome}
    assert json.loads(json.dumps(document)) == document


def test_the_text_report_has_the_summary_first_and_then_every_record() -> None:
    found = report(
        finding(RecordOutcome.RELEASED, why="expired"),
        finding(RecordOutcome.KEPT, 5),
        meta=ProtectionMetadata(4, 12, 34),
    )
    whole, released, kept = readable(found.document(SETTINGS))
    assert sorted(re.findall(r"\d+", whole)) == ["1", "1", "12", "34"]
    assert [outcome for outcome in RecordOutcome if outcome in whole] == [
        RecordOutcome.RELEASED,
        RecordOutcome.KEPT,
    ]
    for shown in ("released", "nightly", "airflow_run", duration(2 * DAY_S + 3 * HOUR_S), "expired"):
        assert shown in released
    for shown in ("kept", "nightly", "airflow_run", duration(5)):
        assert shown in kept


def test_the_text_report_shows_a_dry_run_and_corrected_counts() -> None:
    shown = [
        readable(report(dry_run=dry_run, recounted=recounted).document(SETTINGS))
        for dry_run in (False, True)
        for recounted in (False, True)
    ]
    assert {len(lines) for lines in shown} == {1}
    assert len({lines[0] for lines in shown}) == 4
    assert all(re.findall(r"\d+", lines[0]) == ["0", "0"] for lines in shown)
