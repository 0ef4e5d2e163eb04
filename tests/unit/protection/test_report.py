from __future__ import annotations

import json

import pytest

from sweep_tasks.config import Settings
from sweep_tasks.durations import words
from sweep_tasks.protection.ledger import Meta
from sweep_tasks.protection.report import Finding, Outcome, Report, problems, readable

HOUR_S, DAY_S = 3_600, 86_400
SETTINGS = Settings(max_protection_records=10, max_protection_spans=100)


def report(*findings: Finding, meta: Meta = Meta(), **given: object) -> Report:  # noqa: B008
    return Report(1_000, meta=meta, findings=findings, **({"dry_run": False} | given))  # type: ignore[arg-type]


def finding(outcome: Outcome, age_s: int | None = 2 * DAY_S + 3 * HOUR_S, why: str = "") -> Finding:
    return Finding("nightly", "airflow_run", age_s, outcome, why)


def sentences(found: Report, settings: Settings = SETTINGS) -> list[str]:
    return [each.sentence for each in problems(found, settings)]


@pytest.mark.parametrize(
    ("outcome", "why", "said"),
    [
        (
            Outcome.GONE,
            "",
            "its owner is gone; see whether it is still needed, then 'sweepflow release nightly'",
        ),
        (
            Outcome.UNKNOWN,
            "nobody answers for owners of type 'x'",
            "nobody answers for owners of type 'x'; install the package that does, or release it with "
            "'sweepflow release nightly'",
        ),
        (Outcome.UNANSWERED, "airflow: away", "its owner could not be asked: airflow: away"),
        (Outcome.FAILED, "store: busy", "it could not be settled or released: store: busy"),
    ],
)
def test_what_a_person_must_decide_is_a_sentence_with_owner_and_age(outcome: Outcome, why: str, said: str) -> None:
    [sentence] = sentences(report(finding(outcome, why=why)))
    assert sentence == f"record 'nightly' of owner type airflow_run, 2 days 3 hours old: {said}"


@pytest.mark.parametrize("outcome", [Outcome.RELEASED, Outcome.KEPT, Outcome.PENDING, Outcome.DROPPED, Outcome.CHANGED])
def test_what_goes_its_way_is_no_problem(outcome: Outcome) -> None:
    assert sentences(report(finding(outcome))) == []


@pytest.mark.parametrize("outcome", [Outcome.KEPT, Outcome.PENDING, Outcome.CHANGED])
def test_a_record_older_than_allowed_is_a_problem_however_alive_its_owner(outcome: Outcome) -> None:
    week = SETTINGS.protection_max_age_s
    assert sentences(report(finding(outcome, week))) == []
    [sentence] = sentences(report(finding(outcome, week + HOUR_S)))
    assert sentence == (
        "record 'nightly' of owner type airflow_run, 1 week 1 hour old: allowed are 1 week (protection_max_age_s); "
        "see whether it is still needed, then 'sweepflow release nightly'"
    )
    assert sentences(report(finding(outcome, week + HOUR_S)), Settings(protection_max_age_s=0)) == []


def test_a_record_of_unknown_age_is_not_passed_over() -> None:
    [sentence] = sentences(report(finding(Outcome.KEPT, None)))
    assert "of unknown age" in sentence


def test_an_old_record_that_is_gone_now_is_none() -> None:
    found = report(finding(Outcome.RELEASED, 9 * DAY_S), finding(Outcome.KEPT, 60))
    assert (sentences(found), found.oldest_age_s) == ([], 60)


def test_a_limit_that_is_nearly_reached_is_a_problem_with_its_way_out() -> None:
    assert sentences(report(meta=Meta(1, 7, 79))) == []
    assert sentences(report(meta=Meta(1, 8, 79))) == [
        "protections: 8 of at most 10 records are in use; release what is no longer needed, or raise the setting "
        "max_protection_records"
    ]
    assert len(sentences(report(meta=Meta(1, 8, 80)))) == 2
    assert sentences(report(meta=Meta(1, 8, 80)), Settings(max_protection_records=0, max_protection_spans=0)) == []


def test_an_owner_that_can_not_be_loaded_is_a_problem_even_if_no_record_names_it() -> None:
    assert sentences(report(broken_owners={"x": "owner type 'x' can't be loaded"})) == [
        "owner type 'x' can't be loaded"
    ]


def test_a_problem_keeps_its_name_while_it_grows_older() -> None:
    names = {problems(report(finding(Outcome.GONE, age_s)), SETTINGS)[0].about for age_s in (1, HOUR_S, 30 * DAY_S)}
    assert names == {"record nightly gone"}


def test_the_document_counts_every_outcome_and_is_json() -> None:
    document = report(finding(Outcome.GONE)).document(SETTINGS)
    assert document["outcomes"] == {outcome.value: int(outcome is Outcome.GONE) for outcome in Outcome}
    assert json.loads(json.dumps(document)) == document


def test_people_read_the_whole_first_and_then_every_record() -> None:
    found = report(
        finding(Outcome.RELEASED, why="it has expired"), finding(Outcome.KEPT, 5), meta=Meta(4, 1, 2), dry_run=True
    )
    assert readable(found.document(SETTINGS)) == [
        "1 records with 2 spans: 1 released, 1 kept (a dry run: nothing was changed)",
        "released: record 'nightly' of owner type airflow_run, 2 days 3 hours old (it has expired)",
        "kept: record 'nightly' of owner type airflow_run, 5 seconds old",
    ]
    assert readable(report(recounted=True).document(SETTINGS)) == [
        "0 records with 0 spans: nothing to do; the counts were wrong and are mended"
    ]


def test_an_age_is_told_in_the_two_greatest_units() -> None:
    assert [words(each) for each in (0, 59, 3_661, 30 * DAY_S)] == [
        "0 seconds", "59 seconds", "1 hour 1 minute", "4 weeks 2 days",
    ]  # fmt: skip
