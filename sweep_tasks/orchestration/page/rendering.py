"""Templates to answers. Everything is escaped, and numbers are words where people read them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pendulum
from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sweep_tasks.durations import short
from sweep_tasks.orchestration.page.vendored import ASSETS


def rendered(
    request: Request, template: str, values: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK
) -> Response:
    text = environment().get_template(template).render(home=home(request), assets=ASSETS, **values)
    return HTMLResponse(text, status)


def home(request: Request) -> str:
    """The address of the page, whatever it is mounted behind."""
    return str(request.scope.get("root_path", "")).rstrip("/") + "/"


@lru_cache(maxsize=1)
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"span": short, "grouped": grouped, "moment": moment}
    return made


def grouped(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def moment(wall_ms: int) -> str:
    return pendulum.from_timestamp(wall_ms / 1000, tz="UTC").format("YYYY-MM-DD HH:mm:ss")
