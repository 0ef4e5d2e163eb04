"""### Snapshot export

A consistent export of tables at one timestamp, as Parquet in the folder of the setting `export_folder`. The timestamp is
protected for the duration of the run; sweeping and writing continue. An export contains what has changed since the last
export of the same tables, deletions included, or everything if there is none or **Full** is selected. Each export is a
folder named after its timestamp. A folder `….unfinished-…` that no run is working on can be deleted.

**When a task fails**

| task | what to do |
| --- | --- |
| `protect` | its log names the problem: a missing table, the limit of protections (`sweepflow protections`), the store; fix it, clear it |
| `export` | it was retried already; read the end of its log, fix the cause, clear it. The new attempt takes a new timestamp |
| `release` | nothing: the next run of `protected_timestamps` releases the record of this run |

A run can be killed or cleared at any time: unfinished output is not an export. See `docs/export.md` for details.
"""  # noqa: E501 (a table row is a line)

from datetime import timedelta

import pendulum
from airflow.sdk import DAG

from sweep_tasks.alerts.notifier import failure_alert
from sweep_tasks.config import load_settings
from sweep_tasks.orchestration.exporting import TABLES, SnapshotExportOperator, export_form
from sweep_tasks.orchestration.names import SNAPSHOT_EXPORT, task_defaults
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
) as dag:
    protected = protect_timestamp(tables=TABLES, task_id="protect", release_task_id="release")
    with protected as ts:
        SnapshotExportOperator(
            task_id="export", at=ts, doc_md="Reads the tables as of the timestamp; the summary is in its XComs."
        )
