"""A benchmark's result as a JSON file, with the date and the machine that it was measured on."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import psutil

from benchmarks.shared.goals import Goal, parsed
from sweep_tasks.local.jars import VERSION as CASSANDRA

RESULTS = Path(__file__).parents[1] / "results"
"""Where results are kept with the code. The page is written from them."""


@dataclass(frozen=True)
class Machine:
    """Everything that influences a figure, and nothing that identifies a machine."""

    cores: int
    cpu: str
    memory_gb: int
    system: str
    kernel: str
    python: str
    java: str
    spark: str
    cassandra: str

    @classmethod
    def this(cls) -> Self:
        return cls(
            cores=len(os.sched_getaffinity(0)),
            cpu=_cpu(),
            memory_gb=round(psutil.virtual_memory().total / 1024**3),
            system=platform.freedesktop_os_release()["PRETTY_NAME"],
            kernel=platform.release().split("-")[0],
            python=platform.python_version(),
            java=_java(),
            spark=version("pyspark"),
            cassandra=CASSANDRA,
        )


@dataclass(frozen=True)
class Recorded:
    benchmark: str
    date: str
    machine: Machine
    result: Mapping[str, Any]

    @classmethod
    def now(cls, benchmark: str, result: Mapping[str, Any]) -> Self:
        return cls(benchmark, datetime.now(UTC).date().isoformat(), Machine.this(), result)

    @property
    def goals(self) -> list[Goal]:
        return parsed(self.result.get("goals", []))

    def store(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.benchmark}.json"
        file.write_text(f"{json.dumps(asdict(self), indent=2, sort_keys=False)}\n", encoding="utf-8")
        return file

    @classmethod
    def load(cls, file: Path) -> Self:
        document = json.loads(file.read_text(encoding="utf-8"))
        machine = Machine(**document["machine"])
        return cls(document["benchmark"], document["date"], machine, document["result"])


def load_all(folder: Path) -> dict[str, Recorded]:
    """Return what a folder holds, by the name of the benchmark."""
    found = [Recorded.load(file) for file in sorted(folder.glob("*.json"))]
    return {each.benchmark: each for each in found}


def _cpu() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else platform.machine()


def _java() -> str:
    java = shutil.which("java")
    if java is None:
        return "none"
    ended = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "([^"]+)"', ended.stderr)
    return found[1] if found else "unknown"
