"""A Spark job as an Airflow task, and the number of such tasks that one machine runs at once."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseOperator, BaseOperatorLink
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from spark_jobs.environment import java_problem, spark_environment
from sweep_tasks import retries
from sweep_tasks.config import Settings
from sweep_tasks.errors import BadValue
from sweep_tasks.files import PRIVATE_FILE, make_private_folder, write_whole
from sweep_tasks.model import SweepStrategy
from sweep_tasks.orchestration.names import SPARK_CONNECTION
from sweep_tasks.processes import Needs, left_out_of_environment

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import TaskInstanceKey

    from sweep_tasks.orders import Order


# ---------------------------------------------------------------------------------------------------------------------
# How many shards of a strategy one machine sweeps at the same time.
#
# Airflow's scheduler limits tasks by pool, by run and by executor. A pool is already the lock of a shard, and none of
# the other limits knows strategies. So a task that is about to start Spark takes one of the machine's slots for its
# strategy: a locked file, which the kernel releases however the task ends.
# ---------------------------------------------------------------------------------------------------------------------

_ROOT = 0
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def task_folder(settings: Settings) -> Path:
    """Return the folder for files of running tasks, and create it if needed. It must belong to this user alone."""
    folder = settings.task_folder or Path(tempfile.gettempdir(), f"sweepflow-{os.getuid()}")
    try:
        make_private_folder(folder)
    except OSError as error:
        problem = f"{folder} can't be created: {error.strerror}; name another folder"
        raise BadValue("setting task_folder", problem, reason="unusable") from error
    if not settings.task_folder_shared:
        _check_ours(folder)
    return folder


def _check_ours(folder: Path) -> None:
    """Refuse a folder that other users can write to. They could replace the order or the summary of a job, hold all
    slots, or make a task overwrite a file elsewhere. In the temporary folder every user can create a folder or a link
    with our name first."""
    way_out = "name another folder, or set task_folder_shared if its other writers are trusted"
    found, us = folder.stat(), os.geteuid()
    if found.st_uid != us or folder.lstat().st_uid not in (us, _ROOT):
        raise BadValue("setting task_folder", f"{folder} belongs to another user; {way_out}", reason="other_owner")
    if stat.S_IMODE(found.st_mode) & _OTHERS_WRITE:
        problem = f"{folder} can be written by other users; 'chmod go-w' it, {way_out}"
        raise BadValue("setting task_folder", problem, reason="writable_by_others")


@contextmanager
def machine_slot(settings: Settings, strategy: SweepStrategy, waiting: Callable[[str], None]) -> Iterator[None]:
    """Hold one of the strategy's slots on this machine. `waiting` is called once if none is free."""
    warned = False
    slots = settings.sweep_tasks_at_once[strategy]
    while (held := _free_slot(task_folder(settings), strategy, slots)) is None:
        if not warned:
            warned = True
            waiting(
                f"waiting: {slots} {strategy} shards are being swept on this machine, "
                "as many as the setting sweep_tasks_at_once allows"
            )
        time.sleep(retries.MACHINE_SLOT.pause_s(0))
    with held:
        yield


def _free_slot(folder: Path, strategy: SweepStrategy, slots: int) -> BinaryIO | None:
    for slot in range(slots):
        file = (folder / f"{strategy}-{slot}.slot").open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
        else:
            return file
    return None


# ---------------------------------------------------------------------------------------------------------------------
# A Spark job as an Airflow task.
#
# One JSON document travels each way, as a private file named after the run, the task and the attempt: the order to the
# job, the summary back, which is the result of the task. The store and its secrets are settings of the environment,
# never an argument.
# ---------------------------------------------------------------------------------------------------------------------

LEFT_OUT = "SWEEPFLOW_LEFT_OUT"
"""The names of variables that the guard drops. Airflow's hook passes the whole environment of the task to a job,
including Airflow's keys and the address of its database."""
GUARDED_SUBMIT = Path(__file__).with_name("spark-submit-guarded")


class SummaryLink(BaseOperatorLink):
    """A link from the task's details to its summary, which is the first of its XComs."""

    name = "Summary"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002 (given by Airflow)
        address = conf.get("api", "base_url", fallback="").rstrip("/")
        return f"{address}/dags/{ti_key.dag_id}/runs/{ti_key.run_id}/tasks/{ti_key.task_id}/xcom"


class SparkJobOperator(SparkSubmitOperator):
    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "summary_file")
    operator_extra_links = (SummaryLink(),)

    def __init__(self, *, application: Path, **kwargs: Any) -> None:
        super().__init__(
            application=str(application), conn_id=SPARK_CONNECTION, spark_binary=str(GUARDED_SUBMIT), **kwargs
        )
        self.summary_file = "{{ dag.dag_id }}-{{ run_id }}-{{ task.task_id }}-{{ ti.try_number }}.json"

    def submit_order(self, settings: Settings, order: Order, context: Context) -> dict[str, Any]:
        """Run the job with this order and return the document of its summary."""
        written = task_folder(settings) / f"{self.summary_file.removesuffix('.json')}.order.json"
        write_whole(written, order.document(), PRIVATE_FILE)
        try:
            return self.submit(settings, ["--order", str(written)], context)
        finally:
            written.unlink(missing_ok=True)

    def submit(self, settings: Settings, arguments: list[str], context: Context) -> dict[str, Any]:
        """Run the job with these arguments and return the document of its summary."""
        if problem := java_problem():
            raise AirflowFailException(str(problem)) from problem
        written = task_folder(settings) / self.summary_file
        written.unlink(missing_ok=True)
        self.application_args = [*arguments, "--summary", str(written)]
        self.env_vars = spark_environment() | {LEFT_OUT: " ".join(left_out())}
        self._hook = None  # otherwise it would submit the arguments of an earlier call
        super().execute(context)
        try:
            summary: dict[str, Any] = json.loads(written.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise AirflowException(
                f"summary: the Spark job succeeded but left no summary at {written}; its driver must run on the "
                "worker's machine, so set the deploy mode of the connection to client"
            ) from None
        written.unlink()
        return summary

    def on_kill(self) -> None:
        if self._hook is not None:
            super().on_kill()


def left_out() -> list[str]:
    """Return the variables that a job must not get. The guard splits them at white space."""
    return [name for name in left_out_of_environment(Needs.SPARK) if name.split() == [name]]
