"""A complete Airflow on this machine: to try it out, for the demo, and for the tests.

API server, scheduler with LocalExecutor, dag processor and triggerer are children of this process, with metadata in
SQLite, all in one folder. The scheduler starts after the API answers, because a task that can't reach the API waits a
minute before its next attempt. All components end with this process, however this process ends.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self

import pendulum

from sweep_tasks import retries
from sweep_tasks.config import Settings
from sweep_tasks.errors import AirflowNotReady, AirflowUnreachable
from sweep_tasks.extras import require
from sweep_tasks.files import make_private_folder
from sweep_tasks.local.airflow_environment import LocalSecrets, airflow_environment, check_port, free_port
from sweep_tasks.local.processes import Server, poll, stop_servers
from sweep_tasks.orchestration.airflow_api import AirflowApi
from sweep_tasks.orchestration.names import SPARK_CONNECTION
from sweep_tasks.orchestration.pools import pools_document

PATIENCE_S = 240.0
RUN_PATIENCE_S = 600.0
"""A run starts several Java processes, one after the other: on a busy machine each takes minutes."""
_COMPONENTS = {
    "api-server": ["api-server"],
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
    "scheduler": ["scheduler", "--skip-serve-logs"],
}
_ENDED = ("success", "failed")
_PAGE = 50
_STOP_PATIENCE_S = 10.0


class LocalAirflow:
    """An Airflow in one folder that ends with this process."""

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        *,
        port: int | None = None,
        spark_master: str = "local[2]",
        tasks_at_once: int = 4,
        dags: Path | None = None,
        variables: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`variables` are added to the environment of its processes; `say` gets each step of the start. A port that is
        in use is refused before anything is created."""
        require("airflow")
        if port:
            check_port(port)
        self.folder = folder.absolute()
        make_private_folder(self.folder)
        self.address = f"http://localhost:{port or free_port()}"
        self.secrets = LocalSecrets.load_or_generate(self.folder)
        self._settings = settings
        self._spark_master = spark_master
        self._say = say
        self.environment = airflow_environment(
            self.folder, settings, self.address, self.secrets, dags=dags, tasks_at_once=tasks_at_once
        ) | dict(variables or {})
        self._servers: dict[str, Server] = {}
        self._claimed: BinaryIO | None = None
        self._api = AirflowApi(self.address, self.secrets.admin.user, self.secrets.admin.password)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all components, create the pools and the Spark connection, and wait until every component is
        healthy."""
        self._claimed = _claim(self.folder)
        try:
            self._say("preparing Airflow's metadata")
            self.run("db", "migrate")
            self._say("starting the API server, the dag processor and the triggerer")
            for name in ("api-server", "dag-processor", "triggerer"):
                self._start(name)
            self.wait("the API to answer", self._answers)
            self.set_pools()
            self.set_spark_connection()
            self._say("starting the scheduler")
            self._start("scheduler")
            self.wait("all components to be healthy", self._healthy)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all components and everything that they started."""
        stop_servers([*reversed(self._servers.values())], patience_s=_STOP_PATIENCE_S)
        self._servers.clear()
        self._api.close()
        if self._claimed:
            self._claimed.close()

    def run(self, *command: str) -> str:
        """Run an `airflow` command in this Airflow and return what it prints."""
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-m", "airflow", *command],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise AirflowNotReady(f"airflow {' '.join(command)} failed: {_tail(done.stdout + done.stderr)}")
        return done.stdout

    def api(self, method: str, path: str, json: Any = None, **query: Any) -> Any:
        """Call Airflow's API, with retries: over SQLite, two concurrent writers do not always both succeed."""
        return retries.LOCAL_AIRFLOW.retrying(time.sleep)(self._api.call, method, path, json, **query)

    def pool_slots(self) -> dict[str, int]:
        return self._api.pool_slots()

    # --- runs -------------------------------------------------------------------------------------------------------

    def unpause(self, dag_id: str, paused: bool = False) -> None:
        self.wait(f"the DAG {dag_id}", lambda: self._known(dag_id))
        self.api("PATCH", f"/dags/{dag_id}", {"is_paused": paused})

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None, run_id: str | None = None) -> str:
        """Start a run and return its id."""
        name = run_id or f"manual__{pendulum.now('UTC').isoformat()}"
        asked = {"logical_date": None, "conf": dict(conf or {}), "dag_run_id": name}
        return str(self.api("POST", f"/dags/{dag_id}/dagRuns", asked)["dag_run_id"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        return str(self.api("GET", f"/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def wait_for_run(self, dag_id: str, run_id: str, patience_s: float = RUN_PATIENCE_S) -> str:
        """Wait for the end of a run and return its state: success or failed."""

        def ended() -> str | None:
            state = self.run_state(dag_id, run_id)
            return state if state in _ENDED else None

        return str(
            self.wait(f"run {run_id} of {dag_id} to end", ended, patience_s, lambda: self.describe_run(dag_id, run_id))
        )

    def task_instances(self, dag_id: str, run_id: str) -> dict[str, dict[str, Any]]:
        path, found = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances", dict[str, dict[str, Any]]()
        while True:
            page = self.api("GET", path, limit=_PAGE, offset=len(found), order_by="id")
            found |= {each["task_id"]: each for each in page["task_instances"]}
            if not page["task_instances"] or len(found) >= page["total_entries"]:
                return found

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        return {task_id: each["state"] for task_id, each in self.task_instances(dag_id, run_id).items()}

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/{key}"
        return self.api("GET", path, deserialize=False, stringify=False)["value"]

    def log(self, dag_id: str, run_id: str, task_id: str, attempt: int = 1) -> str:
        """Return the log of a task, a line of JSON for each event."""
        answer = self.api("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{attempt}")
        return "\n".join(json.dumps(line, ensure_ascii=False) for line in answer["content"])

    def wait(
        self,
        what: str,
        done: Callable[[], Any],
        patience_s: float = PATIENCE_S,
        explain: Callable[[], str] = lambda: "",
        every_s: float = 0.5,
    ) -> Any:
        """Return the first answer of `done` that is true. Raise an error if a component ends before, or time runs
        out."""

        def answer() -> Any:
            if not (found := done()):
                self.check()
            return found or None

        found = poll(answer, patience_s, every_s)
        if found is None:
            raise AirflowNotReady(
                f"airflow: waited {patience_s:g} s for {what} without success; logs are in {self.folder}{explain()}"
            )
        return found

    def check(self) -> None:
        """Raise an error if a component that was started has ended."""
        for server in self._servers.values():
            server.check()

    def describe_run(self, dag_id: str, run_id: str) -> str:
        """Return the states of a run and its tasks, for the error about a run that does not end."""
        states = {
            task: (each["state"], each["try_number"]) for task, each in self.task_instances(dag_id, run_id).items()
        }
        return f"\n{self.run_state(dag_id, run_id)}: {states}\n{_tail(self._log_of('scheduler').read_text(), 40)}"

    # --- configuration ----------------------------------------------------------------------------------------

    def set_pools(self) -> None:
        settings = self._settings
        document = pools_document(settings.shards, settings.legacy_slots, settings.compaction_nodes)
        pools = [{"name": name, **pool} for name, pool in document.items()]
        self.api(
            "PATCH",
            "/pools",
            {"actions": [{"action": "create", "entities": pools, "action_on_existence": "overwrite"}]},
        )

    def set_spark_connection(self) -> None:
        entity = {
            "connection_id": SPARK_CONNECTION,
            "conn_type": "spark",
            "host": self._spark_master,
            "extra": json.dumps({"deploy-mode": "client"}),
        }
        self._set("/connections", [entity])

    def _set(self, path: str, entities: list[dict[str, Any]]) -> None:
        action = {"action": "create", "entities": entities, "action_on_existence": "overwrite"}
        errors = self.api("PATCH", path, {"actions": [action]})["create"]["errors"]
        if errors:
            raise AirflowNotReady(f"airflow: {path} could not be created: {errors[0]['error']}; check the API server")

    def _start(self, name: str) -> None:
        def failure(problem: str, _: str) -> AirflowNotReady:
            return AirflowNotReady(f"airflow {name} {problem}: {_tail(self._log_of(name).read_text())}")

        self._servers[name] = Server.start(
            f"airflow {name}",
            [sys.executable, "-m", "airflow", *_COMPONENTS[name]],
            self._log_of(name),
            environment=self.environment,
            keeps_log=True,
            failure=failure,
        )

    def _answers(self) -> bool:
        try:
            self._api.call("GET", "/pools", limit=1)
        except AirflowUnreachable:
            return False
        return True

    def _healthy(self) -> bool:
        parts = self.api("GET", "/monitor/health")
        return all(parts[part]["status"] == "healthy" for part in ("scheduler", "triggerer", "dag_processor"))

    def _known(self, dag_id: str) -> bool:
        return any(dag["dag_id"] == dag_id for dag in self.api("GET", "/dags", dag_id_pattern=dag_id)["dags"])

    def _log_of(self, name: str) -> Path:
        return self.folder / f"{name}.log"


def _claim(folder: Path) -> BinaryIO:
    """Lock the folder: two Airflows in one folder would run each other's tasks. The lock ends with this process."""
    claim = (folder / "claim").open("ab")
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        claim.close()
        raise AirflowNotReady(
            f"airflow: {folder} is in use by a running Airflow; stop that one, or name another folder",
            reason="in_use",
        ) from None
    return claim


def _tail(text: str, lines: int = 15) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])
