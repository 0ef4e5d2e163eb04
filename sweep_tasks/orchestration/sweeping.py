"""The tasks of the DAG `targeted_sweep`: one for each shard and strategy, and those after them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from spark_jobs.environment import TARGETED_SWEEP
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.errors import SweepflowError
from sweep_tasks.logs import bind_log_names
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.form import INTERVAL_END, ShardTask, moment_ms, order_of
from sweep_tasks.orchestration.names import TOMBSTONES_ASSET
from sweep_tasks.orchestration.pools import pool_name
from sweep_tasks.orchestration.prepare import PREPARE, spark_connection, task_failure, this_attempt
from sweep_tasks.orchestration.spark_job import SparkJobOperator, machine_slot

if TYPE_CHECKING:
    from airflow.sdk import Context

    from sweep_tasks.legacy.run import LegacySummary
    from sweep_tasks.sweep.horizon import Horizon
    from sweep_tasks.sweep.order import SweepOrder
    from sweep_tasks.sweep.summary import Summary


# ---------------------------------------------------------------------------------------------------------------------
# A sweep's summary as one line in the log of its task.
# ---------------------------------------------------------------------------------------------------------------------

_ALSO = ("aborted_deletes", "parked", "unparked", "blocked", "quarantined")
_CUT_SHORT = {
    "entries": "stopped at the limit of entries",
    "seconds": "stopped at the limit of seconds",
    "tombstones": "stopped at the limit of tombstones in a row",
    "blocked": "blocked by a transaction that committed later",
    "paused": "all sweeping is paused, 'sweepflow resume' ends the pause",
}


def readable(summary: Summary) -> str:
    """Describe the sweep in one line. Counts of 0 are left out, except entries and cells."""
    also = [f"{_grouped(getattr(summary, name))} {name.replace('_', ' ')}" for name in _ALSO if getattr(summary, name)]
    done = [f"{_grouped(summary.entries)} entries read", f"{_grouped(summary.range_deletes)} cells swept", *also]
    parts = [*done, f"progress {_grouped(summary.progress_before)} → {_grouped(summary.progress)}"]
    took = f"in {sum(summary.seconds.values()):.1f} s"
    how = " without Spark" if summary.engine == "idle" else ""
    ended = f"; {_CUT_SHORT.get(summary.stopped, summary.stopped)}" if summary.stopped else ""
    dry = " (a dry run: nothing was changed)" if summary.dry_run else ""
    return f"{summary.strategy} shard {summary.shard}: {', '.join(parts)} {took}{how}{ended}{dry}"


def _grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")


# ---------------------------------------------------------------------------------------------------------------------
# A sweep or a scan that wrote many tombstones emits an asset event, which starts the DAG `compaction`.
#
# A task with an outlet emits an event whenever it succeeds. So this task is skipped unless there were many: a skipped
# task emits nothing.
# ---------------------------------------------------------------------------------------------------------------------

_MOST_TABLES = 50


def tombstones_asset() -> Asset:
    return Asset(TOMBSTONES_ASSET)


@dataclass(frozen=True, slots=True)
class TombstonesWritten:
    """What the event reports to the DAG `compaction`, as its `extra`."""

    tombstones: int
    tables: dict[str, int]
    """The tables with the most."""
    run_id: str

    @classmethod
    def parse(cls, extra: Mapping[str, Any]) -> TombstonesWritten | None:
        """Return None for an event that no run of ours has created: users can create events too."""
        tombstones, tables, run_id = extra.get("tombstones"), extra.get("tables"), extra.get("run_id")
        if not (isinstance(tombstones, int) and isinstance(tables, dict) and isinstance(run_id, str)):
            return None
        return cls(tombstones, tables, run_id)


class TooFewTombstones(AirflowSkipException):
    """No compaction is started; `allowed` is the setting, 0 if it never starts one."""

    def __init__(self, tombstones: int, allowed: int) -> None:
        super().__init__(
            f"{tombstones} tombstones were written; a compaction is started after more than {allowed}"
            if allowed
            else f"{tombstones} tombstones were written; compaction_after_tombstones is 0, so no compaction is started"
        )
        self.tombstones = tombstones
        self.allowed = allowed


class NothingWritten(AirflowSkipException):
    """A dry run writes no tombstones, and starts no compaction for those it would have written."""


class AnnounceTombstones(BaseOperator):
    """Runs after all shards or slots of a run, whatever their state: a failed one may have written tombstones before.
    It has their summaries, so it also records the outcome of the run whose intent the task `recorded_by` has
    recorded."""

    def __init__(self, *, recorded_by: str | None = None, **kwargs: Any) -> None:
        super().__init__(outlets=[tombstones_asset()], **kwargs)
        self.recorded_by = recorded_by

    def execute(self, context: Context) -> dict[str, Any]:
        if context["params"]["dry_run"]:
            raise NothingWritten("a dry run: nothing was written, so no compaction is started")
        shards, scans = parse_summaries(context["ti"].xcom_pull(task_ids=sorted(self.upstream_task_ids)) or [])
        if self.recorded_by:
            from sweep_tasks.orchestration.recording import record_outcome

            record_outcome(context, self.recorded_by, shards)
        allowed = load_settings().compaction_after_tombstones
        written = tombstones_by_table(shards, scans)
        total = written.total()
        if not is_worth_a_compaction(total, allowed):
            raise TooFewTombstones(total, allowed)
        announced = TombstonesWritten(total, dict(written.most_common(_MOST_TABLES)), context["run_id"])
        context["outlet_events"][tombstones_asset()].extra = asdict(announced)
        self.log.info("%s tombstones were written, more than %s: the DAG compaction is started", total, allowed)
        return {"tombstones": announced.tombstones, "tables": announced.tables}


def parse_summaries(results: Iterable[Any]) -> tuple[list[Summary], list[LegacySummary]]:
    """Parse the results of the tasks before: one summary of a shard, a list of summaries of a slot, or None if the task
    was skipped or failed."""
    from sweep_tasks.legacy.run import LegacySummary
    from sweep_tasks.sweep.summary import Summary

    shards: list[Summary] = []
    scans: list[LegacySummary] = []
    for result in results:
        if isinstance(result, list):
            scans += [LegacySummary.parse(document) for document in result]
        elif result is not None:
            shards.append(Summary.parse(result))
    return shards, scans


def tombstones_by_table(shards: Iterable[Summary], scans: Iterable[LegacySummary]) -> Counter[str]:
    written: Counter[str] = Counter()
    for shard in shards:
        written.update(shard.tombstones)
    for scan in scans:
        written[scan.table] += scan.this_time.tombstones
    return written


def is_worth_a_compaction(tombstones: int, allowed: int) -> bool:
    return 0 < allowed < tombstones


# ---------------------------------------------------------------------------------------------------------------------
# One shard of one strategy as an Airflow task: a Spark job, or none if the shard has nothing new.
# ---------------------------------------------------------------------------------------------------------------------


class SweepShardOperator(SparkJobOperator):
    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "until")

    def __init__(self, *, strategy: SweepStrategy, shard: int, **kwargs: Any) -> None:
        super().__init__(
            application=TARGETED_SWEEP,
            name=f"sweep-{strategy}-{shard}",
            pool=pool_name(strategy, shard),
            **kwargs,
        )
        self.strategy = strategy
        self.shard = shard
        self.until = INTERVAL_END

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # ours has a result
        """Sweep the shard and return the document of its summary."""
        from sweep_tasks.orchestration.stats import send_sweep

        try:
            settings = load_settings()
            order = order_of(context["params"], ShardTask(self.strategy, self.shard), moment_ms(self.until))
            spark_connection()
            with bind_log_names(run=context["ti"].run_id, strategy=self.strategy.value, shard=self.shard):
                summary = self._sweep(settings, order, context)
        except SweepflowError as error:
            raise task_failure(error) from None
        send_sweep(summary, this_attempt(context))
        self.log.info(readable(summary))
        return summary.document()

    def _sweep(self, settings: Settings, order: SweepOrder, context: Context) -> Summary:
        """Sweep without Spark if there is nothing to do, else with it. The horizon is measured once for both."""
        from sweep_tasks.connections import open_store
        from sweep_tasks.journal.safeguards import record_lowered
        from sweep_tasks.metrics.samples import tally_sweep
        from sweep_tasks.orchestration.recording import acting_for_run
        from sweep_tasks.queue.progress import Progress
        from sweep_tasks.sweep.run import sweep_idle

        clock = SystemClock()
        with open_store(settings.store, settings) as store, acting_for_run(context):
            if not order.dry_run:
                Progress(store).check([order.shard])  # a refused order changes nothing
                record_lowered(store, settings, clock)
            horizon = order.horizon(store, settings, clock)
            summary = sweep_idle(store, settings, clock, order, horizon)
            if summary is not None:
                tally_sweep(store, clock, summary, this_attempt(context))
                return summary
        return self._sweep_with_spark(settings, order, horizon, context)

    def _sweep_with_spark(self, settings: Settings, order: SweepOrder, horizon: Horizon, context: Context) -> Summary:
        from spark_jobs.orders import SweepJob
        from sweep_tasks.orchestration.recording import actor_of, entry_of_run
        from sweep_tasks.sweep.summary import Summary

        waited, by = list[str](), actor_of(context)

        def wait(message: str) -> None:
            waited.append(message)
            self.log.info(message)

        with machine_slot(settings, self.strategy, wait):
            job = SweepJob(
                **vars(order),
                attempt=this_attempt(context),
                actor=by.name,
                reason=by.reason,
                journal_entry=entry_of_run(context, PREPARE),
                measured=None if waited else horizon,  # the job measures again instead of using an old horizon
            )
            return Summary.parse(self.submit_order(settings, job, context))


class CheckLag(BaseOperator):
    """Fails if a shard is further behind than its strategy's objective allows. A dry run swept nothing: it only logs
    the lag of each shard, and sends no figures that an alert may be bound to."""

    template_fields: Sequence[str] = ("until",)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.until = INTERVAL_END

    def execute(self, context: Context) -> None:
        from sweep_tasks.connections import open_store
        from sweep_tasks.diagnosis.lag import check_lag, lags
        from sweep_tasks.diagnosis.status import status
        from sweep_tasks.metrics.samples import push_metrics, sample
        from sweep_tasks.orchestration.stats import send_status

        try:
            settings = load_settings()
            with open_store(settings.store, settings) as store:
                if context["params"]["dry_run"]:
                    found = lags(store, SystemClock(), moment_ms(self.until))
                else:
                    sample(store, SystemClock())
                    push_metrics(store, settings, SystemClock())
                    send_status(status(store, settings, SystemClock()))
                    found = check_lag(store, settings, SystemClock(), moment_ms(self.until))
        except SweepflowError as error:
            raise task_failure(error) from None
        for each in found:
            self.log.info("%s shard %s is %s s behind", each.strategy, each.shard, each.lag_s)
