"""No private vocabulary in what people read: code, tests, scenarios, documents, templates and names of files.

The words below have no legitimate use in this project: the usual technical terms and those of the glossary replace
them. A file that uses one fails with its line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKED = (
    "sweep_tasks",
    "spark_jobs",
    "dags",
    "plugins",
    "benchmarks",
    "docs",
    "deploy",
    "tests",
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
)
KINDS = (".py", ".md", ".html", ".js", ".css", ".yaml", ".yml", ".sh", ".toml", ".json", ".scenario")
THIS_FILE = Path(__file__)
WORDS = {
    "anew": "again, from the beginning",
    "whoever": "the caller, the writer, an operator",
    "somebody": "another process, an operator",
    "nobody": "no one, no process",
    "anybody": "anyone, any process",
    "heed": "respect, apply",
    "mend": "fix, correct",
    "doom": "removable",
    "so manieth": "the nth, attempt number",
    "by turns": "scheduled, in rotation",
    "gone on with": "resumed",
    "set aside": "quarantined",
    "by hand": "manually",
    "everybody": "all users, all processes",
    "told": "reported, shown, informed",
    "desk": "the task context",
    "brief": "summary",
    "lane": "worker slot",
    "lanes": "worker slots",
    "goes on": "continues, resumes",
    "go on with": "continue, resume",
    "took up": "resumed",
    "how far": "sweep timestamp, horizon, lag, by how much",
}
"""Each with what to write instead. Inflected forms and identifiers are found too."""
KEYS_THAT_STAY = ("not_by_turns", '"id":"nobody"')
"""Keys of JSON documents that scripts may read, and ids in scenarios."""
_FORMS = {"heed": "heed(?:s|ed|ing)?", "mend": "mend(?:s|ed|ing)?", "doom": "doom(?:s|ed|ing)?"}
_PATTERN = re.compile(
    rf"(?<![A-Za-z])(?:{'|'.join(_FORMS.get(word, word).replace(' ', '[ _]') for word in WORDS)})(?![A-Za-z])",
    re.IGNORECASE,
)


def test_no_file_uses_private_words() -> None:
    assert [found for path in checked_files() for found in private_words(path)] == []


def test_no_file_is_named_by_private_words() -> None:
    assert [str(path.relative_to(ROOT)) for path in checked_files() if _PATTERN.search(path.stem)] == []


def test_no_docstring_starts_with_of() -> None:
    """A docstring says what a thing is or does, not only which part of something it is."""
    python = [path for path in checked_files() if path.suffix == ".py"]
    assert [found for path in python for found in docstrings_with_of(path.read_text(encoding="utf-8"), path)] == []


def test_a_docstring_that_starts_with_of_is_found() -> None:
    source = 'def f() -> None:\n    """Of a task."""\nX = 1\n"""Of it."""\nY = "Of"'
    assert len(list(docstrings_with_of(source, ROOT))) == 2


@pytest.mark.parametrize(
    "text",
    [
        "judged anew",
        "Whoever comes second",
        "def judge_anew():",
        "it was mended",
        "what is set aside",
        "entries_set_aside",
        "HEEDS",
        "run gone on with",
    ],
)
def test_a_private_word_is_found_in_sentences_and_in_names(text: str) -> None:
    assert _PATTERN.search(text)


@pytest.mark.parametrize("text", ["the agreement is recommended", "amend", "handled", "renewed", "a dog by the river"])
def test_usual_words_are_not_found(text: str) -> None:
    assert not _PATTERN.search(text)


def docstrings_with_of(source: str, path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        if str(node.value.value).lower().startswith("of "):
            yield f"{path}:{node.lineno}: {str(node.value.value)[:40]!r}"


def checked_files() -> Iterator[Path]:
    for place in CHECKED:
        top = ROOT / place
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.suffix in KINDS and ".min." not in path.name and path != THIS_FILE:
                yield path


def private_words(path: Path) -> Iterator[str]:
    """Each with file, line and what to write instead."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        for found in _PATTERN.finditer(_without_keys(line)):
            yield f"{path.relative_to(ROOT)}:{number}: {found[0]!r}; write {_instead(found[0])}"


def _instead(found: str) -> str:
    plain = found.lower().replace("_", " ")
    return next(instead for word, instead in WORDS.items() if plain.startswith(word))


def _without_keys(line: str) -> str:
    for key in KEYS_THAT_STAY:
        line = line.replace(key, "")
    return line
