"""All metrics, for Prometheus to fetch with a token of Airflow's."""

from __future__ import annotations

from fastapi import APIRouter, Response

from sweep_tasks.clock import SystemClock
from sweep_tasks.observation.prometheus import CONTENT_TYPE, exposition
from sweep_tasks.orchestration.page.acting import the_store

router = APIRouter(prefix="/metrics", tags=["metrics"])


@router.get("")
def metrics() -> Response:
    with the_store() as (store, settings):
        return Response(exposition(store, settings, SystemClock()), media_type=CONTENT_TYPE)
