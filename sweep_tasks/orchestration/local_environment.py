"""The environment of an Airflow that lives in one folder of this machine: its settings, its secrets, its two users."""

from __future__ import annotations

import base64
import json
import secrets
import socket
import sys
from pathlib import Path
from typing import NamedTuple, Self

from sweep_tasks.config import Settings, as_environment, inherited_environment
from sweep_tasks.errors import BadValue
from sweep_tasks.orchestration.names import AIRFLOW_CONNECTION
from sweep_tasks.store import from_anywhere

PROJECT = Path(__file__).parents[2]
DAGS = PROJECT / "dags"
PLUGINS = PROJECT / "plugins"
_FILE = "secrets.json"
_PASSWORDS = "passwords.json"


class Login(NamedTuple):
    user: str
    password: str


class LocalSecrets(NamedTuple):
    """Drawn once and kept in the folder, so that a second start finds what the first one encrypted."""

    admin_password: str
    viewer_password: str
    fernet_key: str
    token_key: str

    @property
    def admin(self) -> Login:
        return Login("admin", self.admin_password)

    @property
    def viewer(self) -> Login:
        """As whom the tasks look at pools."""
        return Login("sweepflow", self.viewer_password)

    @classmethod
    def kept_in(cls, folder: Path) -> Self:
        file = folder / _FILE
        if not file.exists():
            key = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
            drawn = cls(secrets.token_urlsafe(9), secrets.token_urlsafe(18), key, secrets.token_urlsafe(32))
            _write_private(file, drawn._asdict())
        kept = cls(**json.loads(file.read_text()))
        _write_private(folder / _PASSWORDS, dict([kept.admin, kept.viewer]))
        return kept


def airflow_environment(
    folder: Path, settings: Settings, address: str, known: LocalSecrets, *, dags: Path = DAGS, tasks_at_once: int = 4
) -> dict[str, str]:
    """Variables of every process of that Airflow, on top of ours."""
    if not dags.is_dir():
        raise BadValue("dags", f"{dags} is not a folder; run this from a checkout of the project")
    host, port = address.removeprefix("http://").split(":")
    connection = {"conn_type": "http", "host": address, "login": known.viewer.user, "password": known.viewer.password}
    inherited = inherited_environment()
    return (
        inherited
        | as_environment(_with_absolute_store(settings))
        | {
            "PATH": f"{Path(sys.executable).parent}:{inherited.get('PATH', '')}",
            "AIRFLOW_HOME": str(folder),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(PLUGINS),
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
            "AIRFLOW__API__SECRET_KEY": known.token_key,
            "AIRFLOW__API_AUTH__JWT_SECRET": known.token_key,
            "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK": "False",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            f"AIRFLOW_CONN_{AIRFLOW_CONNECTION.upper()}": json.dumps(connection),
        }
    )


def _with_absolute_store(settings: Settings) -> Settings:
    """The same store from any folder; one that is not set is left to whatever the processes find."""
    if "store" not in settings.model_fields_set:
        return settings
    return settings.model_copy(update={"store": from_anywhere(settings.store)})


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        return int(taken.getsockname()[1])


def _write_private(file: Path, document: dict[str, str]) -> None:
    file.touch(mode=0o600)
    file.write_text(json.dumps(document))
