from __future__ import annotations

from pathlib import Path

import pytest

from sweep_tasks.config import FILE_VARIABLE, load_settings
from sweep_tasks.errors import BadValue


def test_the_environment_wins_over_the_file_and_overrides_over_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sweepflow.toml"
    file.write_text('store = "sqlite:///from-file.db"\nretention_s = 60\nlease_ttl_s = 5\n')
    monkeypatch.setenv(FILE_VARIABLE, str(file))
    monkeypatch.setenv("SWEEPFLOW_RETENTION_S", "120")
    settings = load_settings(lease_ttl_s=7)
    assert (settings.store, settings.retention_s, settings.lease_ttl_s) == ("sqlite:///from-file.db", 120, 7)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("retention_s = -1", "setting retention_s: .*greater than or equal to 0"),
        ("retension_s = 1", "setting retension_s: "),
        ("store = ", "is not TOML"),
    ],
)
def test_a_bad_file_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, message: str) -> None:
    file = tmp_path / "sweepflow.toml"
    file.write_text(content)
    monkeypatch.setenv(FILE_VARIABLE, str(file))
    with pytest.raises(BadValue, match=message):
        load_settings()


def test_a_missing_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FILE_VARIABLE, "/nowhere/sweepflow.toml")
    with pytest.raises(BadValue, match=r"names /nowhere/sweepflow\.toml, which is not a file"):
        load_settings()


def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPFLOW_LEASE_TTL_S", "soon")
    with pytest.raises(BadValue, match="setting lease_ttl_s"):
        load_settings()
