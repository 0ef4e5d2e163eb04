"""All metrics, for Prometheus to fetch with a token of Airflow's."""

from __future__ import annotations

from fastapi import APIRouter, Response

from sweep_tasks.clock import SystemClock
from sweep_tasks.errors import StoreError
from sweep_tasks.observation.prometheus import CONTENT_TYPE, as_text, exposition
from sweep_tasks.observation.values import DOWN
from sweep_tasks.orchestration.page.acting import the_store

router = APIRouter(prefix="/metrics", tags=["metrics"])


@router.get("")
def metrics() -> Response:
    """Of a store that can't be opened as well: what fetches this has to see that, and not an error of ours."""
    try:
        with the_store() as (store, settings):
            text = exposition(store, settings, SystemClock())
    except StoreError:
        text = as_text(DOWN)
    return Response(text, media_type=CONTENT_TYPE)
