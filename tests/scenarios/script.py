"""Scenario files: prose, operations, and the expected outcome of each.

A line that starts with `#` is for the reader. A line that starts with `{` is an operation, and the next line holds its
outcome after `=> `. For an error, the code and the line are compared, and the names and numbers under `message` if the
file has some: each must occur in the real message, as a whole word. The wording is free. Only operations are passed to
the runner, so its line numbers count operations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ARROW = "=> "
Outcome = dict[str, Any]


class Step(NamedTuple):
    number: int
    """The number of the operation's line in the file, from 1."""
    operation: str
    expected: Outcome | None
    """None if the file has no expectation yet."""


class Script(NamedTuple):
    path: Path
    lines: list[str]
    steps: list[Step]

    @property
    def operations(self) -> list[str]:
        return [step.operation for step in self.steps]

    @property
    def expected(self) -> list[Outcome | None]:
        return [step.expected for step in self.steps]


def load(path: Path) -> Script:
    lines = path.read_text(encoding="utf-8").splitlines()
    steps: list[Step] = []
    above = ""
    for number, line in enumerate(lines):
        here = f"{path.name}:{number + 1}"
        if line.startswith("{"):
            below = lines[number + 1] if number + 1 < len(lines) else ""
            expected = json.loads(below.removeprefix(ARROW)) if below.startswith(ARROW) else None
            steps.append(Step(number + 1, line, expected))
        elif line.startswith(ARROW):
            assert above.startswith("{"), f"{here}: an outcome must follow its operation directly"
        else:
            assert not line or line.startswith("#"), f"{here}: neither prose nor an operation nor an outcome"
        above = line
    return Script(path, lines, steps)


def agrees(expected: Outcome | None, got: Outcome) -> bool:
    if expected is None:
        return False
    if "error" not in expected:
        return _text(expected) == _text(got)
    same = _text({**got, "message": ""}) == _text({**expected, "message": ""})
    return same and all(_names(got["message"], each) for each in expected.get("message", []))


def _names(message: str, value: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", message) is not None


def differences(script: Script, outcomes: Sequence[Outcome]) -> str:
    """Every disagreement, formatted for a reader; empty if there is none."""
    found = [
        f"{script.path.name}:{step.number}\n"
        f"  operation  {step.operation}\n"
        f"  expected   {'nothing yet' if step.expected is None else _text(step.expected)}\n"
        f"  got        {_text(got)}"
        for step, got in zip(script.steps, outcomes, strict=False)
        if not agrees(step.expected, got)
    ]
    if len(outcomes) != len(script.steps):
        found.append(f"{script.path.name}: {len(script.steps)} operations had {len(outcomes)} outcomes")
    return "\n".join(found)


def rewritten(script: Script, outcomes: Sequence[Outcome]) -> str:
    """The file with the real outcomes; lines that agree stay as they are."""
    lines = list(script.lines)
    for step, got in reversed(list(zip(script.steps, outcomes, strict=True))):
        if not agrees(step.expected, got):
            kept = {key: value for key, value in got.items() if key != "message"} if "error" in got else got
            old = slice(step.number, step.number + (step.expected is not None))
            lines[old] = [ARROW + json.dumps(kept, separators=(",", ":"))]
    return "".join(f"{line}\n" for line in lines)


def _text(outcome: Outcome) -> str:
    """Keys in order; distinguishes true from 1."""
    return json.dumps(outcome, sort_keys=True)
