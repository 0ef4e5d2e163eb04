"""The goals of benchmarks: what was measured, the bound that it should keep, and whether it does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self


class Bound(StrEnum):
    AT_MOST = "at most"
    AT_LEAST = "at least"


@dataclass(frozen=True)
class Goal:
    what: str
    measured: float
    bound: Bound
    goal: float

    @property
    def held(self) -> bool:
        return self.held_within(1)

    def held_within(self, slack: float) -> bool:
        """Whether the goal would be held if it were this many times easier. Tests on a busy machine allow that."""
        if self.bound is Bound.AT_MOST:
            return self.measured <= slack * self.goal
        return self.measured >= self.goal / slack

    def document(self) -> dict[str, Any]:
        return asdict(self) | {"bound": self.bound.value, "held": self.held}

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        return cls(document["what"], document["measured"], Bound(document["bound"]), document["goal"])


def at_most(what: str, measured: float, goal: float) -> Goal:
    return Goal(what, round(measured, 3), Bound.AT_MOST, goal)


def at_least(what: str, measured: float, goal: float) -> Goal:
    return Goal(what, round(measured, 3), Bound.AT_LEAST, goal)


def documents(goals: Iterable[Goal]) -> list[dict[str, Any]]:
    return [goal.document() for goal in goals]


def parsed(documents: Iterable[Mapping[str, Any]]) -> list[Goal]:
    return [Goal.parse(each) for each in documents]
