"""A PostgreSQL of one's own: it answers those who know its password, and leaves nothing behind."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from sweep_tasks.errors import ProgramMissing, ServerNotReady
from sweep_tasks.local.postgres import HERE, LocalPostgres, postgres_programs
from sweep_tasks.local.processes import has_ended

STARTS_ONE_AND_WAITS = """
import sys, time
from pathlib import Path
from sweep_tasks.local.postgres import LocalPostgres

with LocalPostgres(Path(sys.argv[1])) as server:
    print(server.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPostgres]:
    with LocalPostgres(tmp_path_factory.mktemp("postgres") / "log") as started:
        yield started


def ask(address: str) -> object:
    engine = create_engine(address)
    try:
        with engine.connect() as connection:
            return connection.execute(text("SELECT current_user || '@' || current_database()")).scalar()
    finally:
        engine.dispose()


def files_of(server: LocalPostgres) -> Iterator[tuple[Path, bytes]]:
    """A running server removes files of its own at any moment: those are passed over."""
    for file in server.folder.rglob("*"):
        if file.is_file():
            with suppress(FileNotFoundError):
                yield file, file.read_bytes()


def variables_of(server: LocalPostgres) -> Iterator[set[str]]:
    """The server first. Of the others some, such as an autovacuum worker, end by themselves: those are passed over."""
    postgres = psutil.Process(server.pid)
    yield set(postgres.environ())
    for each in postgres.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            yield set(each.environ())


def test_it_answers_at_its_address(server: LocalPostgres) -> None:
    assert ask(server.address) == "airflow@airflow"


def test_a_client_with_a_wrong_password_is_refused(server: LocalPostgres) -> None:
    wrong = make_url(server.address).set(password="guessed").render_as_string(hide_password=False)  # noqa: S106
    with pytest.raises(OperationalError, match="password authentication failed"):
        ask(wrong)


def test_its_password_is_in_no_argument_and_no_file(server: LocalPostgres) -> None:
    password = make_url(server.address).password
    assert password
    assert password not in " ".join(psutil.Process(server.pid).cmdline())
    contents = list(files_of(server))
    assert contents
    assert [file for file, content in contents if password.encode() in content] == []


def test_none_of_its_processes_has_our_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {"SWEEPFLOW_CASSANDRA_PASSWORD", "SWEEPFLOW_ALERT_WEBHOOK_URL", "AIRFLOW__CORE__FERNET_KEY", "PGPASSWORD"}
    for name in ours:
        monkeypatch.setenv(name, "geheim")
    with LocalPostgres(tmp_path / "log") as server:
        known = list(variables_of(server))
    assert len(known) > 1, "the server, and at least one process that it started"
    assert [names & ours for names in known if names & ours] == []


def test_it_listens_to_this_machine_only(server: LocalPostgres) -> None:
    listening = [each for each in psutil.Process(server.pid).net_connections() if each.status == psutil.CONN_LISTEN]
    assert {each.laddr.ip for each in listening if each.family == socket.AF_INET} == {HERE}


def test_nothing_is_left_when_it_is_stopped(tmp_path: Path) -> None:
    server = LocalPostgres(tmp_path / "log")
    server.start()
    family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
    folder, address = server.folder, server.address
    held = create_engine(address).connect()  # it does not wait for those who stay connected
    server.stop()
    assert all(map(has_ended, family))
    assert not folder.exists()
    held.invalidate()
    with pytest.raises(OperationalError, match="refused"):
        ask(address)
    server.stop()


def test_it_ends_with_the_process_that_started_it_however_that_ends(tmp_path: Path) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTS_ONE_AND_WAITS, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout
    with starter.stdout:
        server = psutil.Process(int(starter.stdout.readline()))
    folder = Path(server.cwd()).parent
    starter.send_signal(signal.SIGKILL)
    starter.wait(240)
    assert psutil.wait_procs([server], timeout=240)[1] == []
    assert folder.name.startswith("sweepflow-postgres-")
    subprocess.run(["rm", "-r", str(folder)], check=True)  # noqa: S607


def test_the_newest_installed_version_is_used(tmp_path: Path) -> None:
    for version in ("9.6", "15", "17"):
        (tmp_path / version / "bin").mkdir(parents=True)
    for version in ("9.6", "15"):
        (tmp_path / version / "bin" / "postgres").touch()
    assert postgres_programs(tmp_path) == tmp_path / "15" / "bin"


def test_a_missing_installation_is_reported_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProgramMissing) as refused:
        postgres_programs(tmp_path)
    assert (refused.value.field, refused.value.reason) == ("postgres", "missing")
    assert "postgresql" in str(refused.value)


def test_before_its_start_it_has_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ServerNotReady) as refused:
        _ = LocalPostgres(tmp_path / "log").folder
    assert (refused.value.field, refused.value.reason) == ("postgres", "not_started")
