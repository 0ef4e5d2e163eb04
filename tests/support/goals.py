"""Goals of benchmarks in tests: a small size on a machine with other load, so only half of a goal is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.shared.goals import Goal

SLACK = 2
ATTEMPTS = 2


def missed(measure: Callable[[], Sequence[Goal]]) -> list[Goal]:
    """Return the goals that are missed by more than the slack. Other load can make one measurement too slow, so these
    are measured once more."""
    found: list[Goal] = []
    for _ in range(ATTEMPTS):
        found = [goal for goal in measure() if not goal.held_within(SLACK)]
        if not found:
            break
    return found
