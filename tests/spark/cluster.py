"""A Spark standalone cluster of the installed PySpark: a master and workers, each a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Self

import pyspark

from tests.spark.submitting import PATIENCE_S

HERE = "127.0.0.1"
_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_MASTER_AT = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with master")


class Cluster:
    """Workers have one core each, so that no work for two fits into one of them."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._workers = workers
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self._start("master", "master.Master", "--host", HERE, "--port", "0", "--webui-port", "0")
            self.address = self._said("master", _MASTER_AT)[1]
            names = [f"worker-{number}" for number in range(self._workers)]
            for name in names:
                room = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(self._folder / name))
                self._start(name, "worker.Worker", "--host", HERE, *room, self.address)
            for name in names:
                self._said(name, _REGISTERED)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def options(self) -> tuple[str, ...]:
        """For `spark-submit`. A job begins when all executors are there: a short one would be over before the last."""
        given = {
            "spark.driver.host": HERE,
            "spark.cores.max": self._workers,
            "spark.executor.cores": 1,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": _SHORT_LIVED,
            "spark.scheduler.minRegisteredResourcesRatio": 1.0,
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{PATIENCE_S}s",
        }
        confs = [word for name, value in given.items() for word in ("--conf", f"{name}={value}")]
        return ("--master", self.address, *confs)

    def _start(self, name: str, role: str, *arguments: str) -> None:
        environment = os.environ | {
            "SPARK_LOCAL_IP": HERE,
            "SPARK_CONF_DIR": str(self._folder),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _SHORT_LIVED,
        }
        with self._log(name).open("wb") as log:
            command = [str(_SPARK_CLASS), f"org.apache.spark.deploy.{role}", *arguments]
            self._started[name] = subprocess.Popen(
                command, env=environment, cwd=self._folder, stdout=log, stderr=subprocess.STDOUT
            )

    def _said(self, name: str, what: re.Pattern[str]) -> re.Match[str]:
        deadline = time.monotonic() + PATIENCE_S
        while not (found := what.search(self._log(name).read_text())):
            assert self._started[name].poll() is None, self._log(name).read_text()
            assert time.monotonic() < deadline, self._log(name).read_text()
            time.sleep(0.1)
        return found

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _end(self) -> None:
        """Workers first: they end their executors."""
        for process in reversed(self._started.values()):
            process.terminate()
        for process in self._started.values():
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
