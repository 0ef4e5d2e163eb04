"""Types that several groups of settings share."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal, LiteralString

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError
from pydantic_settings import NoDecode

MIB = 1024 * 1024
MAX_PAGE_VERSIONS = 100_000
"""Maximum page of a scan: every worker holds one page in memory."""


def listed(given: Any) -> Any:
    """Split a comma-separated string, which is how an environment variable holds a list."""
    return [part.strip() for part in given.split(",") if part.strip()] if isinstance(given, str) else given


Consistency = Literal["one", "two", "three", "quorum", "local_quorum", "each_quorum", "all"]
LogFormat = Literal["text", "json"]
CommaSeparated = Annotated[tuple[str, ...], NoDecode, BeforeValidator(listed)]
Share = Annotated[Decimal, Field(le=1, decimal_places=9)]
"""Decimal, so that the value is exactly as written."""


class ByName(dict[str, Any]):
    """A dictionary with a hash, which is safe because settings are immutable. Open stores are cached by settings."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def refused(reason: LiteralString, problem: str) -> PydanticCustomError:
    """Return the validation error of a setting, with a reason that callers can distinguish."""
    return PydanticCustomError(reason, "{problem}", {"problem": problem})
