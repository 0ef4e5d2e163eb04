"""`sweepflow deploy env`: secrets are random, private, never shown and never lost by accident."""

from __future__ import annotations

import stat
from pathlib import Path

from cryptography.fernet import Fernet
from dotenv import dotenv_values

from sweep_tasks.cli.deploy import SECRETS, VARIABLES
from sweep_tasks.errors import AlreadyExists
from tests.support.command import Answer, sweepflow


def env(folder: Path, *arguments: str) -> Answer:
    return sweepflow("deploy", "env", *arguments, cwd=folder)


def values(file: Path) -> dict[str, str]:
    return {name: value or "" for name, value in dotenv_values(file).items()}


def test_every_variable_has_a_value_that_a_dotenv_parser_reads(tmp_path: Path) -> None:
    assert env(tmp_path).code == 0
    written = values(tmp_path / ".env")
    assert list(written) == [variable.name for variable in VARIABLES]
    assert all(written.values())


def test_only_its_owner_reads_the_file(tmp_path: Path) -> None:
    env(tmp_path)
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600


def test_no_secret_is_shown(tmp_path: Path) -> None:
    for number, arguments in enumerate([[], ["--json"]]):
        file = tmp_path / f"{number}.env"
        answer = env(tmp_path, "--file", str(file), *arguments)
        written = values(file)
        shown = answer.out + answer.err
        assert [secret.name for secret in SECRETS if written[secret.name] in shown] == []


def test_json_output_contains_the_path_and_the_variables(tmp_path: Path) -> None:
    answer = env(tmp_path, "--json", "--file", "other.env")
    assert answer.document == {"file": "other.env", "variables": [variable.name for variable in VARIABLES]}


def test_an_existing_file_is_not_changed(tmp_path: Path) -> None:
    env(tmp_path)
    before = (tmp_path / ".env").read_text()
    again = env(tmp_path)
    assert again.code == 5
    assert isinstance(again.error, AlreadyExists)
    assert again.error.field == "file"
    assert ".env" in again.err
    assert "--force" in again.err, "the remedy is named"
    assert (tmp_path / ".env").read_text() == before


def test_force_alone_replaces_nothing_without_a_terminal(tmp_path: Path) -> None:
    assert env(tmp_path, "--force").code == 0, "there is nothing to replace"
    before = (tmp_path / ".env").read_text()
    refused = env(tmp_path, "--force")
    assert refused.code == 2
    assert refused.error is not None
    assert refused.error.code == "not_confirmed"
    assert (tmp_path / ".env").read_text() == before


def test_force_generates_every_secret_again(tmp_path: Path) -> None:
    (tmp_path / ".env").touch(mode=0o644)
    assert env(tmp_path, "--force", "--yes").code == 0
    first = values(tmp_path / ".env")
    assert env(tmp_path, "--force", "--yes").code == 0
    second = values(tmp_path / ".env")
    assert [secret.name for secret in SECRETS if first[secret.name] == second[secret.name]] == []
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == [".env"]


def test_an_unwritable_path_is_named(tmp_path: Path) -> None:
    answer = env(tmp_path, "--file", "nowhere/.env", "--json")
    assert answer.code == 2
    assert (answer.document["error"], answer.document["field"]) == ("bad_value", "file")
    assert "nowhere/.env" in answer.document["message"]
    assert answer.error is not None
    assert isinstance(answer.error.__cause__, FileNotFoundError)


def test_the_keys_have_the_format_of_airflow(tmp_path: Path) -> None:
    env(tmp_path)
    written = values(tmp_path / ".env")
    key = Fernet(written["AIRFLOW_FERNET_KEY"])
    assert key.decrypt(key.encrypt(b"text")) == b"text"
    assert len(written["AIRFLOW_JWT_SECRET"]) >= 64, "shorter than the signature of HS512"


def test_a_password_needs_no_quoting_in_an_address_and_in_a_shell(tmp_path: Path) -> None:
    env(tmp_path)
    written = values(tmp_path / ".env")
    passwords = [written["POSTGRES_PASSWORD"], written["AIRFLOW_ADMIN_PASSWORD"], written["AIRFLOW_TASKS_PASSWORD"]]
    assert all(
        set(each) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") for each in passwords
    )
    assert all(len(each) >= 32 for each in passwords)


def test_the_file_is_kept_out_of_the_repository_and_the_image() -> None:
    root = Path(__file__).parents[2]
    assert {".env", ".env.*"} <= set((root / ".gitignore").read_text().splitlines())
    sent = [line for line in (root / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert sent[0] == "*"
    assert not any("env" in line for line in sent)
