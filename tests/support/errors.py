"""For `pytest.raises(..., check=having(...))`: the attributes and details that an error must have."""

from __future__ import annotations

from collections.abc import Callable

from sweep_tasks.errors import SweepflowError


def having(**expected: object) -> Callable[[SweepflowError], bool]:
    def check(error: SweepflowError) -> bool:
        found = {name: getattr(error, name, error.details.get(name)) for name in expected}
        return found == expected

    return check
