"""### Targeted sweep

Removes what no transaction, reader or protection can see any more. A task for each strategy and shard reads its queue,
deletes, cleans the queue and moves its progress, up to the end of the run's hour less retention and no further. Runs
for past hours (backfill) sweep in the same steps. A task is safe to kill, to clear and to run twice.

**When it is red**

| task | what to do |
| --- | --- |
| `prepare` | its log says what is missing (a pool, a connection, the store, a lowered number of shards) and the command that mends it; then clear it |
| `shard_…` | it was tried again already; read the end of its log, mend the cause, clear it. Others are not held up, and the next hour goes on where it stopped |
| `check_lag` | a shard is further behind than its objective; `sweepflow status` shows what holds it up |
| `announce_tombstones` | nothing is lost: the next run of `compaction` comes by the clock; its log says why it failed |
| `finish` | says only that something above is red |

`docs/airflow.md` has the rest.
"""  # noqa: E501 (a table row is a line)

from datetime import timedelta

import pendulum
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, CronDataIntervalTimetable, TaskGroup

from sweep_tasks.config import load_settings
from sweep_tasks.orchestration.alerts import deadline_alert, failure_alert
from sweep_tasks.orchestration.announcing import AnnounceTombstones
from sweep_tasks.orchestration.defaults import task_defaults
from sweep_tasks.orchestration.form import sweep_form
from sweep_tasks.orchestration.operators import CheckLag, SweepShardOperator
from sweep_tasks.orchestration.pools import SWEPT
from sweep_tasks.orchestration.prepare import PrepareSweep

settings = load_settings()

with DAG(
    "targeted_sweep",
    schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC"),
    start_date=settings.catch_up_from or pendulum.datetime(2024, 1, 1),
    catchup=settings.catch_up_from is not None,
    max_active_runs=settings.runs_at_once or (1 if settings.catch_up_from else 4),
    max_active_tasks=len(SWEPT) * settings.sweep_tasks_at_once,
    params=sweep_form(settings.shards),
    default_args=task_defaults(settings, longest_pause=timedelta(minutes=15)),
    on_failure_callback=failure_alert(),
    deadline=deadline_alert(settings.run_deadline_s) if settings.run_deadline_s else None,
    tags=["sweep"],
    doc_md=__doc__,
):
    prepare = PrepareSweep(task_id="prepare", doc_md="Checks what the others need, and skips those not asked for.")
    check_lag = CheckLag(task_id="check_lag", trigger_rule="all_done", doc_md="Fails if a shard is too far behind.")
    announce = AnnounceTombstones(
        task_id="announce_tombstones",
        trigger_rule="all_done",
        doc_md="Starts the DAG compaction if the run wrote many tombstones; else skipped.",
    )
    finish = EmptyOperator(task_id="finish", trigger_rule="none_failed", doc_md="Red if anything above is red.")

    for strategy in SWEPT:
        with TaskGroup(strategy.value, tooltip=f"The {strategy} shards, each in a pool of its own"):
            for shard in range(settings.shards):
                sweep = SweepShardOperator(
                    task_id=f"shard_{shard}",
                    strategy=strategy,
                    shard=shard,
                    priority_weight=settings.shards - shard,
                    weight_rule="absolute",  # by turns, so that neither strategy waits for the other
                    doc_md=f"Sweeps shard {shard} of the {strategy} queue; the summary is in its XComs.",
                )
                prepare >> sweep >> [check_lag, announce, finish]
    [check_lag, announce] >> finish
