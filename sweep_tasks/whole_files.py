"""Files that are written whole or not at all: whoever reads one meanwhile finds the former content, or none.

A draft lies beside the file it is to become, under a name that nobody else has: processes on several machines may write
the same file of a shared folder at once, and those in containers often have the same process id.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO
from uuid import uuid4

DRAFT = ".draft"


@contextmanager
def whole_file(to: Path) -> Iterator[TextIO]:
    """To be written; it takes its place at the end, unless something fails before."""
    draft = to.with_name(f"{to.name}.{uuid4().hex}{DRAFT}")
    try:
        with draft.open("x", encoding="utf-8") as out:
            yield out
        os.replace(draft, to)
    finally:
        draft.unlink(missing_ok=True)


def write_whole(to: Path, content: str) -> None:
    with whole_file(to) as out:
        out.write(content)
