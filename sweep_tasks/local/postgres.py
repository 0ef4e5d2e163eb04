"""A PostgreSQL server of this process: created in a temporary folder, on a free port, removed when it is stopped.

Several processes of Airflow write its metadata at the same time, which SQLite handles badly. The server refuses to run
as root, so root runs it as the user that Debian's package creates. Its data is temporary, so it does not wait for the
disk.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from sweep_tasks.errors import ProgramMissing, ServerNotReady
from sweep_tasks.local.processes import Server, free_ports
from sweep_tasks.processes import inherited_environment

HERE = "127.0.0.1"
NAME = "airflow"
_DEBIAN = Path("/usr/lib/postgresql")
_SYSTEM_USER = "postgres"
_WITHOUT_SYNC = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


def postgres_programs(installed: Path = _DEBIAN) -> Path:
    """Return the folder with the programs of the newest installed PostgreSQL."""
    found = sorted((each for each in installed.glob("*/bin/postgres")), key=_version)
    if not found:
        on_path = shutil.which("postgres")
        if on_path is None:
            raise ProgramMissing(
                "postgres: it was not found; install it (Debian: apt-get install postgresql)",
                field="postgres",
                reason="missing",
            )
        found = [Path(on_path).resolve()]
    return found[-1].parent


def _version(program: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in program.parents[1].name.split(".") if part.isdigit())


class LocalPostgres:
    """A PostgreSQL server with one database for Airflow."""

    def __init__(self, log: Path) -> None:
        self._programs = postgres_programs()
        self._log = log
        self._user = _other_than_root()
        self._password = secrets.token_urlsafe(18)
        self._folder: Path | None = None
        self._server: Server | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """The address for SQLAlchemy, with the password."""
        return f"postgresql+psycopg2://{NAME}:{self._password}@{HERE}:{self.port}/{NAME}"

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise _not_started()
        return self._folder

    @property
    def pid(self) -> int:
        if self._server is None:
            raise _not_started()
        return self._server.pid

    def start(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="sweepflow-postgres-"))
        (self.port,) = free_ports(1, [HERE])
        try:
            self._initialise()
            settings = _WITHOUT_SYNC | {"listen_addresses": HERE, "port": str(self.port)}
            settings |= {"unix_socket_directories": str(self.folder)}
            self._server = Server.start(
                "postgres",
                [self._programs / "postgres", "-D", self.folder / "data", *(f"--{k}={v}" for k, v in settings.items())],
                self._log,
                environment=inherited_environment(),
                folder=self.folder,
                stop_signal=signal.SIGINT,  # closes connections; at SIGTERM it would wait for them
                user=self._user,
            )
            self._server.wait_until("an answer", self._answers)
            self._run("createdb", "--host", HERE, "--port", str(self.port), "--username", NAME, NAME)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None

    def check(self) -> None:
        if self._server is not None:
            self._server.check()

    def _initialise(self) -> None:
        """The password is passed in a file that only the user of the server can read."""
        file = self.folder / "password"
        file.touch(mode=0o600)
        file.write_text(self._password)
        if self._user:
            for path in (self.folder, file):
                shutil.chown(path, self._user, self._user)
        self._run("initdb", "--pgdata", str(self.folder / "data"), "--username", NAME, "--pwfile", str(file),
                  "--auth", "scram-sha-256", "--encoding", "UTF8", "--no-locale", "--no-sync")  # fmt: skip
        file.unlink()

    def _answers(self) -> bool | None:
        asked = [str(self._programs / "pg_isready"), "--quiet", "--host", HERE, "--port", str(self.port)]
        return subprocess.run(asked, env=inherited_environment(), check=False).returncode == 0 or None  # noqa: S603

    def _run(self, program: str, *arguments: str) -> None:
        ended = subprocess.run(  # noqa: S603
            [self._programs / program, *arguments],
            env=inherited_environment() | {"PGPASSWORD": self._password},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            user=self._user,
            group=self._user,
            extra_groups=[] if self._user else None,
        )
        if ended.returncode:
            last = (ended.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            raise ServerNotReady(f"postgres: {program} failed: {last}", field="postgres", reason="failed")


def _not_started() -> ServerNotReady:
    return ServerNotReady("postgres: it is not started; start it first", field="postgres", reason="not_started")


def _other_than_root() -> str | None:
    """Return the user that runs the server; None for our own user."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(_SYSTEM_USER).pw_name
    except KeyError:
        raise ProgramMissing(
            f"postgres: it refuses to run as root, and there is no user {_SYSTEM_USER}; install Debian's package "
            "(apt-get install postgresql), or run this as another user",
            field="postgres",
            reason="no_user",
        ) from None
