"""A Spark job of ours as an Airflow task.

The job writes its summary to a file named after the run, the task and the try; the task hands it on as its result. The
store and its secrets go by the settings of the environment, never as an argument.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseOperator, BaseOperatorLink
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from spark_jobs.environment import java_problem, spark_environment
from sweep_tasks.config import Settings
from sweep_tasks.orchestration.machine import task_folder
from sweep_tasks.orchestration.names import SPARK_CONNECTION

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import TaskInstanceKey

GUARDED_SUBMIT = Path(__file__).with_name("spark-submit-guarded")


class SummaryLink(BaseOperatorLink):
    """From the task's details to its summary, which is the first of its XComs."""

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

    def submit(self, settings: Settings, arguments: list[str], context: Context) -> dict[str, Any]:
        """The summary of the job."""
        if problem := java_problem():
            raise AirflowFailException(str(problem)) from problem
        written = task_folder(settings) / self.summary_file
        written.unlink(missing_ok=True)
        self.application_args = [*arguments, "--summary", str(written)]
        self.env_vars = spark_environment()
        self._hook = None  # it would submit what it was made for before
        super().execute(context)
        try:
            summary: dict[str, Any] = json.loads(written.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise AirflowException(
                f"summary: the Spark job ended well but left none at {written}; its driver must run on the worker's "
                "machine, so set the deploy mode of the connection to client"
            ) from None
        written.unlink()
        return summary

    def on_kill(self) -> None:
        if self._hook is not None:
            super().on_kill()
