"""Records in the journal when a sweep runs with settings that are less safe than those of the last one.

Each process reads its settings from files and environment variables, so a change of them can't be recorded when it is
made. Instead the store keeps the settings that data was last removed with. A sweep that is about to run with less safe
ones records the difference before it begins. In a new store, they are compared with the defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias

from sweep_tasks import retries
from sweep_tasks.clock import Clock
from sweep_tasks.config import Settings
from sweep_tasks.errors import OutcomeUnknown
from sweep_tasks.journal.journal import Journal
from sweep_tasks.model import Cell
from sweep_tasks.store.contract import Change, Store
from sweep_tasks.store.schema import JOURNAL_HEAD

_IN_FORCE = Cell(b"settings", b"v")
_MORE_IS_SAFER = ("retention_s", "grace_s", "cassandra_gc_grace_s")
_LESS_IS_SAFER = ("clock_step_max_s",)
"""0 means no limit, which is the least safe."""
_CONSISTENCY = ("one", "two", "three", "local_quorum", "quorum", "each_quorum", "all")
_LAST_IS_SAFEST: dict[str, tuple[object, ...]] = {
    "sqlite_durability": ("normal", "full"),
    "cassandra_read_consistency": _CONSISTENCY,
    "cassandra_write_consistency": _CONSISTENCY,
    "cassandra_serial_consistency": ("local_serial", "serial"),
    "cassandra_tls": (False, True),
    "cassandra_plaintext_password": (True, False),
    "task_folder_shared": (True, False),
    "protect_at_as_after": (False, True),
}
SettingValue: TypeAlias = str | int | float | bool
# Not among them are `lease_ttl_s`, `writer_wait_s` and `legacy_silent_s`: lower values end work early, and remove no
# version that may still be read. A lease expires by the value of the process that took it, not of the one that
# sweeps, and a transaction without a lease fails when it reads or commits. A reader that waits for less time aborts an
# unfinished transaction, whose versions were never read. Two processes that scan the same range do the work twice.
SAFEGUARDS = (*_MORE_IS_SAFER, *_LESS_IS_SAFER, *_LAST_IS_SAFEST)


def record_lowered(store: Store, settings: Settings, clock: Clock) -> None:
    """Record which settings are less safe than those that data was last removed with. Called before anything is
    removed: if recording fails, nothing is removed."""
    now: dict[str, SettingValue] = {name: getattr(settings, name) for name in SAFEGUARDS}
    for _ in range(retries.SETTINGS_IN_FORCE.attempts):
        stored = store.read(JOURNAL_HEAD, [_IN_FORCE]).get(_IN_FORCE)
        before = _defaults() | (json.loads(stored) if stored else {})
        if stored and before == now:
            return
        less_safe = lowered(before, now)
        if less_safe:
            changes = {name: [before[name], now[name]] for name in less_safe}
            with Journal(store, clock).record("settings", ", ".join(less_safe), lowered=changes):
                replaced = _replace(store, stored, now)
        else:
            replaced = _replace(store, stored, now)
        if replaced:
            return


def lowered(before: Mapping[str, SettingValue], now: Mapping[str, SettingValue]) -> list[str]:
    """Return the names of the settings that are less safe now than before."""
    return [name for name in SAFEGUARDS if _safety(name, now[name]) < _safety(name, before[name])]


def _safety(name: str, value: SettingValue) -> float:
    """Return how safe a value is, comparable within one setting only. Greater is safer."""
    if name in _MORE_IS_SAFER:
        return float(value)
    if name in _LESS_IS_SAFER:
        return -float(value or "inf")
    return _LAST_IS_SAFEST[name].index(value)


def _defaults() -> dict[str, SettingValue]:
    return {name: Settings.model_fields[name].default for name in SAFEGUARDS}


def _replace(store: Store, stored: bytes | None, now: Mapping[str, SettingValue]) -> bool:
    """Store the current settings. Returns False if another process was quicker or the answer was lost; the caller then
    compares again."""
    change = Change(stored, json.dumps(now, sort_keys=True).encode())
    try:
        return store.compare_and_set(JOURNAL_HEAD, _IN_FORCE.row, {_IN_FORCE.column: change})
    except OutcomeUnknown:
        return False
