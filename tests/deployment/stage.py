"""The services of the compose file as processes of this machine, without containers.

Commands, environments and health checks are those of the file. Resources of a container are replaced: a free port for
each port, a temporary folder for each volume, 127.0.0.1 for each service name, and a store in a file for the Cassandra
nodes.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from tests.deployment.compose import ROOT, Deployment

PATIENCE_S = 240
HERE = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind((HERE, 0))
        return int(taken.getsockname()[1])


class Stage:
    def __init__(self, deployment: Deployment, folder: Path, **instead: str) -> None:
        """`instead` has variables that replace those of the file, such as another database."""
        self.deployment = deployment
        self.folder = folder
        self._instead = instead
        self._ports: dict[tuple[str, int], int] = defaultdict(free_port)
        names = "|".join(map(re.escape, deployment.services))
        self._name = re.compile(rf"\b({names})(?::(\d+))?(?![\w-])")
        self._places = {
            "/opt/sweepflow/deploy": folder / "scripts",
            "/opt/airflow": folder / "airflow",
            "/var/lib/spark": folder / "spark",
            "/etc/sweepflow": ROOT / "deploy" / "config",
        }
        for place in self._places.values():
            place.mkdir(parents=True, exist_ok=True)
        for script in (ROOT / "deploy").glob("*.sh"):
            (folder / "scripts" / script.name).write_text(self._with_own_ports(script.read_text(), "airflow-apiserver"))

    def port(self, service: str, port: int) -> int:
        return self._ports[service, port]

    def command(self, name: str) -> list[str]:
        words = self.deployment.services[name].command
        ports = {value for option, value in pairwise(words) if option in ("--port", "--webui-port")}
        return [str(self.port(name, int(word))) if word in ports else self._translated(word, name) for word in words]

    def environment(self, name: str) -> dict[str, str]:
        translated = {
            variable: self._translated(value, name)
            for variable, value in self.deployment.services[name].environment.items()
        }
        added = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # limit the CPU time of the JVM
            "AIRFLOW_HOME": str(self._places["/opt/airflow"]),
            "SWEEPFLOW_STORE": f"sqlite:///{self.folder}/store.db",
            "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_SERVER_PORT": str(self.port("airflow-scheduler", 8974)),
        }
        folders = {"AIRFLOW__CORE__DAGS_FOLDER": f"{ROOT}/dags"}
        ours = translated | {key: value for key, value in folders.items() if key in translated}
        return ours | added | self._instead

    def run(self, name: str) -> None:
        """Run a service that ends by itself."""
        with (self.folder / f"{name}.log").open("wb") as log:
            ended = subprocess.run(
                self.command(name), env=self.environment(name), stdout=log, stderr=log, timeout=PATIENCE_S, check=False
            )
        assert ended.returncode == 0, self.log(name)

    @contextmanager
    def running(self, name: str, number: int = 1) -> Iterator[None]:
        """Run a service from the time it is healthy until the end of the block."""
        with (self.folder / f"{name}.log").open("wb") as log:
            started = [
                subprocess.Popen(
                    self.command(name), env=self.environment(name), stdout=log, stderr=log, start_new_session=True
                )
                for _ in range(number)
            ]
        try:
            self.wait_until_healthy(name, started)
            yield
        finally:
            for process in started:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(timeout=PATIENCE_S)

    def healthy(self, name: str) -> bool:
        service = self.deployment.services[name]
        check = [self._translated(word, name) for word in service.health_check]
        ended = subprocess.run(check, env=self.environment(name), capture_output=True, timeout=PATIENCE_S, check=False)
        return ended.returncode == 0

    def wait_until_healthy(self, name: str, started: list[subprocess.Popen[bytes]]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not self.healthy(name):
            assert all(process.poll() is None for process in started), self.log(name)
            assert time.monotonic() < until, f"{name} is not healthy: {self.log(name)}"
            time.sleep(1)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-4_000:]

    def _translated(self, text: str, name: str) -> str:
        for place, here in self._places.items():
            text = text.replace(place, str(here))
        text = re.sub(rf"{re.escape(HERE)}:(\d+)", lambda own: f"{HERE}:{self.port(name, int(own[1]))}", text)
        text = re.sub(r"localhost:\d+", f"{HERE}:{self.port('airflow-apiserver', 8080)}", text)
        return self._name.sub(self._here, text)

    def _here(self, match: re.Match[str]) -> str:
        return f"{HERE}:{self.port(match[1], int(match[2]))}" if match[2] else HERE

    def _with_own_ports(self, script: str, name: str) -> str:
        return re.sub(r"--port (\d+)", lambda own: f"--port {self.port(name, int(own[1]))}", script)
