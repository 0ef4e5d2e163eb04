"""Tables swept by scanning them, as Airflow tasks: one that chooses, and one for each lane that scans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseBranchOperator
from airflow.sdk.exceptions import AirflowException, AirflowTaskTimeout

from spark_jobs.environment import LEGACY_SWEEP
from spark_jobs.trying import as_arguments
from sweep_tasks.clock import SystemClock
from sweep_tasks.config import Settings, load_settings
from sweep_tasks.errors import LegacySweepCancelled, LegacySweepRunning, SweepflowError
from sweep_tasks.legacy.due import Undone
from sweep_tasks.logs import at_work
from sweep_tasks.model import TableRef
from sweep_tasks.orchestration.lanes import BY_HAND, Planned, lane_task, planned, still_due
from sweep_tasks.orchestration.pools import LANES, lane_pools
from sweep_tasks.orchestration.prepare import airflow_connection, check_pools, explained, spark_connection, this_try
from sweep_tasks.orchestration.spark_job import SparkJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from sweep_tasks.legacy.order import LegacyOrder
    from sweep_tasks.legacy.progress import Standing

CHOOSE, TURNS, SCAN = "choose", "turns", "scan"
_CUT_SHORT = ("failed", "interrupted")


class ChooseTables(BaseBranchOperator):
    """Checks what the lanes need, decides whose turn it is, and skips lanes that have nothing to do."""

    def choose_branch(self, context: Context) -> Iterable[str]:
        from sweep_tasks.opening import open_store

        params = context["params"]
        try:
            settings = load_settings()
            spark_connection()
            check_pools(lane_pools(settings.legacy_lanes))
            with open_store(settings.store, settings) as store:
                lanes = planned(store, settings, SystemClock(), params)
            if not params["table"]:
                lanes = self._without_busy(lanes, settings.legacy_lanes)
        except SweepflowError as error:
            raise explained(error) from None
        for lane, chosen in lanes.items():
            for turn in chosen:
                self.log.info("%s: %s, %s", lane, turn.table, turn.why)
        context["ti"].xcom_push(key=TURNS, value={lane: [list(turn) for turn in each] for lane, each in lanes.items()})
        return list(lanes)

    def _without_busy(self, lanes: dict[str, list[Planned]], number: int) -> dict[str, list[Planned]]:
        """Turns do not queue up behind a scan that takes for ever: they would keep new runs, other lanes and tables
        that somebody asks for waiting. There will be others in an hour."""
        from sweep_tasks.orchestration.airflow_api import AirflowApi

        with AirflowApi.of(airflow_connection()) as api:
            busy = api.busy_pools(LANES)
        taken = {lane_task(lane) for lane, pool in enumerate(lane_pools(number)) if pool in busy}
        for lane in sorted(taken & lanes.keys()):
            self.log.info(
                "%s is in use; its tables have their turn in a later run", lane, code="lane_in_use", lane=lane
            )
        return {lane: turns for lane, turns in lanes.items() if lane not in taken}


class ScanLane(SparkJobOperator):
    """The turns of one lane, one after the other. A table that fails does not keep the others from their turn.

    Turns have an end, and the time-out of the settings is for those that do not keep to it. A table that was asked for
    by hand is scanned for as long as that takes."""

    def __init__(self, *, lane: int, **kwargs: Any) -> None:
        super().__init__(
            application=LEGACY_SWEEP,
            name=f"legacy-sweep-{lane}",
            task_id=lane_task(lane),
            pool=lane_pools(lane + 1)[lane],
            **kwargs | {"execution_timeout": None},
        )
        self._at_work: tuple[Settings, TableRef, str] | None = None
        self._ended = False

    def execute(self, context: Context) -> list[dict[str, Any]]:  # type: ignore[override]  # ours has a result
        """The summaries of the scans."""
        from airflow.sdk.execution_time.timeout import timeout

        turns = [Planned(*each) for each in context["ti"].xcom_pull(task_ids=CHOOSE, key=TURNS)[self.task_id]]
        if any(turn.why == BY_HAND for turn in turns):
            return self._in_turn(turns, context)
        try:
            with timeout(load_settings().task_timeout_s):  # type: ignore[no-untyped-call]
                return self._in_turn(turns, context)
        except AirflowTaskTimeout:
            self.on_kill()
            raise

    def _in_turn(self, turns: list[Planned], context: Context) -> list[dict[str, Any]]:
        clock = SystemClock()
        until_ms = ends_ms(turns, clock.now_ms())
        done: list[dict[str, Any]] = []
        failed: list[str] = []
        for number, turn in enumerate(turns):
            if is_over(turn, clock.now_ms()):
                self.log.info("the time of this run is over; %s has its turn in a later one", turn.table)
                continue
            seconds = share_s(turn, until_ms - clock.now_ms(), len(turns) - number)
            try:
                summary = self._scan(turn._replace(seconds=seconds), context)
            except (SweepflowError, AirflowException) as error:
                ours = explained(error) if isinstance(error, SweepflowError) else error
                if len(turns) == 1 or self._ended:
                    raise ours from None
                self.log.error("%s: %s", turn.table, ours)
                failed.append(turn.table)
            else:
                done += [summary] if summary else []
        if failed:
            raise AirflowException(f"tables: {', '.join(failed)} could not be scanned; what went wrong is said above")
        return done

    def _scan(self, turn: Planned, context: Context) -> dict[str, Any] | None:
        """The summary; None if the table is not due any more, somebody else is at work on it, or it had its turn in an
        earlier try."""
        settings, params = load_settings(), context["params"]
        order = order_of(params, turn)
        owner = f"{context['dag'].dag_id} {context['run_id']} {self.task_id}"
        anew = params["anew"] and turn.why == BY_HAND
        run_id = self._begin(settings, order, turn, owner, anew)
        if run_id is None:
            return None
        status = f"'sweepflow legacy-sweep {turn.table} --status'"
        self.log.info("%s run %s; %s tells how far it is", turn.table, run_id, status)
        context["ti"].xcom_push(key=SCAN, value={"table": turn.table, "run": run_id})
        self._at_work = None if order.dry_run else (settings, order.table, owner)
        try:
            with at_work(run=run_id, table=turn.table):
                by_turns = turn.why != BY_HAND
                asked = [*arguments(order, owner, run_id, anew, by_turns), *as_arguments(this_try(context))]
                summary = self.submit(settings, asked, context)
        except AirflowException:
            self._let_go()  # it may have died without a word
            raise
        self._at_work = None
        self.log.info(readable(summary))
        return summary

    def _begin(self, settings: Settings, order: LegacyOrder, turn: Planned, owner: str, anew: bool) -> str | None:
        """The id that the run has or will have; None if it is not to be."""
        from sweep_tasks.legacy.progress import Runs
        from sweep_tasks.legacy.run import new_run_id
        from sweep_tasks.legacy.taking_up import Begin, looked_at
        from sweep_tasks.opening import open_store

        by_turns, clock = turn.why != BY_HAND, SystemClock()
        with open_store(settings.store, settings) as store:
            try:
                how, standing = looked_at(store, settings, clock, order, anew=anew, owner=owner, by_turns=by_turns)
            except (LegacySweepRunning, LegacySweepCancelled) as error:
                if not by_turns:
                    raise
                self.log.info("%s", error)
                return None
            if by_turns and had_its_turn(standing, owner):
                self.log.info("%s had its turn in an earlier try", turn.table)
                return None
            begun_before = standing is not None and standing.run.owner == owner
            if by_turns and not begun_before and not still_due(store, settings, clock, order.table):
                self.log.info("%s is not due any more", turn.table)
                return None
            if standing and how is Begin.TAKE_OVER:
                self.log.info("%s", dropped(standing))
            if not order.dry_run:
                Runs(store).had_turn(order.table, clock.now_ms())
            return standing.run.id if standing and how is Begin.RESUME else new_run_id()

    def on_kill(self) -> None:
        """Ends the driver, and lets go of the run: others need not wait until it counts as silent. Where nobody lives
        to do this, silence tells."""
        self._ended = True
        super().on_kill()
        self._let_go()

    def _let_go(self) -> None:
        if self._at_work is None:
            return
        from sweep_tasks.legacy.run import LegacySweep
        from sweep_tasks.opening import open_store

        settings, table, owner = self._at_work
        try:
            with open_store(settings.store, settings) as store:
                if LegacySweep(store, settings, SystemClock(), owner).let_go(table):
                    self.log.info("the run of %s is paused; the next one goes on from there", table)
        except SweepflowError as error:
            self.log.warning("the run of %s counts as under way until it was silent for long enough: %s", table, error)


def ends_ms(turns: Sequence[Planned], now_ms: int) -> float:
    """When all of them should be done: they share the time they were given, and what is left of their run's."""
    given = now_ms + 1000 * sum(turn.seconds for turn in turns)
    return min([given, *(turn.until_ms for turn in turns if turn.until_ms is not None)])


