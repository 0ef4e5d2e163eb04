"""Measures how long the command and the library take to start, as a multiple of `python -c pass`.

Processor seconds, alternately, the least of each: on a machine with other load these are the reliable figures.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from math import inf
from pathlib import Path
from typing import Any

from sweep_tasks.config import load_settings
from sweep_tasks.store import initialise_store

ROUNDS = 7
_COMMAND = str(Path(sys.executable).with_name("sweepflow"))


def measure(rounds: int = ROUNDS) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/store.db"
        initialise_store(url, load_settings(store=url))
        commands = {
            "python": [sys.executable, "-c", "pass"],
            "help": [_COMMAND, "--help"],
            "status": [_COMMAND, "status", "--store", url],
            "connect": [sys.executable, "-c", f"import sweep_tasks; sweep_tasks.connect({url!r}).close()"],
        }
        least = dict.fromkeys(commands, inf)
        for _ in range(rounds):
            for name, command in commands.items():
                least[name] = min(least[name], _processor_seconds(command))
    ratios = {name: round(value / least["python"], 1) for name, value in least.items() if name != "python"}
    return {"rounds": rounds, "processor_seconds": {name: round(each, 3) for name, each in least.items()}} | ratios


def _processor_seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
