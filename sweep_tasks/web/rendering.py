"""Renders templates as responses. Every value is escaped and printed without control characters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from sweep_tasks.clock import from_ms
from sweep_tasks.texts import duration, printable
from sweep_tasks.web.assets import ASSETS


def rendered(
    request: Request, template: str, values: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK
) -> Response:
    text = environment().get_template(template).render(home=home(request), assets=ASSETS, **values)
    return HTMLResponse(text, status)


def home(request: Request) -> str:
    """Return the path of the page, wherever it is mounted."""
    return str(request.scope.get("root_path", "")).rstrip("/") + "/"


@lru_cache(maxsize=1)
def environment() -> Environment:
    created = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=shown,
    )
    created.globals |= {"path_to": path_to}
    created.filters |= {"span": duration, "grouped": grouped, "moment": moment}
    return created


def shown(value: Any) -> Any:
    """Make a text printable. Every value of a template passes through this function, except HTML."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def path_to(*names: str) -> str | None:
    """Return a path of these names, quoted; None if a browser would resolve one of them as a parent directory."""
    if any(name in (".", "..") for name in names):
        return None
    return "/".join(quote(name, safe="", errors="replace") for name in names)


def grouped(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def moment(wall_ms: int) -> str:
    return from_ms(wall_ms).format("YYYY-MM-DD HH:mm:ss")
