from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweep_tasks.config import Settings, as_environment
from sweep_tasks.errors import BadValue
from sweep_tasks.local.airflow_environment import LocalSecrets, airflow_environment

ADDRESS = "http://localhost:4711"


def test_secrets_are_drawn_once_and_only_their_owner_can_read_them(tmp_path: Path) -> None:
    first, again = (LocalSecrets.load_or_generate(tmp_path) for _ in range(2))
    assert first == again
    assert len(set(first)) == len(first)
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}


def test_settings_reach_the_processes_as_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings(store="sqlite:///mine.db", shards=3)
    found = airflow_environment(tmp_path, settings, ADDRESS, LocalSecrets.load_or_generate(tmp_path))
    assert found["SWEEPFLOW_STORE"] == f"sqlite:///{tmp_path}/mine.db"
    assert found["SWEEPFLOW_SHARDS"] == "3"
    assert "SWEEPFLOW_RETENTION_S" not in found


def test_airflow_listens_on_this_machine_only_and_tasks_log_in_with_read_access(tmp_path: Path) -> None:
    secrets = LocalSecrets.load_or_generate(tmp_path)
    found = airflow_environment(tmp_path, Settings(), ADDRESS, secrets)
    assert (found["AIRFLOW__API__HOST"], found["AIRFLOW__API__PORT"]) == ("localhost", "4711")
    connection = json.loads(found["AIRFLOW_CONN_SWEEPFLOW_AIRFLOW"])
    assert (connection["login"], connection["password"]) == secrets.viewer
    assert found["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"] == "admin:admin,sweepflow:viewer"


def test_a_missing_folder_of_dags_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    with pytest.raises(BadValue) as refused:
        airflow_environment(tmp_path, Settings(), ADDRESS, LocalSecrets.load_or_generate(tmp_path), dags=missing)
    assert refused.value.field == "dags"
    assert str(missing) in str(refused.value)


def test_settings_are_unchanged_after_passing_through_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Settings(
        shards=3,
        task_retry_delay_s=1.5,
        catch_up_from="2026-11-16T10:00:00+00:00",  # type: ignore[arg-type]  # as a variable gives it
        alert_smtp_host="localhost",
        alert_smtp_from="a@example.org",
        alert_smtp_to=("b@example.org", "c@example.org"),
        alert_webhook_url="https://example.org/secret",  # type: ignore[arg-type]
    )
    for name, value in as_environment(given).items():
        monkeypatch.setenv(name, value)
    assert Settings() == given


def test_a_signature_for_one_purpose_is_invalid_for_another(tmp_path: Path) -> None:
    secrets = LocalSecrets.load_or_generate(tmp_path)
    found = airflow_environment(tmp_path, Settings(), ADDRESS, secrets)
    names = ("AIRFLOW__API__SECRET_KEY", "AIRFLOW__API_AUTH__JWT_SECRET", "AIRFLOW__CORE__FERNET_KEY")
    keys = {found[name] for name in names}
    assert len(keys) == len(names)
    assert secrets.token_key not in found.values()
    again = airflow_environment(tmp_path, Settings(), ADDRESS, LocalSecrets.load_or_generate(tmp_path))
    assert {again[name] for name in names} == keys, "a second start reads what the first one signed"


def test_secrets_do_not_show(tmp_path: Path) -> None:
    secrets = LocalSecrets.load_or_generate(tmp_path)
    shown = f"{secrets!r} {secrets.admin!r} {secrets.viewer!r} {secrets}"
    assert not any(each in shown for each in secrets)


def test_its_processes_get_nothing_of_our_environment_that_is_not_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"AWS_SECRET_ACCESS_KEY": "x", "PGPASSWORD": "x", "SWEEPFLOW_SHARDS": "3", "AIRFLOW__API__X": "x"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    found = airflow_environment(tmp_path, Settings(), ADDRESS, LocalSecrets.load_or_generate(tmp_path))
    assert found.keys() & given.keys() == {"SWEEPFLOW_SHARDS", "AIRFLOW__API__X"}
