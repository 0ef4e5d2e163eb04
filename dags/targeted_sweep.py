"""### Targeted sweep

Removes versions that no transaction, reader or protection can see any more. One task per strategy and shard reads its
queue, deletes, cleans the queue and advances its progress, up to the end of the run's hour minus the retention. Runs for
past hours (backfill) work in the same way. A task can be killed, cleared and run twice safely.

**When a task fails**

| task | what to do |
| --- | --- |
| `prepare` | its log names what is missing (a pool, a connection, the store, a lowered number of shards) and the command that fixes it; then clear it |
| `shard_…` | it was retried already; read the end of its log, fix the cause, clear it. Other shards are not delayed, and the next hour resumes where it stopped |
| `check_lag` | a shard is further behind than its objective; `sweepflow status` shows what holds it back. A dry run does not fail for this reason |
| `announce_tombstones` | nothing is lost: the next run of `compaction` starts on schedule; its log says why it failed |
| `finish` | it only reports that another task failed |

A dry run alerts no one, whatever its outcome. See `docs/airflow.md` for details.
"""  # noqa: E501 (a table row is a line)

from datetime import timedelta

import pendulum
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, CronDataIntervalTimetable, TaskGroup

from sweep_tasks.alerts.notifier import deadline_alert, failure_alert
from sweep_tasks.config import load_settings
from sweep_tasks.orchestration.form import sweep_form
from sweep_tasks.orchestration.names import task_defaults
from sweep_tasks.orchestration.pools import SWEPT
from sweep_tasks.orchestration.prepare import PrepareSweep
from sweep_tasks.orchestration.sweeping import AnnounceTombstones, CheckLag, SweepShardOperator

settings = load_settings()

with DAG(
    "targeted_sweep",
    schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC"),
    start_date=settings.catch_up_from or pendulum.datetime(2024, 1, 1),
    catchup=settings.catch_up_from is not None,
    max_active_runs=settings.runs_at_once or (1 if settings.catch_up_from else 4),
    max_active_tasks=settings.sweep_tasks_at_once.total,
    params=sweep_form(settings.shards),
    default_args=task_defaults(settings, longest_pause=timedelta(minutes=15)),
    on_failure_callback=failure_alert(),
    deadline=deadline_alert(settings.run_deadline_s) if settings.run_deadline_s else None,
    tags=["sweep"],
    doc_md=__doc__,
) as dag:
    prepare = PrepareSweep(doc_md="Checks prerequisites, skips tasks that were not selected, and records the run.")
    check_lag = CheckLag(task_id="check_lag", trigger_rule="all_done", doc_md="Fails if a shard is too far behind.")
    announce = AnnounceTombstones(
        task_id="announce_tombstones",
        recorded_by=prepare.task_id,
        trigger_rule="all_done",
        doc_md="Records the outcome of the run; triggers the DAG compaction if it wrote many tombstones.",
    )
    finish = EmptyOperator(task_id="finish", trigger_rule="none_failed", doc_md="Fails if any other task failed.")

    for strategy in SWEPT:
        at_once = settings.sweep_tasks_at_once[strategy]
        with TaskGroup(
            strategy.value, tooltip=f"The {strategy} shards, each in its own pool; {at_once} at the same time"
        ):
            for shard in range(settings.shards):
                sweep = SweepShardOperator(
                    task_id=f"shard_{shard}",
                    strategy=strategy,
                    shard=shard,
                    # As many of each strategy as may run at once, then as many again: neither waits for the other.
                    priority_weight=settings.shards - shard // at_once,
                    weight_rule="absolute",
                    doc_md=f"Sweeps shard {shard} of the {strategy} queue, {at_once} of these at the same time; the "
                    "summary is in its XComs.",
                )
                prepare >> sweep >> [check_lag, announce, finish]
    [check_lag, announce] >> finish
