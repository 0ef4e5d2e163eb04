"""A Spark cluster of the installed PySpark on this machine: a master and workers, each in its own process."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from spark_jobs.environment import SHORT_LIVED
from sweep_tasks.errors import ProgramMissing
from sweep_tasks.local.processes import Server
from sweep_tasks.processes import Needs, inherited_environment

HERE = "127.0.0.1"
_WORKER = "worker.Worker"
_MASTER_AT = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with master")


class LocalSpark:
    """A standalone Spark cluster that ends with this process."""

    def __init__(
        self, folder: Path, workers: int = 2, *, cores: int = 1, memory: str = "1g", cores_of_a_job: int | None = None
    ) -> None:
        """`cores` and `memory` are those of each worker. A job without a limit takes every core, and other jobs wait
        until it ends."""
        self.workers = workers
        self._folder = folder.absolute()
        self._size = ("--cores", str(cores), "--memory", memory)
        self._master_options = f"-Dspark.deploy.defaultCores={cores_of_a_job}" if cores_of_a_job else ""
        self._servers: list[Server] = []
        self.address = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            master = self._start("master", "master.Master", "--host", HERE, "--port", "0", "--webui-port", "0")
            self.address = master.wait_for("its address", _MASTER_AT.search)[1]
            workers = [self._start_worker(f"worker-{number}") for number in range(1, self.workers + 1)]
            for worker in workers:
                worker.wait_for("the master", _REGISTERED.search)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the workers first: they end their executors."""
        while self._servers:
            self._servers.pop().stop()

    def check(self) -> None:
        """Raise an error if one of the processes has ended."""
        for server in self._servers:
            server.check()

    def _start_worker(self, name: str) -> Server:
        place = ("--webui-port", "0", "--work-dir", str(self._folder / name))
        return self._start(name, _WORKER, "--host", HERE, *self._size, *place, self.address)

    def _start(self, name: str, role: str, *arguments: str) -> Server:
        needs = (Needs.EXECUTOR,) if role == _WORKER else ()
        environment = inherited_environment(*needs) | {
            "SPARK_LOCAL_IP": HERE,
            "SPARK_CONF_DIR": str(self._folder),
            "SPARK_DAEMON_MEMORY": "256m",
            "JAVA_TOOL_OPTIONS": SHORT_LIVED,  # executors, which workers start, use it too
            "SPARK_MASTER_OPTS": self._master_options,
        }
        server = Server.start(
            f"spark {name}",
            [_spark_class(), f"org.apache.spark.deploy.{role}", *arguments],
            self._folder / f"{name}.log",
            environment=environment,
            folder=self._folder,
        )
        self._servers.append(server)
        return server


def _spark_class() -> Path:
    """Find it without importing PySpark, which takes as long as a whole command."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ProgramMissing("spark: PySpark is not installed; run 'make setup'")
    return Path(found.origin).parent / "bin" / "spark-class"
