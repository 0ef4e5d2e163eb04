"""Whose try a job is: told by the task that submits it, read by the job. One place for both, so that they agree."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence

from sweep_tasks.errors import BadValue
from sweep_tasks.observation.tally import Try

_OPTION = "--counted-as"


def as_arguments(by: Try) -> list[str]:
    return [_OPTION, *map(str, by)]


def add_argument(parser: ArgumentParser) -> None:
    parser.add_argument(
        _OPTION,
        nargs=len(Try._fields),
        metavar=("DAG", "RUN", "TASK", "TRY", "INDEX"),
        help="whose try this is, of a mapped task which one, else -1; counted once for each",
    )


def counted_as(given: Sequence[str] | None, otherwise: Try) -> Try:
    """A job that nobody named is a run of its own."""
    if not given:
        return otherwise
    dag, run, task, number, index = given
    if not (number.isdigit() and index.removeprefix("-").isdigit()):
        raise BadValue("counted_as", "the try and the index must be numbers: 1 for the first try, -1 for no index")
    return Try(dag, run, task, int(number), int(index))
