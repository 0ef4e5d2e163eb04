"""`sweepflow deploy`: prepare the first start of the containers.

Compose reads one file of variables, `.env`, with every password and the few numbers that an operator may want to
change. Passwords should be neither invented by people nor shown in a terminal: they are generated here and written to a
file that only its owner can read.
"""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from sweep_tasks.cli.command import command
from sweep_tasks.cli.options import JsonOption, StoreOption, YesOption
from sweep_tasks.errors import AlreadyExists, BadValue
from sweep_tasks.files import put_in_place, sync_written

app = typer.Typer(help="Prepare a set of containers.", no_args_is_help=True, rich_markup_mode=None)


class Variable(NamedTuple):
    """One line of the file: what it is for, and its first value."""

    name: str
    purpose: str
    value: Callable[[], str]


def password() -> str:
    """Return letters, digits, `-` and `_`, which need no quoting in an address, in JSON or in a shell."""
    return secrets.token_urlsafe(24)


def signing_key() -> str:
    """Return a random key of the length of the signatures (HS512)."""
    return secrets.token_urlsafe(48)


def fernet_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


SECRETS = (
    Variable("POSTGRES_PASSWORD", "password of Airflow's metadata database, used at its first start only", password),
    Variable("AIRFLOW_ADMIN_PASSWORD", "password of the Airflow user 'admin'", password),
    Variable("AIRFLOW_TASKS_PASSWORD", "password that running tasks read Airflow's pools with", password),
    Variable("AIRFLOW_FERNET_KEY", "encrypts connections and variables in the metadata", fernet_key),
    Variable("AIRFLOW_SECRET_KEY", "signs sessions, and requests for logs between services", signing_key),
    Variable("AIRFLOW_JWT_SECRET", "signs the tokens of the API and of running tasks", signing_key),
)
NUMBERS = (
    Variable("AIRFLOW_PORT", "port of Airflow on this machine", lambda: "8080"),
    Variable("SPARK_PORT", "port of the Spark master's page on this machine", lambda: "8081"),
    Variable("SPARK_WORKERS", "number of Spark workers", lambda: "2"),
    Variable("SPARK_WORKER_CORES", "cores of each worker", lambda: "2"),
    Variable("SPARK_WORKER_MEMORY", "memory of each worker for executors", lambda: "2g"),
    Variable("CASSANDRA_HEAP", "heap of each Cassandra node", lambda: "1G"),
    Variable("CASSANDRA_MEMORY", "memory limit of each Cassandra node, heap included", lambda: "2g"),
)
VARIABLES = SECRETS + NUMBERS


@app.command()
def env(
    ctx: typer.Context,
    file: Annotated[Path, typer.Option(help="The file to write; Compose reads .env.")] = Path(".env"),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file and its secrets.")] = False,
    yes: YesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the file of variables that docker-compose.yaml needs, with new secrets."""
    with command(ctx, store, as_json) as run:
        if force and file.exists():
            question = f"replace {file}? Its secrets are lost, and data that was encrypted with them can't be read."
            run.confirm(question, yes)
        _write(file, _text(), force)
        document = {"file": str(file), "variables": [variable.name for variable in VARIABLES]}
        run.answer(
            document,
            lambda out: out.print(
                f"{file} is written, readable only by you: {len(SECRETS)} new secrets and {len(NUMBERS)} numbers to "
                "review; log in to Airflow as admin with the AIRFLOW_ADMIN_PASSWORD in it"
            ),
        )


def _text() -> str:
    return "".join(f"# {variable.purpose}\n{variable.name}={variable.value()}\n" for variable in VARIABLES)


def _write(file: Path, text: str, force: bool) -> None:
    """Write the file completely or not at all, and never readable by others."""
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
            sync_written(out)
        put_in_place(written, file)
    except OSError as error:
        written.unlink(missing_ok=True)
        raise BadValue("file", f"{file} can't be written: {error.strerror}") from error
