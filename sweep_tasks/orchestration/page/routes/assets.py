"""Scripts, styles and their licences: for users only, like everything else."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

from fastapi import APIRouter, HTTPException
from fastapi.responses import FileResponse

from sweep_tasks.orchestration.page.vendored import FOLDER, SERVED, TYPES

router = APIRouter(prefix="/assets", tags=["assets"])


@router.get("/{name}")
def asset(name: str) -> FileResponse:
    if name not in SERVED:
        raise HTTPException(HTTPStatus.NOT_FOUND, "no such file")
    kind = TYPES[Path(name).suffix]
    return FileResponse(FOLDER / name, media_type=kind, headers={"Cache-Control": "private, max-age=3600"})
