"""Register the page with Airflow: its application, and its entry in the navigation.

Every process of Airflow imports this file, including every task. So the application is created at its first request,
which only the API server receives.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from airflow.plugins_manager import AirflowPlugin

from sweep_tasks.orchestration.names import PREFIX, airflow_path

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import Receive, Scope, Send


async def page(scope: Scope, receive: Receive, send: Send) -> None:
    await _application()(scope, receive, send)


@lru_cache(maxsize=1)
def _application() -> FastAPI:
    from sweep_tasks.web.application import page_app

    return page_app()


class SweepflowPlugin(AirflowPlugin):
    name = "sweepflow"
    fastapi_apps = [{"app": page, "url_prefix": PREFIX, "name": "sweepflow"}]  # noqa: RUF012 (Airflow declares it like this)
    external_views = [  # noqa: RUF012
        {
            "name": "Sweeping",
            "href": f"{airflow_path()}{PREFIX}/",
            "destination": "nav",
            "nav_top_level": True,
            "url_route": "sweeping",
        }
    ]
