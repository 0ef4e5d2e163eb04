"""Every setting, in one typed place: from the environment (`SWEEPFLOW_…`) or from one TOML file.

The environment wins over the file. Nothing else in the project reads the environment.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tomllib
from collections.abc import Sequence
from decimal import Decimal
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal, LiteralString, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from sweep_tasks.errors import BadValue

FILE_VARIABLE = "SWEEPFLOW_CONFIG"
MIB = 1024 * 1024
MAX_PAGE_VERSIONS = 100_000
"""Of a scan: a page is held in memory, by every worker."""


def _listed(given: Any) -> Any:
    """A variable holds one string: its parts are separated by commas."""
    return [part.strip() for part in given.split(",") if part.strip()] if isinstance(given, str) else given


Consistency = Literal["one", "two", "three", "quorum", "local_quorum", "each_quorum", "all"]
LogFormat = Literal["text", "json"]
CommaSeparated = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)]
Share = Annotated[Decimal, Field(le=1, decimal_places=9)]
"""Decimal, so that it is exactly what was written."""


class TableThresholds(BaseModel):
    """What a table has instead of the general `compaction_…` settings of these names."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    dense_tombstones: int | None = None
    dense_share: Share | None = None
    eligible_share: Share | None = None
    run_warn: int | None = None
    run_fail: int | None = None
    overlap_share: Share | None = None
    read_tombstones: int | None = None


def _words(given: Any) -> Any:
    """A command in one string is taken apart as a shell would, but no shell ever sees it."""
    try:
        return shlex.split(given) if isinstance(given, str) else given
    except ValueError as error:
        raise PydanticCustomError("not_a_command", "is not a command: {problem}", {"problem": str(error)}) from None


def _folders(given: Any) -> Any:
    """A string names at least one."""
    return _listed(given) or [""] if isinstance(given, str) else given


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
_PASSWORDS = ("-pw", "--password", "--token")
_PASSWORD_GIVEN = re.compile(r"\w*(PASS|PASSWORD|SECRET|TOKEN)\w*=.", re.IGNORECASE)
"""A variable of the environment, as `env` takes it."""


class CompactionNode(BaseModel):
    """Where a node's files are, and how Cassandra's own tools are started there."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    data: Annotated[tuple[str, ...], BeforeValidator(_folders)]
    """None of them, but in so many words: nobody here can read the node's files."""
    prefix: Words = ()
    nodetool: Words = ("nodetool",)
    sstabledump: Words = ("sstabledump",)
    sstablemetadata: Words = ("sstablemetadata",)

    @model_validator(mode="after")
    def _can_be_used(self) -> Self:
        _check_node(self)
        return self


class ByName(dict[str, Any]):
    """Settings are never changed, so this can have the hash that a dict lacks: stores are kept by their settings."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


class ByTable(ByName):
    """Thresholds of tables."""


class ByNode(ByName):
    """Nodes whose files may be compacted."""


def _from_json(given: Any, example: str) -> Any:
    """A variable holds one string; a file may hold a table of its own instead."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given, parse_float=Decimal) if given.strip() else {}
    except (ValueError, RecursionError):
        raise PydanticCustomError("not_json", "is not JSON; write it like {example}", {"example": example}) from None


def _named(nodes: dict[str, CompactionNode]) -> ByNode:
    for name in nodes:
        if not _NODE_NAME.fullmatch(name):
            raise PydanticCustomError("bad_name", "a node's name is letters, digits, dots, dashes and underscores")
    return ByNode(nodes)


