"""All settings, in typed groups, loaded from the environment (`SWEEPFLOW_…`) or from one TOML file.

The environment takes precedence over the file. No other package reads the environment, except `processes.py`, which
passes it on to child processes. A new setting belongs in one of the groups; its name is the same everywhere.
"""

from __future__ import annotations

import difflib
import functools
import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog
from pydantic import SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from sweep_tasks.config.alerts import AlertSettings
from sweep_tasks.config.compaction import CompactionNode, CompactionSettings, TableThresholds
from sweep_tasks.config.protection import ProtectionSettings
from sweep_tasks.config.store import StoreSettings, TransactionSettings
from sweep_tasks.config.sweep import LegacySettings, SweepSettings
from sweep_tasks.config.tasks import TaskSettings
from sweep_tasks.config.values import MAX_PAGE_VERSIONS, ByName, Consistency, LogFormat
from sweep_tasks.errors import BadValue

__all__ = [
    "FILE_VARIABLE", "MAX_PAGE_VERSIONS", "CompactionNode", "Consistency", "LogFormat", "Settings", "TableThresholds",
    "as_environment", "check_variables", "load_settings",
]  # fmt: skip

log = structlog.get_logger(__name__)

_PREFIX = "SWEEPFLOW_"
FILE_VARIABLE = f"{_PREFIX}CONFIG"
_OF_TESTS = f"{_PREFIX}TEST_"
"""Variables that only the tests read."""
_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)\Z")
"""Variables that Kubernetes sets in every container for each service, also for one that is called sweepflow."""


class Settings(
    AlertSettings,
    TaskSettings,
    CompactionSettings,
    ProtectionSettings,
    LegacySettings,
    SweepSettings,
    TransactionSettings,
    StoreSettings,
    BaseSettings,
):
    """All groups. They are listed from the last to the first, because fields are collected in reverse order."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="forbid", frozen=True, hide_input_in_errors=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources of settings.

        The environment is only searched if it has a variable of ours: searching it field by field takes four times as
        long as everything else.
        """
        sources = [init_settings]
        if any(name.upper().startswith(_PREFIX) for name in os.environ):
            sources.append(env_settings)
        if file := os.environ.get(FILE_VARIABLE):
            sources.append(TomlConfigSettingsSource(settings_cls, Path(file)))
        return tuple(sources)


def check_variables() -> None:
    """Fail if a variable with our prefix names no setting: a typing error would leave a safeguard at its default.

    This is for commands that a person starts. A running service only logs it (`load_settings`), because during an
    upgrade the environment may be newer than the program.
    """
    for name, nearest in _unknown_variables():
        raise _unknown_variable(name, nearest)


def _unknown_variable(name: str, nearest: str | None) -> BadValue:
    """The value is not shown: it may be a secret that was given under a wrong name."""
    meant = f"did you mean {nearest}? Rename" if nearest else "rename"
    problem = f"is not a setting of sweepflow; {meant} or unset it"
    return BadValue(name, problem, reason="unknown_variable", nearest=nearest)


def _unknown_variables() -> list[tuple[str, str | None]]:
    """Return the unknown variables, each with the most similar known name."""
    found = sorted(name for name, value in os.environ.items() if _is_unknown(name.upper(), value))
    return [(name, _nearest_variable(name.upper())) for name in found]


def _is_unknown(name: str, value: str) -> bool:
    if not name.startswith(_PREFIX) or name.startswith(_OF_TESTS) or name in _known_variables():
        return False
    is_service_link = _SERVICE_LINK.search(name) or (name.endswith("_PORT") and "://" in value)
    return not is_service_link


@functools.cache
def _known_variables() -> frozenset[str]:
    return frozenset({FILE_VARIABLE, *(f"{_PREFIX}{name.upper()}" for name in Settings.model_fields)})


def _nearest_variable(name: str) -> str | None:
    """Return the most similar known variable. The common prefix is ignored: it would make any two similar."""
    known = {each.removeprefix(_PREFIX): each for each in sorted(_known_variables())}
    nearest = _nearest(name.removeprefix(_PREFIX), list(known))
    return known[nearest] if nearest else None


def _nearest(name: str, known: Sequence[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, known, n=1)), None)


_LOGGED = set[str]()


def _log_unknown_variables() -> None:
    """Log each unknown variable once per process."""
    for name, nearest in _unknown_variables():
        if name not in _LOGGED:
            _LOGGED.add(name)
            log.warning(str(_unknown_variable(name, nearest)), code="unknown_variable", variable=name, nearest=nearest)


def load_settings(**overrides: Any) -> Settings:
    """Load the settings; `overrides` take precedence over the environment."""
    _log_unknown_variables()
    file = os.environ.get(FILE_VARIABLE)
    if file and not Path(file).is_file():
        raise BadValue(FILE_VARIABLE, f"names {file}, which is not a file; correct or unset it", reason="not_a_file")
    try:
        return Settings(**overrides)
    except tomllib.TOMLDecodeError as error:
        raise BadValue(FILE_VARIABLE, f"{file} is not TOML: {error}", reason="not_toml") from error
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = f"setting {'.'.join(map(str, first['loc']))}".rstrip()
        raise BadValue(field, first["msg"] + _meant(first), reason=first["type"]) from error


def _meant(problem: Mapping[str, Any]) -> str:
    """Return a suggestion for an unknown key in the file."""
    name = str(problem["loc"][0]) if problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1 else ""
    nearest = _nearest(name, sorted(Settings.model_fields)) if name else None
    return f"; did you mean {nearest}?" if nearest else ""


def as_environment(settings: Settings) -> dict[str, str]:
    """Return the environment variables that give a child process these settings; defaults are omitted."""
    given = {name: getattr(settings, name) for name in settings.model_fields_set}
    return {f"{_PREFIX}{name.upper()}": _as_text(value) for name, value in given.items() if value is not None}


def _as_text(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, ByName):
        return json.dumps({name: own.model_dump(mode="json", exclude_unset=True) for name, own in value.items()})
    return ",".join(value) if isinstance(value, tuple) else str(value)
