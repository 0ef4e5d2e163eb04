"""Tables swept by scanning them, as Airflow tasks: one that chooses, and one for each lane that scans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseBranchOperator
from airflow.sdk.exceptions import AirflowException

from spark_jobs.environment import LEGACY_SWEEP
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import load_settings
from sweep_tasks.errors import LegacySweepRunning, SweepflowError
from sweep_tasks.model import TableRef
from sweep_tasks.orchestration.lanes import BY_HAND, Planned, lane_task, planned
from sweep_tasks.orchestration.pools import lane_pools
from sweep_tasks.orchestration.prepare import check_pools, explained, spark_connection, this_try
from sweep_tasks.orchestration.spark_job import SparkJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from sweep_tasks.legacy.order import LegacyOrder
    from sweep_tasks.legacy.progress import Standing

CHOOSE, TURNS = "choose", "turns"
_FAILED = "failed"


class ChooseTables(BaseBranchOperator):
    """Checks what the lanes need, decides whose turn it is, and skips lanes that have nothing to do."""

    def choose_branch(self, context: Context) -> Iterable[str]:
        from sweep_tasks.opening import open_store

        try:
            settings = load_settings()
            spark_connection()
            check_pools(lane_pools(settings.legacy_lanes))
            with open_store(settings.store, settings) as store:
                lanes = planned(store, settings, SystemClock(), context["params"])
        except SweepflowError as error:
            raise explained(error) from None
        for lane, chosen in lanes.items():
            for turn in chosen:
                self.log.info("%s: %s, %s", lane, turn.table, turn.why)
        context["ti"].xcom_push(key=TURNS, value={lane: [list(turn) for turn in each] for lane, each in lanes.items()})
        return list(lanes)


class ScanLane(SparkJobOperator):
    """The turns of one lane, one after the other. A table that fails does not keep the others from their turn."""

    def __init__(self, *, lane: int, **kwargs: Any) -> None:
        super().__init__(
            application=LEGACY_SWEEP,
            name=f"legacy-sweep-{lane}",
            task_id=lane_task(lane),
            pool=lane_pools(lane + 1)[lane],
            **kwargs,
        )

    def execute(self, context: Context) -> list[dict[str, Any]]:  # type: ignore[override]  # ours has a result
        """The summaries of the scans."""
        turns = [Planned(*each) for each in context["ti"].xcom_pull(task_ids=CHOOSE, key=TURNS)[self.task_id]]
        clock = SystemClock()
        until_ms = clock.now_ms() + 1000 * sum(turn.seconds for turn in turns)
        done: list[dict[str, Any]] = []
        failed: list[str] = []
        for number, turn in enumerate(turns):
            seconds = share_s(turn, until_ms - clock.now_ms(), len(turns) - number)
            try:
                summary = self._scan(turn._replace(seconds=seconds), context)
            except (SweepflowError, AirflowException) as error:
                ours = explained(error) if isinstance(error, SweepflowError) else error
                if len(turns) == 1:
                    raise ours from None
                self.log.error("%s: %s", turn.table, ours)
                failed.append(turn.table)
            else:
                done += [summary] if summary else []
        if failed:
            raise AirflowException(f"tables: {', '.join(failed)} could not be scanned; what went wrong is said above")
        return done

    def _scan(self, turn: Planned, context: Context) -> dict[str, Any] | None:
        """The summary; None if somebody else is at work on the table, or it had its turn in an earlier try."""
        from sweep_tasks.legacy.progress import Runs
        from sweep_tasks.legacy.taking_up import how_to_begin
        from sweep_tasks.observation.entering import enter_scan
        from sweep_tasks.opening import open_store

        settings, params = load_settings(), context["params"]
        order = order_of(params, turn)
        owner = f"{context['dag'].dag_id} {context['run_id']} {self.task_id}"
        with open_store(settings.store, settings) as store:
            standing = Runs(store).standing(order.table)
        if turn.why != BY_HAND and had_its_turn(standing, owner):
            self.log.info("%s had its turn in an earlier try", turn.table)
            return None
        try:
            how = how_to_begin(
                standing, order, anew=params["anew"] and turn.why == BY_HAND, now_ms=SystemClock().now_ms(),
                silent_ms=settings.legacy_silent_s * 1000, owner=owner,
            )  # fmt: skip
        except LegacySweepRunning as error:
            if turn.why == BY_HAND:
                raise
            self.log.info("%s", error)
            return None
        summary = self.submit(settings, arguments(order, how, owner), context)
        with open_store(settings.store, settings) as store:
            enter_scan(store, SystemClock(), summary, this_try(context))
        self.log.info(readable(summary))
        return summary


def share_s(turn: Planned, left_ms: float, turns_left: int) -> float:
    """What earlier turns did not use is divided among those that are left. Even who comes too late gets a little: an
    earlier one that took longer is not its fault."""
    return max(turn.seconds / 2, left_ms / 1000 / turns_left) if turn.seconds else 0.0


def had_its_turn(standing: Standing | None, owner: str) -> bool:
    """In an earlier try of the same task, which got to the end of it."""
    run = standing.run if standing else None
    return run is not None and run.owner == owner and run.ended_ms is not None and run.why != _FAILED


def order_of(params: Mapping[str, Any], turn: Planned) -> LegacyOrder:
    from sweep_tasks.legacy.order import LegacyOrder

    return LegacyOrder(
        TableRef.parse(turn.table),
        from_row=bytes.fromhex(params["from_row"] or ""),
        max_cells=params["max_cells"],
        max_seconds=turn.seconds,
        batch=params["batch"],
        dry_run=params["dry_run"],
    )


def arguments(order: LegacyOrder, how: str, owner: str) -> list[str]:
    """The order as the Spark job takes it."""
    given: dict[str, object] = {
        "--table": order.table,
        "--owner": owner,
        "--from-row": order.from_row.hex(),
        "--max-cells": order.max_cells,
        "--max-seconds": order.max_seconds,
        "--batch": order.batch,
    }
    words = [word for name, value in given.items() if value for word in (name, str(value))]
    flags = {"resume": ["--resume"], "take over": ["--take-over"]}.get(how, [])
    return [*words, *flags, *(["--dry-run"] if order.dry_run else [])]


def readable(summary: Mapping[str, Any]) -> str:
    """One line that a person reads in the log of the task."""
    done = f"{summary['deleted']} of {summary['versions']} versions of {summary['cells']} cells"
    dry = " (a dry run: nothing was changed)" if summary["dry_run"] else ""
    left = f"; stopped ({summary['stopped']}), the next turn goes on from there" if summary["stopped"] else ""
    ranges = f"{summary['ranges_done']} of {summary['ranges']} ranges"
    return f"{summary['table']} run {summary['run']}: {done} removed, {ranges}{left}{dry}"
