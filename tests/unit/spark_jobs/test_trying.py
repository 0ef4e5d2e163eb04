"""What a task says of itself is what the jobs understand."""

from __future__ import annotations

from argparse import ArgumentParser

import pytest

from spark_jobs import legacy_sweep, targeted_sweep
from spark_jobs.trying import as_arguments, counted_as
from sweep_tasks.errors import BadValue
from sweep_tasks.observation.tally import Try

ALONE = Try("spark-submit", "1", "alone")
PARSERS = {
    "targeted sweep": (targeted_sweep.argument_parser(), ["--strategy", "thorough", "--shard", "0"]),
    "legacy sweep": (legacy_sweep.argument_parser(), ["--table", "shop.items"]),
}


@pytest.mark.parametrize("job", PARSERS)
@pytest.mark.parametrize("by", [Try("a_dag", "manual__2026", "a.task"), Try("a_dag", "monday", "a.task", 3, 12)])
def test_every_job_reads_the_try_as_it_was_told(job: str, by: Try) -> None:
    parser, others = PARSERS[job]
    assert read(parser, [*others, *as_arguments(by)]) == by


@pytest.mark.parametrize("job", PARSERS)
def test_a_job_that_nobody_named_is_a_run_of_its_own(job: str) -> None:
    parser, others = PARSERS[job]
    assert read(parser, others) == ALONE


@pytest.mark.parametrize("numbers", [("first", "-1"), ("1", "none")])
def test_what_is_no_number_is_refused(numbers: tuple[str, str]) -> None:
    with pytest.raises(BadValue) as refused:
        counted_as(["a_dag", "monday", "a.task", *numbers], ALONE)
    assert refused.value.field == "counted_as"


def read(parser: ArgumentParser, arguments: list[str]) -> Try:
    return counted_as(parser.parse_args(arguments).counted_as, ALONE)