_NODE_NAME = re.compile(r"\w[\w.-]{0,63}")
_TABLE_EXAMPLE = '{"shop.orders": {"eligible_share": 0.1}}'
_NODE_EXAMPLE = '{"cassandra1": {"data": "/var/lib/cassandra/data", "prefix": "ssh cassandra1"}}'
Tables = Annotated[
    dict[str, TableThresholds],
    NoDecode,
    BeforeValidator(lambda given: _from_json(given, _TABLE_EXAMPLE)),
    AfterValidator(ByTable),
]
Nodes = Annotated[
    dict[str, CompactionNode],
    NoDecode,
    BeforeValidator(lambda given: _from_json(given, _NODE_EXAMPLE)),
    AfterValidator(_named),
]


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="SWEEPFLOW_", extra="forbid", frozen=True, hide_input_in_errors=True)

    store: str = Field(default="sqlite:///sweepflow.db", description="where the data lives")
    sqlite_busy_timeout_s: float = Field(default=30.0, gt=0, description="how long to wait for another process's write")
    sqlite_durability: Literal["full", "normal"] = Field(
        default="full",
        description="full: a commit survives a power cut; normal: ten times the commits, the last may be lost",
    )
    cassandra_user: str | None = Field(default=None, description="who logs in to Cassandra; none: nobody")
    cassandra_password: SecretStr | None = Field(default=None, description="the password for that (secret)")
    cassandra_tls: bool = Field(default=False, description="encrypt, and check the certificate of each node")
    cassandra_ca_file: Path | None = Field(default=None, description="certificates to trust instead of the system's")
    cassandra_cert_file: Path | None = Field(default=None, description="our certificate, where nodes ask for one")
    cassandra_key_file: Path | None = Field(default=None, description="the key for that, if it is not in the same file")
    cassandra_key_password: SecretStr | None = Field(default=None, description="the password of that key (secret)")
    cassandra_datacenter: str | None = Field(default=None, description="whose nodes are asked; none: all nodes are")
    cassandra_replication: int = Field(default=3, ge=1, description="copies of everything in a keyspace made by init")
    cassandra_read_consistency: Consistency = Field(default="quorum", description="copies a read waits for")
    cassandra_write_consistency: Consistency = Field(default="quorum", description="copies a write or delete waits for")
    cassandra_serial_consistency: Literal["serial", "local_serial"] = Field(
        default="serial", description="whose copies agree on a compare-and-set; local_serial: one datacenter's"
    )
    cassandra_timeout_s: float = Field(default=12.0, gt=0, description="how long a request may go unanswered")
    cassandra_attempts: int = Field(default=5, ge=1, description="how often a request that may be repeated is made")
    cassandra_in_flight: int = Field(default=64, ge=1, description="requests of one process that are not yet answered")
    cassandra_batch_statements: int = Field(default=100, ge=1, description="writes or deletes in one request")
    cassandra_batch_bytes: int = Field(default=40_960, gt=0, description="bytes in one request, if writes are small")
    cassandra_page_rows: int = Field(default=5_000, gt=0, description="versions a read fetches at once")
    cassandra_speculative_ms: int = Field(
        default=0, ge=0, description="ask a second node if the first takes longer, where that is safe; 0: never"
    )
    cassandra_gc_grace_s: int = Field(
        default=864_000, ge=0, description="how long Cassandra keeps tombstones of new tables; repair more often"
    )
    max_value_bytes: int = Field(default=8 * MIB, gt=0, description="values above this are refused")
    lease_ttl_s: float = Field(default=30.0, gt=0, description="how long a silent transaction is taken for alive")
    writer_wait_s: float = Field(default=60.0, gt=0, description="how long a reader waits for a live writer in its way")
    scan_page_cells: int = Field(default=1_000, gt=0, description="cells a scan fetches at once")
    transaction_attempts: int = Field(default=10, gt=0, description="how often the retry helper runs a transaction")
    grace_s: int = Field(default=3_600, ge=0, description="how long aborted writes are watched for slow writers")
    sweep_batch_entries: int = Field(default=100_000, gt=0, description="queue entries judged at a time")
    max_tombstones_per_partition: int = Field(
        default=50_000, ge=0, description="tombstones one run may write into one row; 0: no limit"
    )
    max_protection_records: int = Field(default=512, ge=0, description="protection records at a time; 0: no limit")
    max_protection_spans: int = Field(default=4_096, ge=0, description="tables and row ranges they name; 0: no limit")
    protection_refresh_s: float = Field(
        default=300.0, gt=0, description="how old what is known of protections may be, where that does no harm"
    )
    protect_at_as_after: bool = Field(
        default=False, description="keep all later versions too: for readers that know no thresholds, such as AtlasDB's"
    )
    parked_per_run: int = Field(
        default=500_000, ge=0, description="entries a run of a shard takes up again when they are let go; 0: no limit"
    )
    legacy_ranges: int = Field(default=64, ge=1, le=10_000, description="parts in which a table is scanned")
    legacy_batch_versions: int = Field(
        default=5_000, gt=0, le=MAX_PAGE_VERSIONS, description="versions that a scan of a table fetches at once"
    )
    legacy_versions_per_s: int = Field(
        default=100_000, ge=0, description="versions that a scan of a table examines in a second; 0: no limit"
    )
    legacy_silent_s: int = Field(
        default=600,
        gt=0,
        description="a scan of a table that was not heard of for longer was cut off; others go on with it",
    )
    legacy_schedule: str | None = Field(
        default="30 * * * *",
        description="when tables are scanned by turns, as cron writes it; none: only when asked for",
    )
    legacy_budget_s: int = Field(
        default=1_200, ge=0, description="how long a run scans tables by turns, in each of its lanes; 0: not at all"
    )
    legacy_lanes: int = Field(default=2, ge=1, le=64, description="tables scanned at the same time, a pool each")
    legacy_turns: int = Field(default=4, ge=1, description="tables that share the time of a lane, if as many wait")
    legacy_pause_s: int = Field(
        default=604_800, ge=0, description="how long a table that was scanned to its end is left alone"
    )
    legacy_first: CommaSeparated = Field(
        default=(), description="tables and patterns that are scanned before all others, separated by commas"
    )
    legacy_never: CommaSeparated = Field(
        default=(), description="tables and patterns that are never scanned by turns, separated by commas"
    )
    retention_s: int = Field(default=3_600, ge=0, description="how long conservative tables keep what was overwritten")
    shards: int = Field(default=4, ge=1, le=256, description="queues of each strategy, a task each; can only grow")
    sweep_tasks_at_once: int = Field(default=2, ge=1, description="shards of each strategy swept at the same time")
    spark_batch_entries: int = Field(default=500_000, gt=0, description="queue entries a Spark job judges at a time")
    catch_up_from: AwareDatetime | None = Field(
        default=None, description="the first hour of the schedule, each missed one is made up for; none: the last only"
    )
    runs_at_once: int | None = Field(
        default=None, ge=1, description="sweep runs at the same time; none: one while hours are made up for, else four"
    )
    export_folder: Path | None = Field(
        default=None, description="where exports of tables go; all machines of a Spark job must see it; none: nowhere"
    )
    export_tables: CommaSeparated = Field(
        default=("*.*",), description="tables and patterns that are exported, separated by commas"
    )
    export_schedule: str | None = Field(
        default=None, description="when they are exported, as cron writes it; none: only when somebody asks for it"
    )
    task_retries: int = Field(default=3, ge=0, description="how often Airflow tries a failed shard again in one run")
    task_retry_delay_s: float = Field(default=60.0, gt=0, description="how long before the first time, then twice that")
    task_timeout_s: int = Field(default=7_200, gt=0, description="a task that takes longer is ended, and tried again")
    metrics_otlp_url: str | None = Field(
        default=None, description="an OpenTelemetry collector that hourly runs tell all metrics; none: none is told"
    )
    log_format: LogFormat = Field(default="text", description="log lines on stderr: text for people, json for programs")
    cache_folder: Path = Field(
        default=Path("~/.cache/sweepflow"), description="where downloads are kept: the jars of the local Cassandra"
    )
    task_folder: Path | None = Field(
        default=None, description="where tasks keep files while they run; none: in the system's temporary folder"
    )
    run_deadline_s: int = Field(default=3_000, ge=0, description="a run that takes longer is alerted about; 0: none is")
    lag_objective_conservative_s: int = Field(
        default=14_400, gt=0, description="how far behind a conservative shard may be before somebody is told"
    )
    lag_objective_thorough_s: int = Field(
        default=10_800, gt=0, description="how far behind a thorough shard may be before somebody is told"
    )
    compaction_dense_tombstones: int = Field(
        default=100, description="a block with this many tombstones is dense; 0 or less: their number does not count"
    )
    compaction_dense_share: Share = Field(
        default=Decimal("0.5"),
        description="a block is dense if tombstones are this share of its bytes; 0 or less: their bytes do not count",
    )
    compaction_eligible_share: Share = Field(
        default=Decimal("0.05"),
        description="a file with this share of dense blocks is compacted; 0 or less: none is, for whatever reason",
    )
    compaction_run_warn: int = Field(
        default=1_000,
        description="a file with this many dead cells in a row is compacted: the server warns; 0 or less: it does not",
    )
    compaction_run_fail: int = Field(
        default=100_000, description="where the server fails a read over dead cells; 0 or less: it does not"
    )
    compaction_overlap_share: Share = Field(
        default=Decimal("0.5"),
        description="tombstones for each key around them at which a file is compacted; 0 or less: they do not count",
    )
    compaction_tables: Tables = Field(
        default=ByTable(), description="what is different for a table, by its name, as JSON or a table of the file"
    )
    compaction_nodes: Nodes = Field(
        default=ByNode(), description="nodes to compact on, by name, as JSON or a table of the file; none: nowhere"
    )
    compaction_budget_bytes: int = Field(
        default=50 * 1024 * MIB, gt=0, description="bytes that one run may have one node rewrite"
    )
    compaction_wait_s: float = Field(
        default=300.0, ge=0, description="how long a run waits for compactions of the server's own before it gives up"
    )
    compaction_read_tombstones: int = Field(
        default=1_000,
        description="tombstones one read met at which its table's files come last in the plan; 0 or less: they don't",
    )
    compaction_near_fail_share: Share = Field(
        default=Decimal("0.5"),
        description="a run of dead cells is alerted about at this share of compaction_run_fail; 0 or less: never",
    )
    compaction_files_at_once: int = Field(
        default=2, ge=1, description="files of a node that are measured at the same time, outside of Spark"
    )
    compaction_schedule: str = Field(
        default="0 3 * * *", description="when nodes are compacted, as cron writes it; empty: by no clock"
    )
    compaction_after_tombstones: int = Field(
        default=1_000_000,
        ge=0,
        description="a sweep or scan that wrote more tombstones than this starts a compaction; 0: none does",
    )
    compaction_alert_again_s: int = Field(
        default=86_400, ge=0, description="how long a partition near failing is not alerted about again; 0: each run"
    )
    protections_schedule: str = Field(
        default="*/10 * * * *", description="when protections are reconciled with their owners, as cron writes it"
    )
    protection_pending_s: int = Field(
        default=300,
        ge=0,
        description="how long a protection may take to be verified before it is taken for left behind",
    )
    protection_max_age_s: int = Field(
        default=604_800, ge=0, description="a protection that is older is alerted about; 0: none is"
    )
    protection_limit_warning: float = Field(
        default=0.8, gt=0, le=1, description="the share of a limit of protections in use at which somebody is told"
    )
    protection_alert_again_s: int = Field(
        default=86_400, ge=0, description="how long a problem with a protection is not alerted about again; 0: each run"
    )
    owner_timeout_s: float = Field(
        default=10.0, gt=0, description="how long Airflow or Spark may take to say whether an owner is done"
    )
    spark_master_ui_url: str | None = Field(
        default=None, description="the web page of the Spark master, which knows what runs; none: it is not asked"
    )
    spark_history_url: str | None = Field(
        default=None, description="Spark's history server, which knows what has ended; none: it is not asked"
    )
    alert_smtp_host: str | None = Field(default=None, description="mail server for alerts; none: no mail")
    alert_smtp_port: int = Field(default=587, ge=1, le=65_535, description="its port")
    alert_smtp_tls: Literal["none", "starttls", "tls"] = Field(
        default="starttls", description="starttls: begin in clear, then encrypt; tls: encrypted from the first byte"
    )
    alert_smtp_user: str | None = Field(default=None, description="who logs in to the mail server; none: nobody")
    alert_smtp_password: SecretStr | None = Field(default=None, description="the password for that (secret)")
    alert_smtp_from: str | None = Field(default=None, description="the sender of alerts")
    alert_smtp_to: CommaSeparated = Field(default=(), description="who gets alerts by mail, separated by commas")
    alert_webhook_url: SecretStr | None = Field(
        default=None, description="where alerts are posted as JSON; none: nowhere (secret)"
    )
    alert_webhook_token: SecretStr | None = Field(default=None, description="bearer token for that (secret)")
    alert_ca_file: Path | None = Field(
        default=None, description="certificates to trust instead of the system's, for mail server and webhook"
    )
    alert_timeout_s: float = Field(default=5.0, gt=0, description="how long an alert waits for an answer")
    alert_attempts: int = Field(default=3, ge=1, description="how often each way of sending an alert is tried")
    alert_memory_s: int = Field(
        default=2_592_000, gt=0, description="how long it is remembered that a run was alerted about"
    )

    @model_validator(mode="after")
    def _alerts_can_be_sent(self) -> Self:
        _check_alerts(self)
        return self

    @model_validator(mode="after")
    def _cassandra_can_be_logged_in_to(self) -> Self:
        _check_cassandra(self)
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file = os.environ.get(FILE_VARIABLE)
        sources = (init_settings, env_settings)
        return (*sources, TomlConfigSettingsSource(settings_cls, Path(file))) if file else sources


