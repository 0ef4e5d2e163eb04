"""Every setting, in one typed place: from the environment (`SWEEPFLOW_…`) or from one TOML file.

The environment wins over the file. Nothing else in the project reads the environment.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from sweep_tasks.errors import BadValue

FILE_VARIABLE = "SWEEPFLOW_CONFIG"
MIB = 1024 * 1024


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="SWEEPFLOW_", extra="forbid", frozen=True)

    store: str = Field(default="sqlite:///sweepflow.db", description="where the data lives")
    sqlite_busy_timeout_s: float = Field(default=30.0, gt=0, description="how long to wait for another process's write")
    sqlite_durability: Literal["full", "normal"] = Field(
        default="full",
        description="full: a commit survives a power cut; normal: ten times the commits, the last may be lost",
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
    retention_s: int = Field(default=3_600, ge=0, description="how long conservative tables keep what was overwritten")

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
        raise BadValue(FILE_VARIABLE, f"names {file}, which is not a file; correct or unset it")
    try:
        return Settings(**overrides)
    except tomllib.TOMLDecodeError as error:
        raise BadValue(FILE_VARIABLE, f"{file} is not TOML: {error}") from error
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise BadValue(f"setting {'.'.join(map(str, first['loc']))}", first["msg"]) from error
