"""### Snapshot export

A consistent copy of tables at one timestamp, as Parquet in the folder of the setting `export_folder`. The timestamp is
protected for as long as the run takes; sweeping and writing go on meanwhile. An export holds what has changed since the
last one of the same tables, deletions included, or everything if there is none or **Full** is chosen. Each is a folder
named after its timestamp; a folder `….unfinished-…` that no run is at work on may be deleted.

**When it is red**

| task | what to do |
| --- | --- |
| `protect` | its log says what is missing: a table, a place among the protections (`sweepflow protections`), the store; mend it, clear it |
| `export` | it was tried again already; read the end of its log, mend the cause, clear it. The new try takes a new timestamp |
| `release` | nothing: the next run of `protected_timestamps` releases what this run leaves behind |

A run may be killed or cleared at any moment: what was not finished is no export. `docs/export.md` has the rest.
"""  # noqa: E501 (a table row is a line)

from datetime import timedelta

import pendulum
from airflow.sdk import DAG

from sweep_tasks.config import load_settings
from sweep_tasks.orchestration.alerts import failure_alert
from sweep_tasks.orchestration.defaults import task_defaults
from sweep_tasks.orchestration.exporting import TABLES, SnapshotExportOperator, export_form
from sweep_tasks.orchestration.names import SNAPSHOT_EXPORT
from sweep_tasks.orchestration.protecting import protect_timestamp

settings = load_settings()

with DAG(
    SNAPSHOT_EXPORT,
    schedule=settings.export_schedule,
    start_date=settings.catch_up_from or pendulum.datetime(2024, 1, 1),
    catchup=False,
    max_active_runs=1,
    params=export_form(settings),
    default_args=task_defaults(settings, longest_pause=timedelta(minutes=15)),
    on_failure_callback=failure_alert(),
    tags=["export"],
    doc_md=__doc__,
):
    protected = protect_timestamp(tables=TABLES, task_id="protect", release_task_id="release")
    with protected as ts:
        SnapshotExportOperator(
            task_id="export", at=ts, doc_md="Reads the tables as of the timestamp; the summary is in its XComs."
        )
