"""Spark's own account of a job: which executor ran which task, and what was sent to Python for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from spark_jobs.shard import DELETING, PHASE, READING, STEP

_SENT = "data sent to Python workers"


class Described(NamedTuple):
    """The properties of a job in Spark: its group, its description, and the text on Spark's own page."""

    group: str
    phase: str
    step: str
    text: str


class EventLog:
    """A job that deletes may divide its entries between tasks first. Only the tasks of its last stage delete."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder

    def options(self) -> tuple[str, ...]:
        given = {"enabled": "true", "dir": self._folder.as_uri(), "compress": "false"}
        return tuple(word for name, value in given.items() for word in ("--conf", f"spark.eventLog.{name}={value}"))

    def is_empty(self) -> bool:
        return not any(self._folder.iterdir())

    def deleting_began(self) -> bool:
        return bool(self._deleting_stages())

    def readers(self) -> list[str]:
        """The executor of each task that read from the store."""
        return [task["Task Info"]["Executor ID"] for task in self._python_tasks(deleting=False)]

    def deleters(self) -> list[str]:
        """The executor of each task that judged cells and deleted from them."""
        return [task["Task Info"]["Executor ID"] for task in self._python_tasks(deleting=True)]

    def described(self) -> list[Described]:
        names = ("spark.jobGroup.id", PHASE, STEP, "spark.job.description")
        found = [event["Properties"] for event in self._events("SparkListenerJobStart")]
        return [Described(*(properties.get(name, "") for name in names)) for properties in found]

    def _python_tasks(self, *, deleting: bool) -> Iterator[dict[str, Any]]:
        stages = self._deleting_stages() if deleting else self._reading_stages()
        for event in self._events("SparkListenerTaskEnd"):
            used_python = any(each["Name"] == _SENT for each in event["Task Info"]["Accumulables"])
            if used_python and event["Stage ID"] in stages:
                yield event

    def _deleting_stages(self) -> set[int]:
        return {max(event["Stage IDs"]) for event in self._jobs(DELETING)}

    def _reading_stages(self) -> set[int]:
        return {stage for event in self._jobs(READING) for stage in event["Stage IDs"]}

    def _jobs(self, step: str) -> Iterator[dict[str, Any]]:
        return (event for event in self._events("SparkListenerJobStart") if event["Properties"].get(STEP) == step)

    def _events(self, name: str) -> Iterator[dict[str, Any]]:
        for file in self._folder.rglob("events_*"):
            written, _, _ = file.read_text().rpartition("\n")
            events = (json.loads(line) for line in written.splitlines())
            yield from (event for event in events if event["Event"] == name)
