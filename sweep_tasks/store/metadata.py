"""A table's metadata as text, the way a store keeps it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from sweep_tasks.model import ConflictHandling, Layout, SweepStrategy, TableMetadata


def dump_metadata(metadata: TableMetadata) -> str:
    """Stores compare this text. Tables of a time before there were revisions have none in it."""
    plain = asdict(metadata) | {"past_strategies": sorted(metadata.past_strategies)}
    if not metadata.revision:
        del plain["revision"]
    return json.dumps(plain, sort_keys=True, separators=(",", ":"))


def load_metadata(text: str) -> TableMetadata:
    plain: dict[str, Any] = json.loads(text)
    return TableMetadata(
        strategy=SweepStrategy(plain["strategy"]),
        conflicts=ConflictHandling(plain["conflicts"]),
        retention_s=plain["retention_s"],
        look_before_delete=plain["look_before_delete"],
        past_strategies=frozenset(map(SweepStrategy, plain["past_strategies"])),
        layout=Layout(plain["layout"]),
        own_threshold=plain["own_threshold"],
        revision=plain.get("revision", 0),
    )
