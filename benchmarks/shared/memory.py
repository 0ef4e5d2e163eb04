"""The peak resident memory of a Spark job: its Java process, its Python driver, and each of its Python workers.

Linux keeps the peak of each process, so samples only have to find a process while it exists. A worker is forked from a
daemon, and the memory that it still shares with the daemon counts for both.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from spark_jobs.environment import TARGETED_SWEEP

EVERY_S = 0.1
_DAEMON = "spark_jobs.daemon"
_JAVA = "org.apache.spark.deploy.SparkSubmit"


@dataclass
class PeakMemory:
    """In bytes. Workers are known by their process id."""

    java: int = 0
    driver: int = 0
    daemon: int = 0
    workers: dict[int, int] = field(default_factory=dict)
    limits: dict[int, int | None] = field(default_factory=dict)
    """The limit of the address space of each worker, as the kernel enforces it; None if there is none."""

    def document(self) -> dict[str, Any]:
        return {
            "java_mb": mebibytes(self.java),
            "driver_mb": mebibytes(self.driver),
            "daemon_mb": mebibytes(self.daemon),
            "workers_mb": sorted((mebibytes(each) for each in self.workers.values()), reverse=True),
        }

    def sample(self, root: int) -> None:
        for process in _with_descendants(root):
            with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                self._add(process)

    def _add(self, process: psutil.Process) -> None:
        words = process.cmdline()
        folder = Path("/proc", str(process.pid))
        peak = _kibibytes(folder / "status", "VmHWM") * 1024
        if _JAVA in words:
            self.java = max(self.java, peak)
        elif _DAEMON in words and _is_forked(process):
            self.workers[process.pid] = max(self.workers.get(process.pid, 0), peak)
            self.limits[process.pid] = _address_space(folder / "limits")
        elif _DAEMON in words:
            self.daemon = max(self.daemon, peak)
        elif str(TARGETED_SWEEP) in words:
            self.driver = max(self.driver, peak)


@contextmanager
def sampled(root: int, into: PeakMemory) -> Iterator[None]:
    """Sample a process and its descendants until the block ends."""
    over = threading.Event()

    def sample() -> None:
        while not over.wait(EVERY_S):
            into.sample(root)

    thread = threading.Thread(target=sample, name="memory", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def mebibytes(size: int) -> int:
    return round(size / 1024**2)


def _with_descendants(root: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _is_forked(process: psutil.Process) -> bool:
    parent = process.parent()
    return parent is not None and _DAEMON in parent.cmdline()


def _kibibytes(status: Path, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", status.read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def _address_space(limits: Path) -> int | None:
    found = re.search(r"^Max address space\s+(\d+)", limits.read_text(), re.MULTILINE)
    return int(found[1]) if found else None
