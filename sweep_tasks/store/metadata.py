"""A table's metadata as text, the way a store keeps it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from sweep_tasks.model import ConflictHandling, Layout, ScanDue, ScanReason, SweepStrategy, TableMetadata


def dump_metadata(metadata: TableMetadata) -> str:
    """Stores compare this text. Tables of a time before there were revisions, or scans to be done, have none in it."""
    plain = asdict(metadata) | {"past_strategies": sorted(metadata.past_strategies)}
    if not metadata.revision:
        del plain["revision"]
    if not metadata.scan_due:
        del plain["scan_due"]
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
        scan_due=_scan_due(plain.get("scan_due")),
    )


def _scan_due(plain: list[Any] | None) -> ScanDue | None:
    return ScanDue(ScanReason(plain[0]), plain[1]) if plain else None
