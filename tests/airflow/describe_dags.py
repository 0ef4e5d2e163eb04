"""Run by the tests in an interpreter of its own: what is in a DAGs folder, as JSON."""

from __future__ import annotations

import json
import sys

from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization


def started_by(dag: DAG) -> dict[str, object]:
    """By which assets, and when."""
    timetable = DagSerialization.from_dict(DagSerialization.to_dict(dag)).timetable
    return {
        "assets": sorted(asset.name for _, asset in timetable.asset_condition.iter_assets()),
        "clock": getattr(timetable, "timetable", timetable).summary,
    }


def described(folder: str) -> dict[str, object]:
    bag = DagBag(folder)
    return {
        "import_errors": bag.import_errors,
        "dags": {
            dag_id: {
                "catchup": dag.catchup,
                "max_active_tasks": dag.max_active_tasks,
                "max_active_runs": dag.max_active_runs,
                "doc": dag.doc_md,
                "started_by": started_by(dag),
                "serialised": len(json.dumps(DagSerialization.to_dict(dag))),
                "tasks": {
                    task.task_id: {
                        "owner": task.owner,
                        "pool": task.pool,
                        "priority": task.priority_weight,
                        "retries": task.retries,
                        "backoff": task.retry_exponential_backoff,
                        "timeout": task.execution_timeout.total_seconds() if task.execution_timeout else None,
                        "doc": task.doc_md,
                        "mapped": task.is_mapped,
                        "operator": [kind.__name__ for kind in type(task).__mro__],
                        "downstream": sorted(task.downstream_task_ids),
                        "outlets": [each.name for each in task.outlets],
                    }
                    for task in dag.tasks
                },
            }
            for dag_id, dag in bag.dags.items()
        },
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(described(sys.argv[1])))
