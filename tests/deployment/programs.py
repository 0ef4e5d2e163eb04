"""Checks that every command, health check and script uses an existing program with valid options."""

from __future__ import annotations

import shlex
import zipfile
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyspark

from sweep_tasks.cli.main import load_all
from tests.deployment.compose import ROOT, Airflow, Deployment
from tests.deployment.image import scripts

OF_OTHER_IMAGES = {"postgres": {"pg_isready"}, "cassandra": {"cqlsh"}}
SHELL_WORDS = {"set", "umask", "unset"}


def every_command_exists(deployment: Deployment) -> list[str]:
    found = []
    for service in deployment.services.values():
        if service.definition["image"] == deployment.image:
            problems = [_problem(words, deployment) for words in (service.command, service.health_check)]
        else:
            known = OF_OTHER_IMAGES.get(service.definition["image"].split(":")[0], set())
            named = [words[0] for words in (service.command, service.health_check) if words]
            problems = [_not_in_the_image(name) for name in named if name not in known]
        found += [f"{service.name}: {problem}" for problem in problems if problem]
    return found


def _problem(words: list[str], deployment: Deployment) -> str | None:
    match words:
        case []:
            return None
        case ["airflow", *rest]:
            return _airflow_problem(rest, deployment.airflow)
        case ["sweepflow", *rest]:
            return _sweepflow_problem(rest)
        case ["spark-class", name, *_]:
            return None if name.replace(".", "/") + ".class" in _spark_classes() else f"{name} is no class of Spark"
        case ["python", "-c", code, *_]:
            compile(code, "health check", "exec")
            return None
        case ["sh", path]:
            return _script_problem(path, deployment)
    return _not_in_the_image(words[0])


def _not_in_the_image(name: str) -> str:
    return f"{name} is not in the image, as far as known"


def _airflow_problem(words: list[str], airflow: Airflow) -> str | None:
    name = next((name for size in (2, 1) if (name := " ".join(words[:size])) in airflow.commands), None)
    if name is None:
        return f"airflow {' '.join(words)} is no command"
    options = airflow.commands[name]
    for word, following in pairwise([*words[len(name.split()) :], ""]):
        if word.startswith("-") and word not in options:
            return f"airflow {name} has no option {word}"
        choices = options.get(word)
        if choices and following not in choices:
            return f"airflow {name} {word} can't be {following}"
    return None


def _sweepflow_problem(words: list[str]) -> str | None:
    command: Any = load_all()
    for position, word in enumerate(words):
        if hasattr(command, "commands"):
            if word not in command.commands:
                return f"sweepflow {' '.join(words[: position + 1])} is no command"
            command = command.commands[word]
        elif word.startswith("-") and word not in {name for each in command.params for name in each.opts}:
            return f"sweepflow {' '.join(words[:position])} has no option {word}"
    return "sweepflow needs a command" if hasattr(command, "commands") else None


def _script_problem(path: str, deployment: Deployment) -> str | None:
    source = scripts(deployment.dockerfile).get(path)
    if source is None or not (ROOT / source).is_file():
        return f"{path} is not copied into the image"
    problems = [_problem(words, deployment) for words in commands_of(path, deployment)]
    return next((f"{source}: {problem}" for problem in problems if problem), None)


def commands_of(path: str, deployment: Deployment) -> list[list[str]]:
    """Return the commands of a script of the image, one per line."""
    script = ROOT / scripts(deployment.dockerfile)[path]
    lines = [shlex.split(line, comments=True) for line in script.read_text().replace("\\\n", " ").splitlines()]
    return [[word for word in words if word != "exec"] for words in lines if words and words[0] not in SHELL_WORDS]


@cache
def _spark_classes() -> frozenset[str]:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-core_*.jar")
    with zipfile.ZipFile(jar) as opened:
        return frozenset(opened.namelist())
