"""The pages of the documentation: complete, linked, and about commands, options and files that exist."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ruamel.yaml import YAML

from tests.support.command import sweepflow
from tests.support.documents import ROOT, pages

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MOST_LINES_OF_THE_README = 125
PLACEHOLDERS = ("COMMAND", "…")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


# --- pages and links --------------------------------------------------------------------------------------------------


def test_the_index_links_every_page() -> None:
    linked = set(re.findall(r"\]\(([^)#:]+)\)", text_of("docs/README.md")))
    there = {page.removeprefix("docs/") for page in pages() if page.startswith("docs/")} - {"README.md"}
    assert there - linked == set()


def test_links_to_sections_lead_to_a_heading() -> None:
    missing = []
    for page in pages():
        for target, section in re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", text_of(page)):
            leads_to = (ROOT / page).parent / target if target else ROOT / page
            if section not in anchors(leads_to):
                missing.append(f"{page}: {target}#{section}")
    assert missing == []


@cache
def anchors(page: Path) -> set[str]:
    """The names that Git hosts give to headings."""
    headings = re.findall(r"^#+ +(.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def test_pictures_are_files_of_the_repository() -> None:
    for page in pages():
        for source in re.findall(r'<img [^>]*src="([^"]+)"', text_of(page)):
            assert ((ROOT / page).parent / source).is_file(), f"{page} shows {source}"


def test_the_diagram_is_valid_and_loads_nothing() -> None:
    drawing = (ROOT / "docs" / "images" / "version-life.svg").read_text(encoding="utf-8")
    shown = " ".join(text.strip() for text in ElementTree.fromstring(drawing).itertext())  # noqa: S314 (our own file)
    for state in ("written", "superseded", "swept", "tombstone", "compacted"):
        assert state in shown
    addresses = set(re.findall(r"https?://[^\"\s]+", drawing))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(?:script|image|use|style)|@import|@font-face", drawing)


def test_the_readme_fits_on_a_few_screens() -> None:
    assert len(text_of("README.md").splitlines()) <= MOST_LINES_OF_THE_README


# --- commands, options and names --------------------------------------------------------------------------------------


def test_commands_and_options_in_sentences_exist() -> None:
    now = [page for page in pages() if page != "CHANGELOG.md"]  # which names what was renamed, too
    wrong = [f"{page}: {each}" for page in now for each in mentions(page) if not is_a_command(each.split()[1:])]
    assert wrong == []


def mentions(page: str) -> Iterator[str]:
    for mention in re.findall(r"`(sweepflow [^`]+)`", text_of(page)):
        yield " ".join(mention.split())


def is_a_command(words: list[str]) -> bool:
    """Whether the words start with the names of a command, and every option among them is one of its options."""
    names: tuple[str, ...] = ()
    while words and words[0] in commands_of(names):
        names, words = (*names, words[0]), words[1:]
    if not names and words and words[0] in PLACEHOLDERS:
        return True
    if not names and not words[0].startswith("-"):
        return False
    if commands_of(names) and words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        return False
    options = re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(words))
    return all(re.search(rf"(?<![\w-]){option}(?![\w-])", help_of(names) + help_of(())) for option in options)


@cache
def help_of(names: tuple[str, ...]) -> str:
    answer = sweepflow(*names, "--help", COLUMNS="200")
    assert answer.code == 0, answer.err
    return answer.out


@cache
def commands_of(names: tuple[str, ...]) -> set[str]:
    _, _, listed = help_of(names).partition("\nCommands:\n")
    return set(re.findall(r"^  ([a-z-]+)", listed, re.MULTILINE))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("sweep --dry-run", True),
        ("tables create NAMESPACE.NAME [--retention 12h]", True),
        ("protections --id ID", True),
        ("swoop", False),
        ("tables destroy shop.orders", False),
        ("sweep --dry", False),
    ],
)
def test_a_command_is_distinguished_from_similar_text(words: str, expected: bool) -> None:
    assert is_a_command(words.split()) is expected


def test_make_targets_in_the_documentation_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    for page in pages():
        named = set(re.findall(r"`make ([a-z-]+)", text_of(page)))
        assert named - targets == set(), f"{page} names targets that do not exist"


def test_the_version_in_the_documentation_is_that_of_the_project() -> None:
    named = {version for page in pages() for version in re.findall(r"sweepflow[:-](\d+\.\d+\.\d+)", text_of(page))}
    assert named == {PROJECT["project"]["version"]}


# --- what a contributor looks for -------------------------------------------------------------------------------------


def test_the_table_of_packages_names_every_package_and_no_removed_one() -> None:
    _, _, table = text_of("CONTRIBUTING.md").partition("## Where things are")
    first_cells = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    named: set[Path] = set()
    for cell in first_cells:
        folder = ROOT
        for name in re.findall(r"`([^`]+)`", cell):
            path = ROOT / name if "/" in name.rstrip("/") or not (folder / name).exists() else folder / name
            assert path.exists(), f"CONTRIBUTING.md names {name}"
            named.add(path)
            folder = path.parent
    packages = {each.parent for each in (ROOT / "sweep_tasks").glob("*/__init__.py")}
    assert {str(package.relative_to(ROOT)) for package in packages - named} - {"sweep_tasks/dags"} == set()


def test_the_licence_is_complete_and_linked() -> None:
    licence = text_of("LICENSE")
    assert "Apache License\n                           Version 2.0, January 2004" in licence
    assert "END OF TERMS AND CONDITIONS" in licence
    assert "APPENDIX: How to apply the Apache License to your work." in licence
    assert "[Apache License 2.0](LICENSE)" in text_of("README.md")


def test_the_checks_before_a_commit_fetch_nothing() -> None:
    configured = YAML(typ="safe").load(text_of(".pre-commit-config.yaml"))
    assert [repository["repo"] for repository in configured["repos"]] == ["local"]
    hooks = configured["repos"][0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    makefile = text_of("Makefile")
    for hook in hooks:
        tool = Path(hook["entry"].split()[0])
        assert tool.parts[:2] == (".venv", "bin")
        assert f"$(BIN)/{tool.name}" in makefile
