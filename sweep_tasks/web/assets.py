"""The files that a browser loads besides the page: two libraries as published, and our own script and styles.

Nothing is loaded from another server. Third-party files are listed with version, licence and checksum, which a test
compares. To upgrade one, change this list and the file.
"""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter, HTTPException
from fastapi.responses import FileResponse

router = APIRouter(prefix="/assets", tags=["assets"])

FOLDER = Path(__file__).parent / "assets"


class Vendored(NamedTuple):
    package: str
    version: str
    licence: str
    licence_file: str
    sha256: str


VENDORED = {
    "htmx-2.0.10.min.js": Vendored(
        "htmx.org",
        "2.0.10",
        "0BSD",
        "htmx-LICENSE.txt",
        "71ea67185bfa8c98c39d31717c6fce5d852370fcdfd129db4543774d3145c0de",
    ),
    "uplot-1.6.32.min.js": Vendored(
        "uplot",
        "1.6.32",
        "MIT",
        "uplot-LICENSE.txt",
        "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    ),
    "uplot-1.6.32.min.css": Vendored(
        "uplot",
        "1.6.32",
        "MIT",
        "uplot-LICENSE.txt",
        "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    ),
}
OWN = ("page.css", "page.js")
TYPES = {".js": "text/javascript", ".css": "text/css", ".txt": "text/plain"}


class Assets(NamedTuple):
    styles: list[str]
    scripts: list[str]


ASSETS = Assets(
    styles=["uplot-1.6.32.min.css", "page.css"], scripts=["htmx-2.0.10.min.js", "uplot-1.6.32.min.js", "page.js"]
)
SERVED = frozenset(VENDORED) | frozenset(OWN) | {each.licence_file for each in VENDORED.values()}


@router.get("/{name}")
def asset(name: str) -> FileResponse:
    if name not in SERVED:
        raise HTTPException(HTTPStatus.NOT_FOUND, "no such file")
    kind = TYPES[Path(name).suffix]
    return FileResponse(FOLDER / name, media_type=kind, headers={"Cache-Control": "private, max-age=3600"})
