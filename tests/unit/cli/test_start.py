"""The command starts fast: it imports what it needs."""

from __future__ import annotations

from benchmarks.command_start import measure


def test_help_and_status_start_in_a_small_multiple_of_the_time_of_python() -> None:
    """The figures of a quiet machine are far below; importing all commands took about fifty times."""
    measured = measure(rounds=3)
    assert measured["help"] < 10, measured
    assert measured["status"] < 40, measured
