from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from airflow.api_fastapi.app import _AuthManagerState, create_auth_manager
from airflow.models.base import Base

from sweep_tasks.model import TableMetadata, TableRef
from sweep_tasks.store import Store
from tests.unit.web.http_client import RightsByDag

TABLE = TableRef.parse("app.items")


@pytest.fixture(scope="package")
def airflow_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Airflow's own tables, in a file of their own: its guards look there for teams and logins that were revoked."""
    settings: Any = import_module("airflow.settings")
    models: Any = import_module("airflow.models")
    models.import_all_models()
    with pytest.MonkeyPatch.context() as patch:
        file = tmp_path_factory.mktemp("airflow") / "airflow.db"
        patch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", f"sqlite:///{file}")
        settings.configure_vars()
        settings.reconfigure_orm()
        Base.metadata.create_all(settings.engine)
        yield
        settings.dispose_orm()
    settings.configure_vars()
    settings.configure_orm()


@pytest.fixture
def users(airflow_database: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The users of `http_client.py` and their rights."""
    where = f"{RightsByDag.__module__}.{RightsByDag.__qualname__}"
    monkeypatch.setenv("AIRFLOW__CORE__AUTH_MANAGER", where)
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "of these tests " * 5)
    monkeypatch.setattr(_AuthManagerState, "instance", None)
    create_auth_manager()


@pytest.fixture
def store(sqlite: Store, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store that the page shows, with a table."""
    monkeypatch.setenv("SWEEPFLOW_STORE", sqlite_url)
    sqlite.create_table(TABLE, TableMetadata())
    return sqlite
