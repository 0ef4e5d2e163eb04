"""What a task of a real Airflow has logged, line by line with its fields."""

from __future__ import annotations

import json
from typing import Any

from sweep_tasks.local.airflow import LocalAirflow

Line = dict[str, Any]


def lines(airflow: LocalAirflow, dag_id: str, run: str, task: str) -> list[Line]:
    return [json.loads(line) for line in airflow.log(dag_id, run, task).split("\n")]


def events(airflow: LocalAirflow, dag_id: str, run: str, task: str) -> set[str]:
    """For what the product words elsewhere: a document, or the one function that does it."""
    return {str(line["event"]) for line in lines(airflow, dag_id, run, task)}


def with_code(airflow: LocalAirflow, dag_id: str, run: str, task: str, code: str) -> list[Line]:
    return [line for line in lines(airflow, dag_id, run, task) if line.get("code") == code]


def failures(airflow: LocalAirflow, dag_id: str, run: str, task: str) -> list[tuple[str, str | None, str | None]]:
    """Return code, field and reason of each error of ours that has ended the task."""
    found = with_code(airflow, dag_id, run, task, "task_failed")
    return [(line["error"], line.get("field"), line.get("reason")) for line in found]
