"""A node that asks for passwords, checks rights and encrypts, and wants a certificate of its clients.

The lines for `cassandra.yaml` are read from docs/grants.md, as operators copy them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep_tasks.config import Settings, load_settings
from sweep_tasks.errors import StoreError
from sweep_tasks.local.cassandra_node import LocalNode, address_of, cassandra_yaml, tokens_of, write_configuration
from sweep_tasks.local.jars import cassandra_jars
from sweep_tasks.local.processes import ClusterState, start_process
from sweep_tasks.store import initialise_store
from sweep_tasks.store.cassandra.address import CassandraAddress
from sweep_tasks.store.cassandra.connection import Connection
from tests.support.documents import fenced
from tests.support.receivers import HOST, make_certificate

GRANTS = "docs/grants.md"
USER, PASSWORD = "superuser", "tr0ub4dor"
NAMED, UNNAMED = "127.0.0.7", "127.0.0.8"
"""Addresses of this machine at which the node does not listen: its certificate names the first of them."""
FIRST = {"cassandra_user": "cassandra", "cassandra_password": "cassandra"}
"""The login of a new Cassandra."""
PATIENCE_S = 240
_GRANTS_AT_ONCE = "permissions_validity: 0ms\n"
"""A grant counts from the next request on, and tests need not wait for a cache to run out."""


@dataclass(frozen=True)
class SecuredNode:
    url: str
    certificate: Path
    key: Path
    port: int

    def given(self, **changed: Any) -> dict[str, Any]:
        """All credentials for a login."""
        return {
            "store": self.url,
            "cassandra_user": USER,
            "cassandra_password": PASSWORD,
            "cassandra_tls": True,
            "cassandra_ca_file": self.certificate,
            "cassandra_cert_file": self.certificate,
            "cassandra_key_file": self.key,
            "retention_s": 0,
        } | changed

    def settings(self, **changed: Any) -> Settings:
        return load_settings(**self.given(**changed))

    def keyspace(self, name: str) -> str:
        """The address of a keyspace of this node."""
        return f"cassandra://{HOST}:{self.port}/{name}?replication=1"


@contextmanager
def secured_node(folder: Path) -> Iterator[SecuredNode]:
    certificate = make_certificate(folder, (HOST, NAMED)).file
    key = folder / "key.pem"
    both = folder / "both.pem"
    both.write_text(key.read_text() + certificate.read_text())
    state = ClusterState.new(1, [address_of(1)])
    node = LocalNode(1, folder / "node", state, cassandra_jars(load_settings().cache_folder, print))
    yaml = cassandra_yaml(
        cluster="secured",
        address=node.address,
        seeds=[node.address],
        native_port=state.native_port,
        storage_port=state.storage_port,
        tokens=tokens_of(1, 1),
        survives_kill=False,
    )
    write_configuration(node.folder, yaml + _locks(both, certificate))
    started = start_process(node.daemon_command(), node.log, dies_with_parent=True)
    url = f"cassandra://{node.address}:{state.native_port}/secured?replication=1"
    secured = SecuredNode(url, certificate, key, state.native_port)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                _make_user(secured)
                break
            except StoreError:
                assert started.alive, node.log_tail()
                assert time.monotonic() < deadline, node.log_tail()
                time.sleep(1)
        initialise_store(secured.url, secured.settings())
        yield secured
    finally:
        started.process().kill()  # type: ignore[union-attr]
        started.wait(60)


def _make_user(secured: SecuredNode) -> None:
    settings = secured.settings(**FIRST)
    connection = Connection(CassandraAddress.parse(secured.url.removeprefix("cassandra:")), settings)
    try:
        connection.define(
            f"CREATE ROLE IF NOT EXISTS {USER} WITH PASSWORD = '{PASSWORD}' AND LOGIN = true AND SUPERUSER = true"
        )
    finally:
        connection.close()


def _locks(key_and_certificate: Path, trusted: Path) -> str:
    encryption = {
        "enabled": True,
        "optional": False,
        "require_client_auth": True,
        "keystore": str(key_and_certificate),
        "truststore": str(trusted),
        "ssl_context_factory": {"class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory"},
    }
    (documented,) = fenced(GRANTS, "yaml")
    return f"{documented}{_GRANTS_AT_ONCE}client_encryption_options: {json.dumps(encryption)}\n"
