"""Login and encryption, against a node that insists on both; and where the secrets do not show."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from spark_jobs.environment import TARGETED_SWEEP, spark_environment, spark_submit
from sweep_tasks.config import Settings, as_environment
from sweep_tasks.connections import open_store
from sweep_tasks.errors import StoreUnavailable
from sweep_tasks.model import Cell, SweepStrategy, TableMetadata, TableRef
from sweep_tasks.store.schema import SYSTEM_TABLES
from sweep_tasks.transactions import TransactionManager
from tests.cassandra.secured import NAMED, PASSWORD, UNNAMED, SecuredNode
from tests.support.forwarding import forwarded
from tests.support.receivers import HOST

TABLE = TableRef.parse("app.items")
CELLS = [Cell(b"row %d" % number, b"column") for number in range(20)]
WRONG = "a wrong password"


def test_a_client_with_all_credentials_is_accepted(secured: SecuredNode) -> None:
    settings = secured.settings()
    with open_store(settings.store, settings) as store:
        assert set(SYSTEM_TABLES) <= set(store.tables())
        assert PASSWORD not in repr(settings) + repr(store) + repr(vars(store))


@pytest.mark.parametrize(
    ("changed", "reasons"),
    [
        ({"cassandra_password": WRONG}, {"login_refused"}),
        ({"cassandra_user": None, "cassandra_password": None}, {"login_refused", "unreachable"}),
        (
            {
                "cassandra_tls": False,
                "cassandra_ca_file": None,
                "cassandra_cert_file": None,
                "cassandra_key_file": None,
                "cassandra_timeout_s": 3,
            },
            {"unreachable"},
        ),
        ({"cassandra_ca_file": None, "cassandra_timeout_s": 3}, {"unreachable"}),
        ({"cassandra_cert_file": None, "cassandra_key_file": None, "cassandra_timeout_s": 3}, {"unreachable"}),
    ],
    ids=["wrong password", "no login", "no encryption", "certificate not trusted", "no certificate of ours"],
)
def test_missing_credentials_are_reported_without_secrets(
    secured: SecuredNode, changed: dict[str, Any], reasons: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    settings = secured.settings(**changed)
    with pytest.raises(StoreUnavailable) as refused:
        open_store(settings.store, settings)
    assert refused.value.reason in reasons
    assert WRONG not in str(refused.value) + caplog.text


def test_a_certificate_is_accepted_at_an_address_that_it_names(secured: SecuredNode) -> None:
    settings = secured.settings(store=secured.url.replace(HOST, NAMED))
    with forwarded((NAMED, secured.port), (HOST, secured.port)), open_store(settings.store, settings) as store:
        assert set(SYSTEM_TABLES) <= set(store.tables())


def test_a_trusted_certificate_is_refused_at_an_address_that_it_does_not_name(secured: SecuredNode) -> None:
    """The same node and the same certificate, at another address: only the name differs."""
    settings = secured.settings(store=secured.url.replace(HOST, UNNAMED), cassandra_timeout_s=3)
    with forwarded((UNNAMED, secured.port), (HOST, secured.port)), pytest.raises(StoreUnavailable) as refused:
        open_store(settings.store, settings)
    assert refused.value.reason == "unreachable"


def test_a_spark_job_logs_in_and_its_secrets_stay_hidden(secured: SecuredNode) -> None:
    settings = secured.settings()
    with open_store(settings.store, settings) as store:
        store.create_table(TABLE, TableMetadata(SweepStrategy.THOROUGH))
        with TransactionManager(store, settings) as manager:
            for number in range(3):
                with manager.transaction() as tx:
                    tx.put_many(TABLE, dict.fromkeys(CELLS, b"%d" % number))
        output = submitted(settings)
        assert '"range_deletes": 20' in output
        assert PASSWORD not in output
        assert {len(versions) for versions in store.timestamps(TABLE, CELLS).values()} == {1}


def submitted(settings: Settings) -> str:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("SWEEPFLOW_")}
    ended = subprocess.run(
        [spark_submit(), "--master", "local[2]", TARGETED_SWEEP, "--order", '{"strategy": "thorough", "shard": 0}'],
        env=ours | spark_environment() | as_environment(settings),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr
