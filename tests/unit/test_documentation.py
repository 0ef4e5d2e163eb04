"""The documentation matches the code."""

from __future__ import annotations

import re
from pathlib import Path

from sweep_tasks.cli.main import load_all
from sweep_tasks.config import Settings
from tests.support.documents import pages

ROOT = Path(__file__).parents[2]


def test_every_setting_is_documented_with_its_default() -> None:
    text = (ROOT / "docs" / "settings.md").read_text()
    for name, field in Settings.model_fields.items():
        assert f"| `{name}` | `{field.default}` | {field.description} |" in text, f"docs/settings.md lacks {name}"


def test_the_threat_model_names_modules_and_settings_that_exist() -> None:
    text = (ROOT / "docs" / "threat-model.md").read_text()
    modules = re.findall(r"`((?:sweep_tasks|spark_jobs)/[\w/.-]+)`", text)
    assert len(modules) > 10
    assert [module for module in modules if not (ROOT / module).is_file()] == []
    _, _, table = text.partition("## Settings that matter")
    rows = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    settings = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert {"cassandra_tls", "cassandra_password", "task_folder"} <= set(settings)
    assert set(settings) - set(Settings.model_fields) == set()


def test_readers_find_what_protects_a_store() -> None:
    linked = set(re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text()))
    assert {"SECURITY.md", "docs/threat-model.md", "docs/grants.md"} <= linked


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs" / "command.md").read_text()
    root = load_all()
    for name in commands(root):
        assert f"`sweepflow {name}" in text, f"docs/command.md lacks {name}"


def commands(group: object, prefix: str = "") -> list[str]:
    found: list[str] = []
    for name, command in getattr(group, "commands", {}).items():
        inner = commands(command, f"{prefix}{name} ")
        found += inner or [f"{prefix}{name}"]
    return found


def test_links_between_pages_lead_somewhere() -> None:
    for page in map(ROOT.joinpath, pages()):
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
