"""Vendored libraries are unchanged, and the page loads nothing from other hosts."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from sweep_tasks.web import assets
from sweep_tasks.web.assets import ASSETS, FOLDER, OWN, SERVED, TYPES, VENDORED

TEMPLATES = sorted((Path(assets.__file__).parent / "templates").glob("*.html"))


@pytest.mark.parametrize("name", VENDORED)
def test_a_library_is_the_file_that_its_makers_published(name: str) -> None:
    known = VENDORED[name]
    assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == known.sha256
    assert known.version in name
    licence = (FOLDER / known.licence_file).read_text()
    assert {"MIT": "The MIT License", "0BSD": "Zero-Clause BSD"}[known.licence] in licence


def test_every_file_of_the_folder_is_named_and_served_and_of_a_known_kind() -> None:
    assert {file.name for file in FOLDER.iterdir()} == SERVED
    assert {Path(name).suffix for name in SERVED} == set(TYPES)
    assert {*ASSETS.styles, *ASSETS.scripts} == {*VENDORED, *OWN}


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_no_script_style_or_address_of_its_own(template: Path) -> None:
    text = template.read_text()
    assert not re.search(r"\sstyle=|<style|\son[a-z]+=|javascript:|https?://|hx-on|hx-vals=.js", text)
    assert all("src=" in script for script in re.findall(r"<script[^>]*>", text))
    assert "|safe" not in text.replace(" ", "")


@pytest.mark.parametrize("name", OWN)
def test_our_own_files_load_nothing_from_other_hosts(name: str) -> None:
    assert not re.search(r"https?://|@import|url\(|eval\(|innerHTML|new Function", (FOLDER / name).read_text())
