"""One class name, one meaning: no public class or type has the same name as one of another module."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("sweep_tasks", "spark_jobs", "dags", "plugins")


def test_a_class_name_is_used_once() -> None:
    places: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for name, definition in types_in(path.read_text(encoding="utf-8")):
                places[name][str(path.relative_to(ROOT))] = definition
    assert "SweepOrder" in places, "the packages are read"
    assert {name: sorted(found) for name, found in places.items() if len(set(found.values())) > 1} == {}


def test_classes_and_types_are_found_and_values_are_not() -> None:
    text = "class Entry: pass\nLine = tuple[str, int]\nT = TypeVar('T')\n_Own = list[int]\nMOST = 5\nline = 3"
    assert dict(types_in(text)) == {"Entry": "class Entry:\n    pass", "Line": "tuple[str, int]"}


def types_in(source: str) -> Iterator[tuple[str, str]]:
    """Yield classes and named types with their definition. Equal definitions of one type have one meaning."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, ast.unparse(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            definition = ast.unparse(node.value)
            if (
                isinstance(target, ast.Name)
                and target.id[0].isupper()
                and not target.id.isupper()
                and not definition.startswith(("TypeVar(", "ParamSpec("))
            ):
                yield target.id, definition
