"""Is the Airflow run that took a protection over? Asked of Airflow's REST API, as a user who may only look.

The record's meta names `dag_id` and `run_id`. A run that was deleted, or whose DAG was, is gone: whether what it
began still goes on elsewhere, Airflow can't tell.
"""

from __future__ import annotations

from urllib.parse import quote

from sweep_tasks.config import Settings
from sweep_tasks.errors import AirflowHasNone, BadValue
from sweep_tasks.orchestration.airflow_api import AirflowApi
from sweep_tasks.protection.owners import Answer, Owner
from sweep_tasks.protection.records import Record

_ANSWERS = {
    "queued": Answer.RUNNING,
    "running": Answer.RUNNING,
    "success": Answer.FINISHED,
    "failed": Answer.FINISHED,
}


class AirflowRunOwner(Owner):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._api: AirflowApi | None = None

    def answer(self, record: Record) -> Answer:
        dag_id, run_id = (self.detail(record, key) for key in ("dag_id", "run_id"))
        try:
            run = self._run(f"/dags/{quote(dag_id, safe='')}/dagRuns/{quote(run_id, safe='')}")
        except AirflowHasNone:
            return Answer.GONE
        if run["state"] not in _ANSWERS:
            raise BadValue("run", f"{run_id} of {dag_id} is in a state that is not known here: {run['state']}")
        return _ANSWERS[run["state"]]

    def close(self) -> None:
        if self._api:
            self._api.close()

    def _run(self, path: str) -> dict[str, str]:
        """The address is looked up when it is needed first: who has no such record needs no such connection."""
        from sweep_tasks.orchestration.prepare import airflow_connection

        if self._api is None:
            self._api = AirflowApi.of(airflow_connection(), self.settings.owner_timeout_s)
        found: dict[str, str] = self._api.call("GET", path)
        return found
