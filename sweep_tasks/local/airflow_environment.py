"""The environment of a local Airflow: its settings, its secrets and its two users."""

from __future__ import annotations

import base64
import errno
import json
import secrets
import socket
import sys
from pathlib import Path
from typing import NamedTuple, Self

from sweep_tasks.config import Settings, as_environment
from sweep_tasks.errors import AirflowNotReady, BadValue
from sweep_tasks.files import PRIVATE_FILE, write_whole
from sweep_tasks.keys import derived_key
from sweep_tasks.orchestration.names import AIRFLOW_CONNECTION, dag_folder
from sweep_tasks.processes import Needs, inherited_environment
from sweep_tasks.store import absolute_url

_FILE = "secrets.json"
_PASSWORDS = "passwords.json"
_NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""The name localhost may resolve to an address that this machine does not have: IPv6 may be disabled."""


class Login(NamedTuple):
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login(user={self.user!r})"


class LocalSecrets(NamedTuple):
    """Generated once and kept in the folder, so that a later start can decrypt what an earlier one encrypted."""

    admin_password: str
    viewer_password: str
    fernet_key: str
    token_key: str
    """Nothing is signed with it: each purpose has its own key, derived from it."""

    def __repr__(self) -> str:
        return "LocalSecrets()"

    def key_for(self, purpose: str) -> str:
        """Return the key of a purpose, so that a signature for one purpose is not valid for another."""
        return derived_key(self.token_key, f"sweepflow local airflow: {purpose}")

    @property
    def admin(self) -> Login:
        return Login("admin", self.admin_password)

    @property
    def viewer(self) -> Login:
        """The user that tasks read the pools as."""
        return Login("sweepflow", self.viewer_password)

    @classmethod
    def load_or_generate(cls, folder: Path) -> Self:
        """Return the secrets of the folder; generate them at the first start."""
        file = folder / _FILE
        if not file.exists():
            key = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
            generated = cls(secrets.token_urlsafe(9), secrets.token_urlsafe(18), key, secrets.token_urlsafe(32))
            _write_private(file, generated._asdict())
        kept = cls(**json.loads(file.read_text()))
        _write_private(folder / _PASSWORDS, dict([kept.admin, kept.viewer]))
        return kept


def airflow_environment(
    folder: Path,
    settings: Settings,
    address: str,
    known: LocalSecrets,
    *,
    dags: Path | None = None,
    tasks_at_once: int = 4,
) -> dict[str, str]:
    """Return the environment of every process of that Airflow. The page needs no folder of plugins: the package
    registers it."""
    if dags and not dags.is_dir():
        raise BadValue("dags", f"{dags} is not a folder; name one with DAG files, or none for those of the package")
    host, port = address.removeprefix("http://").split(":")
    connection = {"conn_type": "http", "host": address, "login": known.viewer.user, "password": known.viewer.password}
    inherited = inherited_environment(Needs.AIRFLOW)
    return (
        inherited
        | as_environment(_with_absolute_store(settings))
        | {
            "PATH": f"{Path(sys.executable).parent}:{inherited.get('PATH', '')}",
            "AIRFLOW_HOME": str(folder),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags or dag_folder()),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(folder / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": str(tasks_at_once),
            "AIRFLOW__CORE__FERNET_KEY": known.fernet_key,
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{known.admin.user}:admin,{known.viewer.user}:viewer",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(folder / _PASSWORDS),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db?timeout=60",
            "AIRFLOW__DATABASE__LOAD_DEFAULT_CONNECTIONS": "False",
            "AIRFLOW__API__HOST": host,
            "AIRFLOW__API__PORT": port,
            "AIRFLOW__API__BASE_URL": address,
            "AIRFLOW__API__SECRET_KEY": known.key_for("sessions and logs"),
            "AIRFLOW__API_AUTH__JWT_SECRET": known.key_for("tokens of the API"),
            "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK": "False",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            f"AIRFLOW_CONN_{AIRFLOW_CONNECTION.upper()}": json.dumps(connection),
        }
    )


def _with_absolute_store(settings: Settings) -> Settings:
    """Make the address of the store independent of the working directory. A store that is not set stays unset."""
    if "store" not in settings.model_fields_set:
        return settings
    return settings.model_copy(update={"store": absolute_url(settings.store)})


def check_port(port: int) -> None:
    """Refuse a port that the API server could not listen at: it would end half a minute after the start, with a
    traceback in its log."""
    for family, kind, protocol, _, address in socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM):
        try:
            with socket.socket(family, kind, protocol) as candidate:
                candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                candidate.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise _port_unusable(port, "is in use on this machine", "taken") from error
            if error.errno == errno.EACCES:
                raise _port_unusable(port, "is not open to this user", "not_permitted") from error
            if error.errno not in _NO_SUCH_ADDRESS:
                raise


def _port_unusable(port: int, problem: str, reason: str) -> AirflowNotReady:
    return AirflowNotReady(
        f"port: {port} {problem}; stop the process that uses it, or choose another port with --port (0: a free one)",
        field="port",
        reason=reason,
        port=port,
    )


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        return int(taken.getsockname()[1])


def _write_private(file: Path, document: dict[str, str]) -> None:
    write_whole(file, json.dumps(document), mode=PRIVATE_FILE)
