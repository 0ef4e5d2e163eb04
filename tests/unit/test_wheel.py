"""The wheel alone: an application with transactions on SQLite, and the command, with what these require and no more."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.wheel import ROOT, build_wheel, install_alone

pytestmark = pytest.mark.timeout(600)

MIB = 1024 * 1024
LARGEST_MIB = 150


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wheel = build_wheel(tmp_path_factory.mktemp("wheel"))
    return install_alone(wheel, tmp_path_factory.mktemp("alone"))


def ended(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SWEEPFLOW_", "PYTHON"))}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_it_is_small(bin_folder: Path) -> None:
    files = [file for file in bin_folder.parent.rglob("*") if file.is_file() and not file.is_symlink()]
    assert sum(file.stat().st_size for file in files) < LARGEST_MIB * MIB


def test_the_program_in_the_readme_runs(bin_folder: Path, tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "program.py").write_text(program)
    done = ended(bin_folder / "python", "program.py", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_command_works_on_sqlite(bin_folder: Path, tmp_path: Path) -> None:
    for command in ("init", "tables create shop.orders", "sweep", "status", "doctor"):
        done = ended(bin_folder / "sweepflow", *command.split(), cwd=tmp_path)
        assert (command, done.returncode) == (command, 0), done.stderr


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("init --store cassandra://127.0.0.1/shop", "cassandra"),
        ("dev cluster", "cassandra"),
        ("demo", "spark"),
        ("scenario run --engine spark /dev/null", "spark"),
        ("airflow up", "airflow"),
        ("airflow pools", "airflow"),
        ("metrics --otlp http://localhost:1/v1/metrics --store memory:", "otel"),
    ],
)
def test_what_needs_an_extra_names_it(bin_folder: Path, tmp_path: Path, command: str, extra: str) -> None:
    done = ended(bin_folder / "sweepflow", "--json", *command.split(), cwd=tmp_path)
    reported = json.loads(done.stdout)
    assert (done.returncode, reported["error"], reported["reason"], reported["field"]) == (
        4,
        "unavailable",
        "extra_missing",
        extra,
    )
    assert f"'sweepflow[{extra}]'" in reported["message"]
    assert done.stderr == ""


def test_the_library_names_the_extra_too(bin_folder: Path, tmp_path: Path) -> None:
    program = """
import sweep_tasks
try:
    sweep_tasks.connect("cassandra://127.0.0.1/shop")
except sweep_tasks.SweepflowError as error:
    print(error.reason, error.field)
"""
    done = ended(bin_folder / "python", "-c", program, cwd=tmp_path)
    assert done.stdout.split() == ["extra_missing", "cassandra"], done.stderr
