"""The base of orders, what one process asks another to do, and the error that may come back: one JSON document each.

An order is checked when it is created, in whichever process that is. What is wrong with it is a `BadValue` with the
name of the field, whether Python code, a form or a document gave the value.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import ConfigDict, ModelWrapValidatorHandler, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from sweep_tasks.errors import BadValue, SweepflowError

ORDER = "order"
"""The field that an error names if the whole document is unusable."""
ORDER_CONFIG = ConfigDict(extra="forbid", defer_build=True)


@dataclass(frozen=True, config=ORDER_CONFIG)
class Order:
    @model_validator(mode="wrap")
    @classmethod
    def _refuse_bad_values(cls, given: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return validate(given)
        except ValidationError as error:
            raise _bad_value(cls, error) from None

    def document(self) -> str:
        """Return the order as one line of JSON."""
        return TypeAdapter(type(self)).dump_json(self).decode()

    @classmethod
    def parse(cls, document: str) -> Self:
        """Return the order that a JSON document describes."""
        try:
            return TypeAdapter(cls).validate_json(document)
        except ValidationError as error:
            raise _bad_value(cls, error) from None


def _bad_value(order: type[Order], error: ValidationError) -> BadValue:
    """Convert the first problem. Its message repeats no value: a row key is data of the user."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = problem["loc"][0] if problem["loc"] else ORDER
    field = list(order.__dataclass_fields__)[place] if isinstance(place, int) else place
    return BadValue(field, problem["msg"])


@dataclass(frozen=True)
class ErrorDocument:
    """One of our own errors on its way to another process."""

    kind: str
    """The name of its class."""
    code: str
    exit_code: int
    field: str | None
    reason: str | None
    message: str

    @classmethod
    def of(cls, error: SweepflowError, kind: str | None = None) -> ErrorDocument:
        return cls(kind or type(error).__name__, error.code, error.exit_code, error.field, error.reason, str(error))

    def document(self) -> str:
        """Return the error as one line of JSON. `parse` is the inverse."""
        return TypeAdapter(ErrorDocument).dump_json(self).decode()

    @classmethod
    def parse(cls, document: str) -> ErrorDocument:
        return TypeAdapter(cls).validate_json(document)
