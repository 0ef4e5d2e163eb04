"""A round on one node: measure its files, plan, compact, measure again, report. Each step stands for itself.

What goes from one step to the next are plain documents, so that each can be a task of its own, on any machine that sees
the same `cache_folder`. Every step opens the store for itself; what it finds there may have changed since the step
before, and is looked at again before anything is rewritten.
"""

from __future__ import annotations

from collections.abc import Sequence

from sweep_tasks.clock import SystemClock
from sweep_tasks.compaction.node_files import Order, in_threads, measure_files, tables_of
from sweep_tasks.compaction.nodes import Node
from sweep_tasks.compaction.summary import Document
from sweep_tasks.config import Settings


def nodes(settings: Settings) -> list[str]:
    return list(settings.compaction_nodes)


def order_for(settings: Settings, node: str, tables: Sequence[str] = ()) -> Order:
    """Some tables of a node, by the name of the store or of Cassandra; all if none is named."""
    cache = settings.cache_folder.expanduser()
    folder = cache / "compaction"
    found = Node.named(settings, node)
    wanted = tables_of(settings, tables)
    folder.mkdir(parents=True, exist_ok=True)
    return Order(found, wanted, SystemClock().now_ms() // 1_000, cache, folder / f"{node}.jsonl")


def measure(settings: Settings, node: str, tables: Sequence[str] = ()) -> Document:
    """In this process; a Spark job does the same for many files at once."""
    return measure_files(order_for(settings, node, tables), settings, in_threads(settings.compaction_files_at_once))