def load_settings(**overrides: Any) -> Settings:
    """The settings in force; `overrides` stand above the environment."""
    file = os.environ.get(FILE_VARIABLE)
    if file and not Path(file).is_file():
        raise BadValue(FILE_VARIABLE, f"names {file}, which is not a file; correct or unset it", reason="not_a_file")
    try:
        return Settings(**overrides)
    except tomllib.TOMLDecodeError as error:
        raise BadValue(FILE_VARIABLE, f"{file} is not TOML: {error}", reason="not_toml") from error
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = f"setting {'.'.join(map(str, first['loc']))}".rstrip()
        raise BadValue(field, first["msg"], reason=first["type"]) from error


def _refused(reason: LiteralString, problem: str) -> PydanticCustomError:
    return PydanticCustomError(reason, "{problem}", {"problem": problem})


def _check_node(node: CompactionNode) -> None:
    if not all(folder.startswith("/") for folder in node.data):
        raise _refused(
            "not_absolute",
            "data names the node's data folders, by their whole paths: /var/lib/cassandra/data; [] if none is in reach",
        )
    for name in ("nodetool", "sstabledump", "sstablemetadata"):
        if not getattr(node, name):
            raise _refused("empty", f"{name} is empty; leave it out, or name the command")
    for name in ("prefix", "nodetool", "sstabledump", "sstablemetadata"):
        if _has_password(getattr(node, name)):
            raise _refused(
                "password",
                f"{name} has a password, which every user of the machine could see; use -pwf and a file, or a key",
            )


