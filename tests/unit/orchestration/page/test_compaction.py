"""What compaction runs told, by node."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from sweep_tasks.orchestration.page.rendering import rendered
from sweep_tasks.orchestration.page.routes.compaction import by_node


def measured(node: str, at_s: int, **droppable: int) -> dict[str, Any]:
    figures = {"files": 3, "bytes": 99, "waiting": 2, "droppable_from_s": None, "gc_grace_s": 864_000}
    return {"node": node, "at_s": at_s, "tables": {name: figures | {"droppable": n} for name, n in droppable.items()}}


def shown(nodes: dict[str, Any]) -> str:
    request = Request({"type": "http", "root_path": "/sweepflow", "path": "/sweepflow/compaction", "headers": []})
    return bytes(rendered(request, "compaction.html", {"nodes": nodes}).body).decode()


def test_the_last_measurement_of_each_node_counts_whatever_order_they_come_in() -> None:
    documents = [
        measured("b", 20, orders=1, carts=5),
        measured("b", 10, orders=7),
        {"node": "b", "dry_run": False, "dropped": 1_234, "kept": {"gc_grace": 3, "overlap_too_large": 0}},
        measured("a", 5),
        None,
        ["something else"],
    ]
    found = by_node(documents)
    assert list(found) == ["a", "b"]
    assert [(line["table"], line["droppable"]) for line in found["b"]["tables"]] == [("carts", 5), ("orders", 1)]
    assert "dropped 1\u202f234; 3 are kept by gc grace." in shown(found)


def test_where_none_has_reported_it_says_so() -> None:
    assert by_node([]) == {}
    assert "No compaction has reported yet" in shown({})
