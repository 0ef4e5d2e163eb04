"""A complete Airflow on this machine: for a first look, for the demonstration, and for the tests.

API server, scheduler with LocalExecutor, dag processor and triggerer are children of this process, with metadata in
SQLite, all in one folder. The scheduler starts only when the API answers, because a task that can not reach it waits a
minute before it tries again. The children are told to end when the thread that started them does, whatever ends it.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self

import pendulum
import psutil

from sweep_tasks.config import Settings
from sweep_tasks.errors import AirflowNotReady, AirflowUnreachable
from sweep_tasks.orchestration.airflow_api import AirflowApi
from sweep_tasks.orchestration.local_environment import DAGS, LocalSecrets, airflow_environment, free_port
from sweep_tasks.orchestration.names import SPARK_CONNECTION
from sweep_tasks.orchestration.pools import pools_document

PATIENCE_S = 240.0
RUN_PATIENCE_S = 600.0
"""A run starts several Javas, one after the other: on a busy machine each takes minutes."""
_COMPONENTS = {
    "api-server": ["api-server"],
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
    "scheduler": ["scheduler", "--skip-serve-logs"],
}
_ENDED = ("success", "failed")
_ATTEMPTS = 5
_PAGE = 50


class LocalAirflow:
    def __init__(
        self,
        folder: Path,
        settings: Settings,
        *,
        port: int | None = None,
        spark_master: str = "local[2]",
        tasks_at_once: int = 4,
        dags: Path = DAGS,
        variables: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`variables` are added to the environment of its processes; `say` is told each step of the start."""
        self.folder = folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.address = f"http://localhost:{port or free_port()}"
        self.secrets = LocalSecrets.kept_in(self.folder)
        self._settings = settings
        self._spark_master = spark_master
        self._say = say
        self.environment = airflow_environment(
            self.folder, settings, self.address, self.secrets, dags=dags, tasks_at_once=tasks_at_once
        ) | dict(variables or {})
        self._children: dict[str, psutil.Popen] = {}
        self._claimed: BinaryIO | None = None
        self._api = AirflowApi(self.address, self.secrets.admin.user, self.secrets.admin.password)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Until every part says it is healthy, with pools and the Spark connection in place."""
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
            self.wait("all parts to be healthy", self._healthy)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """The parts, and whatever they started."""
        family = [each for child in self._children.values() for each in self._family(child)]
        for child in reversed(self._children.values()):
            if child.is_running():
                child.send_signal(signal.SIGTERM)
        _, left = psutil.wait_procs(family, timeout=10)
        for each in {*left, *(each for child in left for each in self._family(child))}:
            if each.is_running():
                each.kill()
        psutil.wait_procs(left, timeout=10)
        self._children.clear()
        self._api.close()
        if self._claimed:
            self._claimed.close()

    def run(self, *command: str) -> str:
        """What an `airflow` command of this Airflow prints."""
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
        """Asked again if it fails for now: over SQLite, two who write at the same time do not always both succeed."""
        for left in reversed(range(_ATTEMPTS)):
            try:
                return self._api.call(method, path, json, **query)
            except AirflowUnreachable:
                if not left:
                    raise
            time.sleep(1)
        raise AssertionError

    def pool_slots(self) -> dict[str, int]:
        return self._api.pool_slots()

    # --- runs -------------------------------------------------------------------------------------------------------

    def unpause(self, dag_id: str, paused: bool = False) -> None:
        self.wait(f"the DAG {dag_id}", lambda: self._known(dag_id))
        self.api("PATCH", f"/dags/{dag_id}", {"is_paused": paused})

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None, run_id: str | None = None) -> str:
        """The id of the new run."""
        name = run_id or f"manual__{pendulum.now('UTC').isoformat()}"
        asked = {"logical_date": None, "conf": dict(conf or {}), "dag_run_id": name}
        return str(self.api("POST", f"/dags/{dag_id}/dagRuns", asked)["dag_run_id"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        return str(self.api("GET", f"/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def wait_for_run(self, dag_id: str, run_id: str, patience_s: float = RUN_PATIENCE_S) -> str:
        """How it ended: success or failed."""

        def ended() -> str | None:
            state = self.run_state(dag_id, run_id)
            return state if state in _ENDED else None

        return str(self.wait(f"run {run_id} of {dag_id} to end", ended, patience_s, lambda: self.told(dag_id, run_id)))

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
        """A task's log, a line of JSON for each event."""
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
        """The first answer of `done` that is true. A part that has ended meanwhile is not waited for."""
        until = time.monotonic() + patience_s
        while not (answer := done()):
            self.check()
            if time.monotonic() > until:
                raise AirflowNotReady(
                    f"waited {patience_s:g} s for {what} in vain; logs are in {self.folder}{explain()}"
                )
            time.sleep(every_s)
        return answer

    def check(self) -> None:
        """Are all parts that were started still there?"""
        for name, child in self._children.items():
            if child.poll() is not None:
                raise AirflowNotReady(f"airflow {name} has ended: {_tail(self._log_of(name).read_text())}")

    def told(self, dag_id: str, run_id: str) -> str:
        """What there is to know about a run that does not do what it should."""
        states = {
            task: (each["state"], each["try_number"]) for task, each in self.task_instances(dag_id, run_id).items()
        }
        return f"\n{self.run_state(dag_id, run_id)}: {states}\n{_tail(self._log_of('scheduler').read_text(), 40)}"

    # --- what the parts need ----------------------------------------------------------------------------------------

    def set_pools(self) -> None:
        settings = self._settings
        document = pools_document(settings.shards, settings.legacy_lanes, settings.compaction_nodes)
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
            raise AirflowNotReady(f"airflow: {path} could not be set: {errors[0]['error']}")

    def _start(self, name: str) -> None:
        guard = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
        with self._log_of(name).open("ab") as log:
            self._children[name] = psutil.Popen(
                [*guard, sys.executable, "-m", "airflow", *_COMPONENTS[name]],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
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

    @staticmethod
    def _family(process: psutil.Process) -> list[psutil.Process]:
        try:
            return [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return [process]


def _claim(folder: Path) -> BinaryIO:
    """Two Airflows in one folder would run each other's tasks. The kernel gives the claim back however we end."""
    claim = (folder / "claim").open("ab")
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        claim.close()
        raise AirflowNotReady(
            f"airflow: {folder} is in use by an Airflow that is still up; stop that one, or name another folder",
            reason="in_use",
        ) from None
    return claim


def _tail(text: str, lines: int = 15) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])