def _has_password(words: Sequence[str]) -> bool:
    if any(word.partition("=")[0] in _PASSWORDS or _PASSWORD_GIVEN.match(word) for word in words):
        return True
    behind = words[1 + next((at for at, word in enumerate(words) if Path(word).name == "sshpass"), len(words)) :]
    return any(word.startswith("-p") for word in takewhile(lambda word: word.startswith("-"), behind))


def _check_cassandra(settings: Settings) -> None:
    if bool(settings.cassandra_user) != bool(settings.cassandra_password):
        raise _refused("incomplete_login", "cassandra_user and cassandra_password go together; give both or neither")
    for name in ("ca_file", "cert_file", "key_file"):
        if getattr(settings, f"cassandra_{name}") and not settings.cassandra_tls:
            raise _refused("needs_tls", f"cassandra_{name} is of no use without encryption; set cassandra_tls to true")
    if settings.cassandra_key_file and not settings.cassandra_cert_file:
        raise _refused("needs_certificate", "cassandra_key_file needs cassandra_cert_file as well")


def _check_alerts(settings: Settings) -> None:
    """Alerts can be sent, and no secret goes out unencrypted."""
    if settings.alert_smtp_host and not (settings.alert_smtp_from and settings.alert_smtp_to):
        raise _refused("no_addresses", "alert_smtp_host needs alert_smtp_from and alert_smtp_to as well")
    if bool(settings.alert_smtp_user) != bool(settings.alert_smtp_password):
        raise _refused("incomplete_login", "alert_smtp_user and alert_smtp_password go together; give both or neither")
    if settings.alert_smtp_password and settings.alert_smtp_tls == "none":
        problem = "alert_smtp_password would go out unencrypted; set alert_smtp_tls to starttls or tls"
        raise _refused("password_unencrypted", problem)
    url = settings.alert_webhook_url.get_secret_value() if settings.alert_webhook_url else "https://unset"
    if not url.startswith(("https://", "http://")):
        raise _refused("not_an_address", "alert_webhook_url must start with https:// or http://")
    if settings.alert_webhook_token and not url.startswith("https://"):
        problem = "alert_webhook_token would go out unencrypted; give an alert_webhook_url that starts with https://"
        raise _refused("token_unencrypted", problem)


def inherited_environment() -> dict[str, str]:
    """What a child process would get of ours, to be added to."""
    return dict(os.environ)


def as_environment(settings: Settings) -> dict[str, str]:
    """The variables that give a child process these settings; those left at their default are left out."""
    given = {name: getattr(settings, name) for name in settings.model_fields_set}
    return {f"SWEEPFLOW_{name.upper()}": _as_text(value) for name, value in given.items() if value is not None}


def _as_text(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, ByName):
        return json.dumps({name: own.model_dump(mode="json", exclude_unset=True) for name, own in value.items()})
    return ",".join(value) if isinstance(value, tuple) else str(value)
