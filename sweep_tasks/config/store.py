"""Settings of stores and of the transactions on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    SecretStr,
    model_validator,
)

from sweep_tasks.config.values import (
    MIB,
    Consistency,
    refused,
)


def _without_login(store: str) -> str:
    """Refuse a store URL with credentials: URLs appear in `ps`, in logs and in the Airflow UI.

    Only the path of a file may contain an @.
    """
    if "@" in store and not store.startswith("sqlite:///"):
        problem = "contains a user or a password; use the settings cassandra_user and cassandra_password instead"
        raise refused("credentials", problem)
    return store


class StoreSettings(BaseModel, defer_build=True):
    store: Annotated[str, AfterValidator(_without_login)] = Field(
        default="sqlite:///sweepflow.db", description="URL of the store"
    )
    sqlite_busy_timeout_s: float = Field(
        default=30.0, gt=0, description="how long to wait for a write lock of another process"
    )
    sqlite_durability: Literal["full", "normal"] = Field(
        default="full",
        description="full: every commit survives a power failure; normal: faster, but the last commits may "
        "be lost; timestamps, protections and pauses always survive",
    )
    cassandra_user: str | None = Field(default=None, description="user name for Cassandra; none: no login")
    cassandra_password: SecretStr | None = Field(default=None, description="password of cassandra_user (secret)")
    cassandra_tls: bool = Field(
        default=False, description="encrypt connections and verify the certificate of each node"
    )
    cassandra_plaintext_password: bool = Field(
        default=False, description="allow sending the password unencrypted to other machines, on a trusted network"
    )
    cassandra_ca_file: Path | None = Field(
        default=None, description="CA certificates to trust instead of those of the system"
    )
    cassandra_cert_file: Path | None = Field(default=None, description="client certificate, if the nodes require one")
    cassandra_key_file: Path | None = Field(
        default=None, description="private key of the client certificate, if it is not in the same file"
    )
    cassandra_key_password: SecretStr | None = Field(default=None, description="password of the private key (secret)")
    cassandra_datacenter: str | None = Field(
        default=None, description="datacenter whose nodes are used as coordinators; none: all nodes"
    )
    cassandra_replication: int = Field(
        default=3, ge=1, description="number of replicas in a keyspace that init creates"
    )
    cassandra_read_consistency: Consistency = Field(default="quorum", description="consistency level of reads")
    cassandra_write_consistency: Consistency = Field(
        default="quorum", description="consistency level of writes and deletes"
    )
    cassandra_serial_consistency: Literal["serial", "local_serial"] = Field(
        default="serial",
        description="consistency level of compare-and-set; local_serial: only if all clients use one datacenter",
    )
    cassandra_timeout_s: float = Field(default=12.0, gt=0, description="timeout of a request")
    cassandra_attempts: int = Field(default=5, ge=1, description="attempts at a request that is safe to retry")
    cassandra_in_flight: int = Field(default=64, ge=1, description="concurrent requests of one process")
    cassandra_batch_statements: int = Field(default=100, ge=1, description="writes or deletes in one request")
    cassandra_batch_bytes: int = Field(default=40_960, gt=0, description="bytes in one batch of small writes")
    cassandra_page_rows: int = Field(default=5_000, gt=0, description="versions that a read fetches at once")
    cassandra_speculative_ms: int = Field(
        default=0, ge=0, description="send a safe request to a second node after this delay; 0: never"
    )
    cassandra_gc_grace_s: int = Field(
        default=864_000, ge=0, description="gc_grace_seconds of new tables; run repair more often than this"
    )
    max_value_bytes: int = Field(
        default=8 * MIB, gt=0, description="maximum size of a value; larger values are rejected"
    )

    @model_validator(mode="after")
    def _cassandra_can_be_logged_in_to(self) -> Self:
        _check_cassandra(self)
        return self


def _check_cassandra(settings: StoreSettings) -> None:
    if bool(settings.cassandra_user) != bool(settings.cassandra_password):
        raise refused("incomplete_login", "cassandra_user and cassandra_password belong together; set both or neither")
    for name in ("ca_file", "cert_file", "key_file"):
        if getattr(settings, f"cassandra_{name}") and not settings.cassandra_tls:
            raise refused("needs_tls", f"cassandra_{name} has no effect without encryption; set cassandra_tls to true")
    if settings.cassandra_key_file and not settings.cassandra_cert_file:
        raise refused("needs_certificate", "cassandra_key_file requires cassandra_cert_file")


class TransactionSettings(BaseModel, defer_build=True):
    lease_ttl_s: float = Field(
        default=30.0, gt=0, description="how long a transaction counts as alive after its last lease renewal"
    )
    writer_wait_s: float = Field(
        default=60.0, gt=0, description="how long a reader waits for an unfinished commit of a live writer"
    )
    emptying_wait_s: float = Field(
        default=2.0, ge=0, description="how long to wait for an announced truncation or drop before it is rolled back"
    )
    scan_page_cells: int = Field(default=1_000, gt=0, description="cells that a scan fetches at once")
    transaction_attempts: int = Field(default=10, gt=0, description="attempts of the retry helper at a transaction")
