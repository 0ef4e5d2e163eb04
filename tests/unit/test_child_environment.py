"""Programs that are started get what they need of our environment, and no secret of ours."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep_tasks.errors import SSTableUnreadable
from sweep_tasks.local.processes import start_process
from sweep_tasks.processes import Needs, inherited_environment, left_out_of_environment
from sweep_tasks.sstables.dump import Tools, entries_of
from sweep_tasks.sstables.files import HERE, NodeAccess, SSTable
from sweep_tasks.sstables.nodes import Node

ROOT = Path(__file__).parents[2]
OURS = ("SWEEPFLOW_CASSANDRA_PASSWORD", "SWEEPFLOW_ALERT_WEBHOOK_URL", "SWEEPFLOW_ALERT_SMTP_PASSWORD")
OTHERS = ("AIRFLOW__CORE__FERNET_KEY", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "GITHUB_TOKEN")
VALUE = "geheim"
NEEDED = {"PATH", "HOME"}


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*OURS, *OTHERS):
        monkeypatch.setenv(name, VALUE)


@pytest.mark.parametrize(
    ("needs", "passed"),
    [
        ((), set()),
        ((Needs.NETWORK,), {"https_proxy"}),
        ((Needs.NODE_TOOL,), {"SSH_AUTH_SOCK", "KUBECONFIG"}),
        ((Needs.EXECUTOR,), {"SWEEPFLOW_CASSANDRA_PASSWORD"}),
        ((Needs.SPARK,), {"SWEEPFLOW_CASSANDRA_PASSWORD", "https_proxy", "SPARK_HOME", "KUBECONFIG"}),
        (
            (Needs.AIRFLOW,),
            {*OURS, "AIRFLOW__CORE__FERNET_KEY", "https_proxy", "SPARK_HOME", "SSH_AUTH_SOCK", "KUBECONFIG"},
        ),
    ],
)
def test_each_kind_of_program_gets_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, needs: tuple[Needs, ...], passed: set[str]
) -> None:
    some = {"https_proxy", "SSH_AUTH_SOCK", "KUBECONFIG", "SPARK_HOME"}
    every = {"PATH", "HOME", "LC_ALL", "TZ", "TMPDIR", "JAVA_HOME", "PYTHONPATH", "SSL_CERT_FILE"}
    for name in some | every:
        monkeypatch.setenv(name, "x")
    found = inherited_environment(*needs)
    assert found.keys() & {*OURS, *OTHERS, *some, *every} == passed | every
    assert found == {name: os.environ[name] for name in found}
    assert {*found, *left_out_of_environment(*needs)} == set(os.environ)


def test_a_server_on_this_machine_gets_no_secret(tmp_path: Path) -> None:
    log = tmp_path / "log"
    started = start_process(["env"], log, dies_with_parent=False)
    assert started.wait(60)
    until = time.monotonic() + 60
    while not log.read_text() and time.monotonic() < until:
        time.sleep(0.05)
    check(log.read_text())


def test_nodetool_gets_no_secret() -> None:
    check(Node("one", (), HERE, Tools(), nodetool_command=("sh", "-c", "env")).nodetool("status"))


def test_a_command_that_leads_to_a_node_gets_no_secret(tmp_path: Path) -> None:
    access = NodeAccess(("sh", "-c", f'env > {tmp_path}/output; exec "$@"', "through"))
    assert set(access.states([tmp_path])) == {tmp_path}
    check((tmp_path / "output").read_text())


def check(output: str) -> None:
    got = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    assert got.keys() >= NEEDED
    assert not got.keys() & {*OURS, *OTHERS}
    assert VALUE not in output


def test_sstabledump_gets_no_secret(tmp_path: Path) -> None:
    folder = tmp_path / "ks" / f"t-{'0' * 32}"
    folder.mkdir(parents=True)
    (folder / "nb-1-big-Data.db").write_bytes(b"x")
    tools = Tools(("sh", "-c", f"env > {tmp_path}/output"))
    with pytest.raises(SSTableUnreadable):
        list(entries_of(SSTable.at(folder / "nb-1-big-Data.db"), tools))
    check((tmp_path / "output").read_text())


JOB = """
import os
from spark_jobs.job import local_session
try:
    local_session("job")
finally:
    print(os.environ["PGPASSWORD"])
"""


def test_java_gets_no_secret_from_a_driver_that_starts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark passes its whole environment to `spark-submit`, which is replaced here by one that writes it down."""
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\nenv > {tmp_path}/output\nexit 1\n")
    submit.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    job = subprocess.run([sys.executable, "-c", JOB], capture_output=True, text=True, cwd=ROOT)
    assert "JAVA_GATEWAY_EXITED" in job.stderr
    assert job.stdout.strip() == VALUE, "the driver itself keeps its variables"
    got = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines() if "=" in line)
    assert got.keys() >= {*NEEDED, "PYSPARK_PYTHON", "SPARK_HOME"}
    assert not got.keys() & set(OTHERS)


def calls() -> Iterator[tuple[str, ast.Call]]:
    for file in (*ROOT.glob("sweep_tasks/**/*.py"), *ROOT.glob("spark_jobs/**/*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in STARTS:
                yield f"{file.relative_to(ROOT)}:{node.lineno}", node


STARTS = {"subprocess.run", "subprocess.Popen", "subprocess.check_output", "subprocess.check_call", "psutil.Popen"}


def test_no_program_inherits_the_whole_environment() -> None:
    found = list(calls())
    assert len(found) > 8, "they are started in another way now: search for that"
    assert [where for where, call in found if "env" not in {word.arg for word in call.keywords}] == []
