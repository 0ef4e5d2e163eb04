"""Whom to ask whether a protection is still needed: an owner for each meta type, found by entry points.

A package registers its own under the group `sweepflow.owners`: the name is the meta type, the value something that
takes the settings and gives an `Owner`. Nobody is believed on the strength of an error: an owner that can't be loaded,
breaks or keeps silent is an answer of its own, which keeps the record and is reported.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from enum import StrEnum
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple, Self

from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.errors import BadValue, NoOwner, OwnerSilent, SweepflowError
from sweep_tasks.protection.metrics import counted
from sweep_tasks.protection.records import MANUAL as MANUAL
from sweep_tasks.protection.records import Record

GROUP = "sweepflow.owners"
AIRFLOW_RUN, SPARK_APP, EXPIRY = "airflow_run", "spark_app", "expiry"
_PAUSES_S = (0.5, 1.0)


class Answer(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    GONE = "gone"
    """Whoever should know it has never heard of it, or no longer has."""
    UNKNOWN = "unknown"
    """Nobody answers for owners of this type."""
    UNANSWERED = "unanswered"


class Asked(NamedTuple):
    answer: Answer
    error: SweepflowError | None = None
    """Why there is no answer."""

    @property
    def why(self) -> str:
        return str(self.error) if self.error else ""


class Owner(ABC):
    """Answers for all records of one meta type. It waits no longer than the setting `owner_timeout_s` for anybody, and
    says that it does not know by raising an error. The text of one that is not ours is not shown; after one of ours
    that is marked as retryable it is asked again."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @abstractmethod
    def answer(self, record: Record) -> Answer: ...

    def detail(self, record: Record, key: str) -> str:
        """Of the record's meta, where nobody can be asked without it."""
        if not record.meta.get(key):
            problem = f"is missing, so nobody can be asked about this {record.meta_type}"
            raise BadValue(f"meta {key}", problem, reason="missing")
        return record.meta[key]

    def close(self) -> None:  # noqa: B027 (most have nothing to close)
        """Called once, after the last question."""


class ManualOwner(Owner):
    """A person, who releases it by hand; its age is watched."""

    def answer(self, record: Record) -> Answer:  # noqa: ARG002
        return Answer.RUNNING


class ExpiryOwner(Owner):
    """Nobody but the clock. That a record has expired is seen before any owner is asked, whatever its type."""

    def answer(self, record: Record) -> Answer:
        if record.expires_ms is None:
            problem = "is not set, so this record would never end; release it by hand"
            raise BadValue("expires", problem, reason="missing")
        return Answer.RUNNING


class Owners:
    """Those registered, each made when it is needed first."""

    def __init__(
        self, settings: Settings, clock: Clock | None = None, registered: Iterable[EntryPoint] | None = None
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._entries: dict[str, set[EntryPoint]] = {}
        for entry in entry_points(group=GROUP) if registered is None else registered:
            self._entries.setdefault(entry.name, set()).add(entry)
        self._made: dict[str, Owner | NoOwner] = {}
        self._silent: dict[str, Asked] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for owner in self._made.values():
            if isinstance(owner, Owner):
                owner.close()

    def broken(self) -> dict[str, NoOwner]:
        """The types whose owner can't be had, each with the reason."""
        made = {name: self._owner(name) for name in sorted(self._entries)}
        return {name: owner for name, owner in made.items() if isinstance(owner, NoOwner)}

    def ask(self, record: Record) -> Asked:
        """One that could not be reached is not asked again: many records would wait for the same silence."""
        if record.meta_type in self._silent:
            return self._silent[record.meta_type]
        if record.meta_type not in self._entries:
            problem = f"nobody answers for owners of type {record.meta_type!r}"
            return Asked(Answer.UNKNOWN, NoOwner(record.meta_type, problem, reason="missing"))
        owner = self._owner(record.meta_type)
        if isinstance(owner, NoOwner):
            return Asked(Answer.UNKNOWN, owner)
        try:
            with counted("ask_owner"):
                return _understood(self._asked_patiently(owner, record))
        except SweepflowError as error:
            asked = Asked(Answer.UNANSWERED, error)
            if error.retryable:
                self._silent[record.meta_type] = asked
            return asked
        except Exception as error:
            failed = OwnerSilent(f"asking failed ({type(error).__name__})", reason="failed")
            return Asked(Answer.UNANSWERED, failed)

    def _asked_patiently(self, owner: Owner, record: Record) -> Answer:
        for pause_s in _PAUSES_S:
            try:
                return owner.answer(record)
            except SweepflowError as error:
                if not error.retryable:
                    raise
            self._clock.sleep(pause_s)
        return owner.answer(record)

    def _owner(self, name: str) -> Owner | NoOwner:
        if name not in self._made:
            self._made[name] = self._load(name, {entry.value: entry for entry in self._entries[name]})
        return self._made[name]

    def _load(self, name: str, entries: dict[str, EntryPoint]) -> Owner | NoOwner:
        if len(entries) > 1:
            places = " and ".join(sorted(entries))
            problem = f"owner type {name!r} is registered twice, as {places}; uninstall one of the packages"
            return NoOwner(name, problem, reason="duplicate")
        value, entry = entries.popitem()
        try:
            make: Callable[[Settings], object] = entry.load()
            owner = make(self._settings)
        except Exception as error:
            found = f"from {value} ({type(error).__name__})"
            return NoOwner(name, f"owner type {name!r} can't be loaded {found}; mend or uninstall it", reason="failed")
        if isinstance(owner, Owner):
            return owner
        return NoOwner(name, f"owner type {name!r}: {value} gives no Owner; correct it", reason="wrong_type")


def _understood(answer: object) -> Asked:
    if isinstance(answer, Answer):
        return Asked(answer)
    problem = f"the owner's answer was of type {type(answer).__name__}, not an Answer"
    return Asked(Answer.UNANSWERED, OwnerSilent(problem, reason="wrong_type"))
