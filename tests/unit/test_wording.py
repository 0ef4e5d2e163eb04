"""Tests assert codes, fields and values, so that every message can be improved without touching a test.

A literal that a test compares with something is a sentence of the product when three words in a row stand in a row in
a literal of the product too. Where the text itself is the feature, the file is listed here with the reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from sweep_tasks import errors

ROOT = Path(__file__).parents[2]
PRODUCT = ("sweep_tasks", "spark_jobs", "dags", "plugins")
RUN = 3

TEXT_IS_THE_FEATURE: dict[str, str] = {
    "tests/unit/test_words.py": "it lists the words that no text may use, with those to write instead",
}


class Literal(NamedTuple):
    line: int
    text: str


def test_no_test_knows_the_wording_of_a_message() -> None:
    known = runs_of_the_product()
    found = {
        f"{path}:{each.line}: {each.text!r}"
        for path, tree in checked_files()
        for each in compared(tree)
        if known.intersection(runs(each.text))
    }
    assert sorted(found) == []


def test_errors_are_distinguished_by_their_attributes() -> None:
    """`match` reads the message; class, `code`, `field`, `reason` and the other attributes say the same for good."""
    found = {
        f"{path}:{call.lineno}"
        for path, tree in checked_files()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and _name(call) == "raises"
        and _expects_ours(call)
        and any(keyword.arg == "match" for keyword in call.keywords)
    }
    assert sorted(found) == []


def test_every_file_that_may_know_wording_is_there() -> None:
    assert [file for file in TEXT_IS_THE_FEATURE if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize(
    "code",
    [
        "assert 'green ideas sleep furiously' in shown",
        "assert shown.startswith(f'green ideas sleep furiously of {x}')",
        "with pytest.raises(ValueError, match='green ideas sleep furiously'): ...",
        "@pytest.mark.parametrize('shown', ['green ideas sleep furiously'])\ndef test_x(): ...",
        "page.get_by_text('green ideas sleep furiously').click()",
        "shown = 'green ideas sleep furiously'\nassert shown in output",
    ],
)
def test_a_sentence_is_found_wherever_it_is_compared(code: str) -> None:
    assert [each.text.strip() for each in compared(ast.parse(code)) if "green ideas" in each.text]


@pytest.mark.parametrize(
    "code",
    [
        '"""Green ideas sleep furiously."""',
        "assert shown, 'green ideas sleep furiously'",
        "wait_until(ended, 'green ideas sleep furiously')",
    ],
)
def test_what_explains_a_test_is_left_alone(code: str) -> None:
    assert [each for each in compared(ast.parse(code)) if "ideas" in each.text] == []


@cache
def checked_files() -> list[tuple[Path, ast.Module]]:
    """All files whose tests may know no wording."""
    found = sorted(path.relative_to(ROOT) for path in (ROOT / "tests").rglob("*.py"))
    return [(path, ast.parse((ROOT / path).read_text())) for path in found if str(path) not in TEXT_IS_THE_FEATURE]


def runs_of_the_product() -> set[tuple[str, ...]]:
    python = (path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py"))
    shown = (path for folder in PRODUCT for kind in ("*.html", "*.js") for path in (ROOT / folder).rglob(kind))
    texts = [each.text for path in python for each in _literals(ast.parse(path.read_text()))]
    texts += [re.sub(r"<[^>]*>", " ", path.read_text()) for path in shown if not path.name.endswith(".min.js")]
    return {run for text in texts for run in runs(text)}


def runs(text: str) -> Iterator[tuple[str, ...]]:
    """Words of a sentence, as they follow each other; names with dots, dashes or underscores are no words."""
    words = [word.strip(".,;:!?()'\"|^$\\") for word in text.lower().split()]
    plain = [word if re.fullmatch(r"[a-z]+('[a-z]+)?", word) else None for word in words]
    for at in range(len(plain) - RUN + 1):
        run = plain[at : at + RUN]
        if None not in run:
            yield tuple(word for word in run if word)


def compared(node: ast.AST, expected: bool = False) -> Iterator[Literal]:
    """Literals that an outcome is compared with: in assertions, expected errors, parameters, things looked for on a
    page, and names that an assertion then uses. Docstrings and the messages of assertions are not."""
    if isinstance(node, ast.Constant):
        if expected and isinstance(node.value, str):
            yield Literal(node.lineno, node.value)
        return
    expected = expected or isinstance(node, ast.Assert | ast.Compare | ast.Assign) or _looks_for_text(node)
    for child in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.Assert) and child is node.msg):
            yield from compared(child, expected)


def _looks_for_text(node: ast.AST) -> bool:
    if isinstance(node, ast.keyword):
        return node.arg in ("match", "has_text")
    return isinstance(node, ast.Call) and _name(node) in ("parametrize", "param", "get_by_text", "startswith")


def _expects_ours(call: ast.Call) -> bool:
    named = [node.id for argument in call.args for node in ast.walk(argument) if isinstance(node, ast.Name)]
    return any(hasattr(errors, name) for name in named)


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _literals(tree: ast.AST) -> Iterator[Literal]:
    skipped = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield Literal(node.lineno, node.value)
