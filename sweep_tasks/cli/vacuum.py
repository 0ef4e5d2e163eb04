"""`sweepflow compaction vacuum`: what compaction is to a store that has no tombstones."""

from __future__ import annotations

from typing import Any

import typer
from rich.console import Console

from sweep_tasks.cli.command import DryRunOption, JsonOption, StoreOption, YesOption, command
from sweep_tasks.errors import BadValue
from sweep_tasks.store import Store
from sweep_tasks.store.contract import Size
from sweep_tasks.store.memory import MemoryStore
from sweep_tasks.store.sqlite import SQLiteStore

_COSTS = {
    "vacuum": "the file is written anew: nobody else can write meanwhile, and it takes about twice what is in use",
    "incremental_vacuum": "free pages are cut off the end of the file, others can write in between",
}


def vacuum(
    ctx: typer.Context,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give the room that deletes left inside a SQLite file back to the disk. What is stored stays the same.

    SQLite has no tombstones, so there is nothing to compact: what is deleted is gone, only the file keeps its size.
    """
    with command(ctx, store, as_json) as run:
        found = run.store
        if isinstance(found, SQLiteStore):
            how, before = found.how_to_vacuum(), found.size()
            if not dry_run and before.free:
                run.confirm(f"{_COSTS[how]}. Go on?", yes)
            done = found.vacuum() if not dry_run and before.free else None
            after = done.after if done else before
            document = _document(how, before, after, dry_run, waiting=bool(done and done.waiting))
        elif isinstance(found, MemoryStore):
            document = _document(None, None, None, dry_run)
        else:
            raise BadValue("store", _elsewhere(found), reason="has_tombstones")
        run.answer(document, lambda out: _print(out, document))


def _elsewhere(store: Store) -> str:
    return f"{type(store).__name__} has tombstones and nothing to vacuum; 'sweepflow compaction run' compacts its files"


def _document(
    how: str | None, before: Size | None, after: Size | None, dry_run: bool, waiting: bool = False
) -> dict[str, Any]:
    return {
        "tombstones": 0,
        "how": how,
        "dry_run": dry_run,
        "bytes_used": after.used if after else 0,
        "bytes_free": before.free if before else 0,
        "bytes_freed": sum(before) - sum(after) if before and after else 0,
        "waiting_for_readers": waiting,
    }


def _print(out: Console, told: dict[str, Any]) -> None:
    if told["how"] is None:
        out.print("a store in memory has no tombstones and no file: nothing to compact, nothing to vacuum")
        return
    out.print("SQLite has no tombstones: what is deleted is gone at once, nothing is left to compact")
    used, free = _size(told["bytes_used"]), _size(told["bytes_free"])
    if not told["bytes_free"]:
        out.print(f"no page of the file is free ({used} in use): there is nothing to give back")
    elif told["dry_run"]:
        out.print(f"{free} of the file are free, {used} in use; without --dry-run they go back to the disk: ", end="")
        out.print(_COSTS[told["how"]])
    else:
        out.print(f"{_size(told['bytes_freed'])} went back to the disk, {used} are in use ({told['how']})")
    if told["waiting_for_readers"]:
        out.print("the file shrinks when those who read from it now are through")


def _size(number: int) -> str:
    return f"{number / 1024 / 1024:.1f} MiB" if number >= 1024 * 1024 else f"{number / 1024:.1f} KiB"
