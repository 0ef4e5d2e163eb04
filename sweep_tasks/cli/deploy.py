"""`sweepflow deploy`: what a set of containers needs before its first start.

Compose reads one file of variables, `.env`, which holds every password and the few numbers an operator may want to
change. Nobody should make up passwords, and none should ever be seen in a terminal: they are drawn here and written to
a file that only its owner can read.
"""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from sweep_tasks.cli.command import JsonOption, StoreOption, command
from sweep_tasks.errors import AlreadyExists, BadValue

app = typer.Typer(help="Prepare a set of containers.", no_args_is_help=True, rich_markup_mode=None)


class Variable(NamedTuple):
    """One line of the file: what it is for, and its first value."""

    name: str
    purpose: str
    value: Callable[[], str]


def password() -> str:
    """Letters, digits, `-` and `_`: it means itself in an address, in JSON and in a shell."""
    return secrets.token_urlsafe(24)


def signing_key() -> str:
    """As many bytes as the signature has (HS512)."""
    return secrets.token_urlsafe(48)


def fernet_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


SECRETS = (
    Variable("POSTGRES_PASSWORD", "of Airflow's metadata database, which takes it at its first start only", password),
    Variable("AIRFLOW_ADMIN_PASSWORD", "with which 'admin' logs in to Airflow", password),
    Variable("AIRFLOW_TASKS_PASSWORD", "with which running tasks look at Airflow's pools", password),
    Variable("AIRFLOW_FERNET_KEY", "encrypts connections and variables in the metadata", fernet_key),
    Variable("AIRFLOW_SECRET_KEY", "signs sessions, and requests for logs between services", signing_key),
    Variable("AIRFLOW_JWT_SECRET", "signs the tokens of the API and of running tasks", signing_key),
)
NUMBERS = (
    Variable("AIRFLOW_PORT", "where this machine shows Airflow", lambda: "8080"),
    Variable("SPARK_PORT", "where this machine shows the Spark master's page", lambda: "8081"),
    Variable("SPARK_WORKERS", "Spark workers", lambda: "2"),
    Variable("SPARK_WORKER_CORES", "cores of each", lambda: "2"),
    Variable("SPARK_WORKER_MEMORY", "memory that each gives to executors", lambda: "2g"),
    Variable("CASSANDRA_HEAP", "heap of each Cassandra node", lambda: "1G"),
    Variable("CASSANDRA_MEMORY", "memory that each Cassandra node may take, heap and all", lambda: "2g"),
)
VARIABLES = SECRETS + NUMBERS


@app.command()
def env(
    ctx: typer.Context,
    file: Annotated[Path, typer.Option(help="Where to write it; Compose looks for .env.")] = Path(".env"),
    force: Annotated[bool, typer.Option("--force", help="Replace the file, secrets and all.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the file of variables that docker-compose.yaml needs, with fresh secrets."""
    with command(ctx, store, as_json) as run:
        _write(file, _text(), force)
        document = {"file": str(file), "variables": [variable.name for variable in VARIABLES]}
        run.answer(
            document,
            lambda out: out.print(
                f"{file} written, readable by you alone: {len(SECRETS)} fresh secrets and {len(NUMBERS)} numbers to "
                "look at; log in to Airflow as admin with the AIRFLOW_ADMIN_PASSWORD in it"
            ),
        )


def _text() -> str:
    return "".join(f"# {variable.purpose}\n{variable.name}={variable.value()}\n" for variable in VARIABLES)


def _write(file: Path, text: str, force: bool) -> None:
    """All of it or nothing, and never readable by others, not even for a moment."""
    written = file.with_name(f".{file.name}.{os.getpid()}") if force else file
    try:
        descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise AlreadyExists(
            f"file: {written} exists and its secrets may be in use; keep it, or replace it with --force",
            field="file",
        ) from error
    except OSError as error:
        raise BadValue("file", f"{file} can't be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
        written.replace(file)
    except OSError as error:
        written.unlink(missing_ok=True)
        raise BadValue("file", f"{file} can't be written: {error.strerror}") from error