def is_over(turn: Planned, now_ms: int) -> bool:
    return turn.until_ms is not None and now_ms >= turn.until_ms


def share_s(turn: Planned, left_ms: float, turns_left: int) -> float:
    """What earlier turns did not use is divided among those that are left. Even who comes too late gets a little: an
    earlier one that took longer is not its fault."""
    return max(turn.seconds / 2, left_ms / 1000 / turns_left) if turn.seconds else 0.0


def had_its_turn(standing: Standing | None, owner: str) -> bool:
    """In an earlier try of the same task, which got to the end of it."""
    run = standing.run if standing else None
    return run is not None and run.owner == owner and run.ended_ms is not None and run.why not in _CUT_SHORT


def dropped(standing: Standing) -> str:
    """Of a run that makes way for a new one."""
    run = standing.run
    return (
        f"{run.table}: run {run.id} of {run.owner}, {standing.done} of {len(standing.ranges)} ranges done, is dropped: "
        "it is of other rows, was begun before the table was changed, or this one was asked for anew"
    )


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


def arguments(order: LegacyOrder, owner: str, run_id: str, anew: bool, by_turns: bool = False) -> list[str]:
    """The order as the Spark job takes it."""
    given: dict[str, object] = {
        "--table": order.table,
        "--owner": owner,
        "--run-id": run_id,
        "--from-row": order.from_row.hex(),
        "--max-cells": order.max_cells,
        "--max-seconds": order.max_seconds,
        "--batch": order.batch,
    }
    words = [word for name, value in given.items() if value for word in (name, str(value))]
    said = {"--anew": anew, "--by-turns": by_turns, "--dry-run": order.dry_run}
    return [*words, *(word for word, is_so in said.items() if is_so)]


def readable(summary: Mapping[str, Any]) -> str:
    """One line that a person reads in the log of the task."""
    done = f"{summary['deleted']} of {summary['versions']} versions of {summary['cells']} cells"
    dry = " (a dry run: nothing was changed)" if summary["dry_run"] else ""
    left = f"; stopped ({summary['stopped']}), the next turn goes on from there" if summary["stopped"] else ""
    due = summary["still_due"]
    still = f"; what a change of strategy has left is still due: {Undone(due).sentence}" if due else ""
    ranges = f"{summary['ranges_done']} of {summary['ranges']} ranges"
    return f"{summary['table']} run {summary['run']}: {done} removed, {ranges}{left}{still}{dry}"
