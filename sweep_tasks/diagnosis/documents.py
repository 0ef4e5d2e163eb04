"""Turns the models of this package into the JSON documents of `--json`: the only place where they are serialised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel

from sweep_tasks.model import TableRef

NOT_IN_DOCUMENT = {"in_document": False}
"""Metadata of dataclass fields that only Python code uses."""


def as_document(model: object) -> dict[str, Any]:
    """Return a model as a JSON object: a key for each field, enums and tables by name, models inside it as objects."""
    if isinstance(model, BaseModel):
        return model.model_dump(mode="json")
    if is_dataclass(model):
        names = [each.name for each in fields(model) if each.metadata.get("in_document", True)]
    else:
        names = list(getattr(model, "_fields", ()))
    return {name: _plain(getattr(model, name)) for name in names}


def _plain(value: object) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, TableRef):
        return str(value)
    if isinstance(value, BaseModel) or is_dataclass(value) or hasattr(value, "_fields"):
        return as_document(value)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
