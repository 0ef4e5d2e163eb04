"""Owners of protection records: one for each meta type, found by entry points. An owner knows if a record is needed.

A package registers an owner in the entry point group `sweepflow.owners`. The name is the meta type, and the value is a
callable that takes the settings and returns an `Owner`. An error is never taken as an answer: if an owner can't be
loaded, fails or does not respond, the record is kept and reported.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from enum import StrEnum
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple, Self

from sweep_tasks import retries
from sweep_tasks.clock import Clock, SystemClock
from sweep_tasks.config import Settings
from sweep_tasks.errors import BadValue, OwnerSilent, SweepflowError
from sweep_tasks.protection.metrics import count_call
from sweep_tasks.protection.records import MANUAL as MANUAL
from sweep_tasks.protection.records import Record

GROUP = "sweepflow.owners"
AIRFLOW_RUN, SPARK_APP, EXPIRY = "airflow_run", "spark_app", "expiry"


class Answer(StrEnum):
    """What an owner reports about the work that a record was created for."""

    RUNNING = "running"
    FINISHED = "finished"
    GONE = "gone"
    """The system that should know the work has no trace of it."""
    UNKNOWN = "unknown"
    """No owner is registered for this type."""
    UNANSWERED = "unanswered"


class Asked(NamedTuple):
    """The answer for one record."""

    answer: Answer
    error: SweepflowError | None = None
    """The reason that there is no answer."""

    @property
    def why(self) -> str:
        return str(self.error) if self.error else ""


class Owner(ABC):
    """Answers for all records of one meta type.

    It must not wait longer than the setting `owner_timeout_s`, and raises an error if it does not know the answer. A
    `SweepflowError` that is marked as retryable is retried. The text of any other error is not shown."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @abstractmethod
    def answer(self, record: Record) -> Answer: ...

    def detail(self, record: Record, key: str) -> str:
        """Return a value of the record's meta, or raise `BadValue` if it is missing."""
        if not record.meta.get(key):
            problem = f"is missing, so the owner of this {record.meta_type} can't be asked"
            raise BadValue(f"meta {key}", problem, reason="missing")
        return record.meta[key]

    def close(self) -> None:  # noqa: B027 (most have nothing to close)
        """Release resources. Called once, after the last record."""


class ManualOwner(Owner):
    """A person, who releases the record manually. Its age is reported."""

    def answer(self, record: Record) -> Answer:  # noqa: ARG002
        return Answer.RUNNING


class ExpiryOwner(Owner):
    """A record that only ends by its expiry, which is checked before any owner is asked."""

    def answer(self, record: Record) -> Answer:
        if record.expires_ms is None:
            problem = "is not set, so this record never expires; release it manually"
            raise BadValue("expires", problem, reason="missing")
        return Answer.RUNNING


class Owners:
    """The registered owners. Each one is created when it is first needed."""

    def __init__(
        self, settings: Settings, clock: Clock | None = None, registered: Iterable[EntryPoint] | None = None
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._entries: dict[str, set[EntryPoint]] = {}
        for entry in entry_points(group=GROUP) if registered is None else registered:
            self._entries.setdefault(entry.name, set()).add(entry)
        self._loaded: dict[str, Owner | SweepflowError] = {}
        self._unreachable: dict[str, Asked] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for owner in self._loaded.values():
            if isinstance(owner, Owner):
                owner.close()

    def broken(self) -> dict[str, SweepflowError]:
        """Return the types whose owner can't be loaded, each with the reason."""
        loaded = {name: self._owner(name) for name in sorted(self._entries)}
        return {name: owner for name, owner in loaded.items() if isinstance(owner, SweepflowError)}

    def ask(self, record: Record) -> Asked:
        """Ask the owner of a record. An owner that could not be reached is not asked again in this run: every further
        record would wait for the same timeout."""
        if record.meta_type in self._unreachable:
            return self._unreachable[record.meta_type]
        if record.meta_type not in self._entries:
            problem = f"no owner is registered for type {record.meta_type!r}"
            return Asked(Answer.UNKNOWN, _no_owner(record.meta_type, problem, reason="missing"))
        owner = self._owner(record.meta_type)
        if isinstance(owner, SweepflowError):
            return Asked(Answer.UNKNOWN, owner)
        try:
            with count_call("ask_owner"):
                return _checked_answer(retries.OWNER.retrying(self._clock.sleep)(owner.answer, record))
        except SweepflowError as error:
            asked = Asked(Answer.UNANSWERED, error)
            if error.retryable:
                self._unreachable[record.meta_type] = asked
            return asked
        except Exception as error:
            failed = OwnerSilent(f"the owner failed ({type(error).__name__})", reason="failed")
            return Asked(Answer.UNANSWERED, failed)

    def _owner(self, name: str) -> Owner | SweepflowError:
        if name not in self._loaded:
            self._loaded[name] = self._load(name, {entry.value: entry for entry in self._entries[name]})
        return self._loaded[name]

    def _load(self, name: str, entries: dict[str, EntryPoint]) -> Owner | SweepflowError:
        if len(entries) > 1:
            places = " and ".join(sorted(entries))
            problem = f"owner type {name!r} is registered twice, as {places}; uninstall one of the packages"
            return _no_owner(name, problem, reason="duplicate")
        value, entry = entries.popitem()
        try:
            create: Callable[[Settings], object] = entry.load()
            owner = create(self._settings)
        except Exception as error:
            found = f"from {value} ({type(error).__name__})"
            return _no_owner(name, f"owner type {name!r} can't be loaded {found}; fix or uninstall it", reason="failed")
        if isinstance(owner, Owner):
            return owner
        return _no_owner(
            name, f"owner type {name!r}: {value} does not return an Owner; fix the package", reason="wrong_type"
        )


def _no_owner(owner_type: str, problem: str, *, reason: str) -> SweepflowError:
    """The error for a type of owner that no installed package implements, or none that can be loaded."""
    return SweepflowError(problem, reason=reason, owner_type=owner_type)


def _checked_answer(answer: object) -> Asked:
    if isinstance(answer, Answer):
        return Asked(answer)
    problem = f"the owner's answer was of type {type(answer).__name__}, not an Answer"
    return Asked(Answer.UNANSWERED, OwnerSilent(problem, reason="wrong_type"))
