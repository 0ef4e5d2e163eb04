"""The compose file as the checks use it: with substituted variables, commands and mounts as plain values."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from dotenv import dotenv_values
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yaml"
DOCKERFILE = ROOT / "deploy" / "Dockerfile"

Document = dict[str, Any]
DEFAULT = ":-"
IMAGE = re.compile(r"\$\{(?P<variable>[A-Z]+_IMAGE):-(?P<image>[^}]+)\}")
"""A pulled image: by its version, or by the digest that the variable contains."""
_REFERENCE = re.compile(r"\$\$|\$\{(?P<name>\w+)(?P<operator>:?[?+-])?(?P<rest>[^}]*)\}")


def load(file: Path = COMPOSE_FILE) -> Document:
    """Refuse duplicate keys, as Compose does."""
    document: Document = YAML(typ="safe", pure=True).load(file.read_text())
    return document


class Mount(NamedTuple):
    source: str
    target: str

    @property
    def is_volume(self) -> bool:
        return not self.source.startswith((".", "/", "~"))


class Airflow(NamedTuple):
    """Facts about the installed Airflow."""

    commands: dict[str, dict[str, list[str] | None]]
    settings: dict[str, str | None]


@dataclass(frozen=True)
class Service:
    name: str
    definition: Document

    @property
    def environment(self) -> dict[str, str]:
        return {name: str(value) for name, value in self.definition.get("environment", {}).items()}

    @property
    def command(self) -> list[str]:
        return [str(word) for word in self.definition.get("command", [])]

    @property
    def health_check(self) -> list[str]:
        return [str(word) for word in self.definition.get("healthcheck", {}).get("test", [])][1:]

    @property
    def mounts(self) -> list[Mount]:
        return [Mount(*text.split(":")[:2]) for text in self.definition.get("volumes", [])]

    @property
    def runs_once(self) -> bool:
        return bool(self.definition.get("restart") == "no")

    @property
    def texts(self) -> list[str]:
        """Return all values that may contain the address of another service."""
        return [*self.environment.values(), *self.command, *self.health_check]


@dataclass(frozen=True)
class Deployment:
    """The compose file and related files. A test changes one of them and verifies that the checks detect it."""

    document: Document
    dockerfile: str
    variables: Mapping[str, str]
    airflow: Airflow

    @cached_property
    def services(self) -> dict[str, Service]:
        filled = filled_in(self.document, self.variables)
        return {name: Service(name, definition) for name, definition in filled["services"].items()}

    @property
    def image(self) -> str:
        """Return the image that is built from this project."""
        return str(next(each.definition["image"] for each in self.services.values() if "build" in each.definition))

    def ours(self) -> list[Service]:
        return [each for each in self.services.values() if each.definition.get("image") == self.image]


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value


def references(document: Document) -> list[tuple[str, str]]:
    """Return every variable that the services use, and its operator (`:?`: required, `:-`: has a default)."""
    found = [_REFERENCE.finditer(text) for text in texts(document["services"])]
    return [(match["name"], match["operator"] or "") for matches in found for match in matches if match["name"]]


def filled_in(value: Any, variables: Mapping[str, str]) -> Any:
    def given(match: re.Match[str]) -> str:
        if not match["name"]:
            return "$"
        default = match["rest"] if match["operator"] == DEFAULT else ""
        return variables.get(match["name"]) or default

    if isinstance(value, dict):
        return {key: filled_in(inner, variables) for key, inner in value.items()}
    if isinstance(value, list):
        return [filled_in(inner, variables) for inner in value]
    if isinstance(value, str):
        return _REFERENCE.sub(given, value)
    return value


@cache
def generated_variables() -> dict[str, str]:
    """Return what `sweepflow deploy env` writes, parsed as Compose parses it."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / ".env"
        command = [str(Path(sys.executable).parent / "sweepflow"), "deploy", "env", "--file", str(file)]
        subprocess.run(command, check=True, capture_output=True, timeout=240)
        return {name: value or "" for name, value in dotenv_values(file).items()}


@cache
def installed_airflow() -> Airflow:
    with TemporaryDirectory() as home:
        ended = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.deployment.airflow_facts"],
            cwd=ROOT,
            env={"AIRFLOW_HOME": home, "PATH": "/usr/bin:/bin"},
            check=True,
            capture_output=True,
            timeout=240,
        )
    return Airflow(**json.loads(ended.stdout.splitlines()[-1]))
