"""Runs a scenario: reads one operation per line and yields one outcome each, on a store created for scenarios."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from sweep_tasks.config import Settings
from sweep_tasks.connections import open_store
from sweep_tasks.errors import BadValue, NotInitialised, StoreMissing, SweepflowError
from sweep_tasks.model import Cell
from sweep_tasks.scenario.engines import SweepEngine
from sweep_tasks.scenario.fields import checked
from sweep_tasks.scenario.operations import LANGUAGE, Operations
from sweep_tasks.scenario.outcomes import FailedOperation, JsonObject, Outcome, document
from sweep_tasks.store import StoreLocation, initialise_store
from sweep_tasks.store.contract import Store
from sweep_tasks.store.schema import TIMESTAMP

# ---------------------------------------------------------------------------------------------------------------------
# Scenarios only run on stores that were created for scenarios.
#
# A scenario chooses its own timestamps and commits. In a store that applications use, it would move the timestamp
# service far ahead and commit transactions that no application started. So a store is marked when it is created.
# ---------------------------------------------------------------------------------------------------------------------

_CREATED_FOR_SCENARIOS = Cell(b"scenario", b"v")


def initialise_if_missing(url: str, settings: Settings) -> bool:
    """Create the store if it does not exist, and return True if it was created. The schema of an existing store is not
    upgraded: that is left to its owner."""
    if not StoreLocation.parse(url).is_persistent:
        return True
    try:
        open_store(url, settings).close()
    except (NotInitialised, StoreMissing):
        return initialise_store(url, settings)
    return False


def mark_for_scenarios(store: Store) -> None:
    """Mark a store as created for scenarios. Only for a store that was just created and is not used yet."""
    store.put_if_absent(TIMESTAMP, {_CREATED_FOR_SCENARIOS: b"1"})


def check_for_scenarios(store: Store) -> None:
    """Raise `BadValue` if a store was not created for scenarios."""
    if not store.read(TIMESTAMP, [_CREATED_FOR_SCENARIOS]):
        raise BadValue(
            "store",
            "was not created by a scenario, and scenarios choose their own timestamps and commits; omit --store to run "
            "in memory, or use a store that does not exist yet",
            reason="not_for_scenarios",
        )


# ---------------------------------------------------------------------------------------------------------------------
# Running a scenario. An operation that fails reports an error and changes nothing, and the run continues.
# ---------------------------------------------------------------------------------------------------------------------


class BadJson(SweepflowError):
    """A line of a scenario that is not a JSON object."""

    code = "bad_json"


class UnknownOperation(SweepflowError):
    """A line of a scenario with an operation that does not exist."""

    code = "unknown_op"


def run_scenario(
    lines: Iterable[str], store: Store, settings: Settings, engine: SweepEngine | None = None
) -> Iterator[JsonObject]:
    """Yield one outcome, as a JSON document, for each line that is not blank. That of a failed operation has the key
    `error`. A store that was not created for scenarios is refused before the first line."""
    check_for_scenarios(store)
    return _outcomes(lines, Operations(store, settings, engine))


def _outcomes(lines: Iterable[str], operations: Operations) -> Iterator[JsonObject]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                outcome = _perform(operations, line)
            except SweepflowError as error:
                outcome = FailedOperation(error.code, str(error), number)
            yield document(outcome)


def _perform(operations: Operations, line: str) -> Outcome:
    try:
        operation = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadJson(f"line: is not valid JSON: {error}") from error
    if not isinstance(operation, dict):
        raise BadJson("line: is not a JSON object; write one operation per line")
    name = operation.get("op")
    if not isinstance(name, str) or name not in LANGUAGE:
        raise UnknownOperation(f"op: unknown operation {name!r}; use one of {', '.join(LANGUAGE)}")
    perform, fields = LANGUAGE[name]
    return perform(operations, **checked(operation, fields))
