"""The settings that are sent to Spark's workers."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from spark_jobs.store_settings import WorkerStoreSettings
from sweep_tasks.config import load_settings

SECRETS = {"cassandra_user": "ada", "cassandra_password": "hush"}


def test_a_worker_opens_the_store_with_the_settings_of_the_driver(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    sent = load_settings(store=url, sqlite_busy_timeout_s=7.5, cassandra_ca_file=tmp_path, cassandra_tls=True)
    received = pickle.loads(pickle.dumps(WorkerStoreSettings.of(sent))).load()  # noqa: S301
    assert (received.store, received.sqlite_busy_timeout_s) == (sent.store, 7.5)
    assert received.cassandra_ca_file == sent.cassandra_ca_file


def test_a_relative_path_means_the_folder_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sent = WorkerStoreSettings.of(load_settings(store="sqlite:///a.db"))
    monkeypatch.chdir("/")
    assert sent.load().store == f"sqlite:///{tmp_path}/a.db"


def test_secrets_are_read_from_the_environment_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = WorkerStoreSettings.of(load_settings(**SECRETS))
    assert [secret for secret in SECRETS.values() if secret in sent.document] == []
    monkeypatch.setenv("SWEEPFLOW_CASSANDRA_USER", "grace")
    monkeypatch.setenv("SWEEPFLOW_CASSANDRA_PASSWORD", "shh")
    found = sent.load()
    assert found.cassandra_user == "grace"
    assert found.cassandra_password is not None
    assert found.cassandra_password.get_secret_value() == "shh"
