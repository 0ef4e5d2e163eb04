"""Print facts about the installed Airflow as JSON: commands with their options, and settings with their defaults.

Run as a program, because importing Airflow sets up its home for the whole process.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from airflow.cli.cli_parser import get_parser
from airflow.configuration import retrieve_configuration_description


def commands(parser: argparse.ArgumentParser, name: str = "") -> dict[str, dict[str, list[str] | None]]:
    """Return every option by name and, if it accepts only certain words, those words."""
    options: dict[str, list[str] | None] = {}
    found: dict[str, dict[str, list[str] | None]] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                found |= commands(inner, f"{name} {word}".strip())
        choices = [str(choice) for choice in action.choices] if action.choices else None
        options |= dict.fromkeys(action.option_strings, choices)
    return found or {name: options}


def settings() -> dict[str, Any]:
    described = retrieve_configuration_description(include_airflow=True, include_providers=True)
    return {
        f"{section}.{key}": option.get("default")
        for section, content in described.items()
        for key, option in content["options"].items()
    }


if __name__ == "__main__":
    print(json.dumps({"commands": commands(get_parser()), "settings": settings()}))  # noqa: T201
