"""The documentation says what is true."""

from __future__ import annotations

import re
from pathlib import Path

import typer.main

from sweep_tasks.cli.main import app
from sweep_tasks.config import Settings

ROOT = Path(__file__).parents[2]


def test_every_setting_is_documented_with_its_default() -> None:
    text = (ROOT / "docs" / "settings.md").read_text()
    for name, field in Settings.model_fields.items():
        assert f"| `{name}` | `{field.default}` | {field.description} |" in text, f"docs/settings.md lacks {name}"


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs" / "command.md").read_text()
    root = typer.main.get_command(app)
    for name in commands(root):
        assert f"`sweepflow {name}" in text, f"docs/command.md lacks {name}"


def commands(group: object, prefix: str = "") -> list[str]:
    found: list[str] = []
    for name, command in getattr(group, "commands", {}).items():
        inner = commands(command, f"{prefix}{name} ")
        found += inner or [f"{prefix}{name}"]
    return found


def test_links_between_pages_lead_somewhere() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
