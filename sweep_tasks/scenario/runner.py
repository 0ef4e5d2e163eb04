"""Runs a scenario: a line in, a line out. An operation that fails says so, changes nothing, and the run goes on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from sweep_tasks.config import Settings
from sweep_tasks.errors import SweepflowError
from sweep_tasks.scenario.engines import SweepEngine
from sweep_tasks.scenario.fields import checked
from sweep_tasks.scenario.operations import LANGUAGE, Operations
from sweep_tasks.store.contract import Store


class BadJson(SweepflowError):
    code = "bad_json"


class UnknownOperation(SweepflowError):
    code = "unknown_op"


def run_scenario(
    lines: Iterable[str], store: Store, settings: Settings, engine: SweepEngine | None = None
) -> Iterator[dict[str, Any]]:
    """One outcome for each line that is not blank; a failed one has the key `error`."""
    operations = Operations(store, settings, engine)
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield _perform(operations, line)
            except SweepflowError as error:
                yield {"error": error.code, "message": str(error), "line": number}


def _perform(operations: Operations, line: str) -> dict[str, Any]:
    try:
        operation = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadJson(f"line: is not JSON: {error}") from error
    if not isinstance(operation, dict):
        raise BadJson("line: is not a JSON object; write one operation a line")
    name = operation.get("op")
    if not isinstance(name, str) or name not in LANGUAGE:
        raise UnknownOperation(f"op: there is no operation {name!r}; there are {', '.join(LANGUAGE)}")
    perform, fields = LANGUAGE[name]
    return perform(operations, **checked(operation, fields))
