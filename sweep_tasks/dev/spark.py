"""A Spark cluster of the installed PySpark on this machine: a master and workers, each a process of its own."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from sweep_tasks.config import inherited_environment
from sweep_tasks.dev.child import Child
from sweep_tasks.errors import PartMissing

HERE = "127.0.0.1"
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""Jobs of seconds end before the slower compiler has paid for itself."""
_MASTER_AT = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with master")


class LocalSpark:
    def __init__(
        self, folder: Path, workers: int = 2, *, cores: int = 1, memory: str = "1g", cores_of_a_job: int | None = None
    ) -> None:
        """`cores` and `memory` are those of each worker. A job that is given no limit takes every core, and others wait
        until it ends."""
        self.workers = workers
        self._folder = folder.absolute()
        self._room = ("--cores", str(cores), "--memory", memory)
        self._master_options = f"-Dspark.deploy.defaultCores={cores_of_a_job}" if cores_of_a_job else ""
        self._children: list[Child] = []
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
        """Workers first: they end their executors."""
        while self._children:
            self._children.pop().stop()

    def check(self) -> None:
        for child in self._children:
            child.check()

    def _start_worker(self, name: str) -> Child:
        place = ("--webui-port", "0", "--work-dir", str(self._folder / name))
        return self._start(name, "worker.Worker", "--host", HERE, *self._room, *place, self.address)

    def _start(self, name: str, role: str, *arguments: str) -> Child:
        environment = inherited_environment() | {
            "SPARK_LOCAL_IP": HERE,
            "SPARK_CONF_DIR": str(self._folder),
            "SPARK_DAEMON_MEMORY": "256m",
            "JAVA_TOOL_OPTIONS": SHORT_LIVED,  # heard by executors too, which workers start
            "SPARK_MASTER_OPTS": self._master_options,
        }
        child = Child(
            f"spark {name}",
            [_spark_class(), f"org.apache.spark.deploy.{role}", *arguments],
            self._folder / f"{name}.log",
            environment=environment,
            folder=self._folder,
        )
        self._children.append(child)
        return child


def _spark_class() -> Path:
    """Found without importing PySpark, which takes as long as a whole command."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise PartMissing("spark: PySpark is not installed; run 'make setup'")
    return Path(found.origin).parent / "bin" / "spark-class"
