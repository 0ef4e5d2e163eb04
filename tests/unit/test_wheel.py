"""The wheel alone: an application with transactions on SQLite, and the command, with what these require and no more."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
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


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("sweepflow ta", ["tables"]),
        ("sweepflow tables tr", ["truncate"]),
        ("sweepflow demo --engine l", ["local"]),
        ("sweepflow status --wa", ["--watch"]),
        ("sweepflow dev c", []),  # needs an extra
    ],
)
def test_a_shell_completes_commands_and_options_and_sees_no_errors(
    bin_folder: Path, tmp_path: Path, words: str, expected: list[str]
) -> None:
    """With the function that `--show-completion` prints, as bash calls it."""
    listed = words.split(" ")
    script = f"""
source <({bin_folder}/sweepflow --show-completion bash)
COMP_WORDS=({words}); COMP_CWORD={len(listed) - 1}
_sweepflow_completion sweepflow {listed[-1]} {listed[-2]}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    (tmp_path / "complete.sh").write_text(script)
    environment = {"PATH": f"{bin_folder}:{os.environ['PATH']}", "SHELL": "/bin/bash", "HOME": str(tmp_path)}
    done = subprocess.run(
        ["/bin/bash", "complete.sh"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stdout.split(), done.stderr) == (expected, "")


TYPED = """
import sweep_tasks

with sweep_tasks.connect("memory:") as db:
    metadata: sweep_tasks.TableMetadata = db.tables.create("shop.orders")
    status: sweep_tasks.Status = db.status()
    summaries: list[sweep_tasks.Summary] = db.sweep()
    known: sweep_tasks.KnownProtections = db.tracker.known()
    reveal_type(db.run(lambda tx: tx.get("shop.orders", b"one", b"state")))
    db.tables.create(7)
"""


def test_a_type_checker_knows_the_installed_package(bin_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TYPED)
    checker = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache")]
    done = ended(*checker, "--python-executable", bin_folder / "python", "program.py", cwd=tmp_path)
    revealed, refused = done.stdout.splitlines()
    assert "Revealed type is" in revealed
    assert "bytes | None" in revealed
    assert "[arg-type]" in refused


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
