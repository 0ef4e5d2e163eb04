"""Write files completely or not at all: a concurrent reader finds the previous content, or no file.

A draft is written beside the file, under a unique name: processes on several machines may write the same file of a
shared folder at the same time, and processes in containers often have the same process id.

A finished file survives a power failure: its content is synced before it is renamed, and its folder afterwards. Without
the first a file system may keep the name and lose the content; without the second it may lose the name.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO
from uuid import uuid4

DRAFT = ".draft"
BY_UMASK = 0o666
PRIVATE_FILE = 0o600
"""Readable by the owner only, whatever the umask."""
PRIVATE_FOLDER = 0o700
_NOT_SUPPORTED = {errno.EINVAL, errno.ENOTSUP}


@contextmanager
def whole_file(to: Path, mode: int = BY_UMASK) -> Iterator[TextIO]:
    """Open a draft for writing. It replaces the file when the block ends without an error."""
    draft = to.with_name(f"{to.name}.{uuid4().hex}{DRAFT}")
    try:
        with open(draft, "x", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, mode)) as out:
            yield out
            sync_written(out)
        put_in_place(draft, to)
    finally:
        draft.unlink(missing_ok=True)


def write_whole(to: Path, content: str, mode: int = BY_UMASK) -> None:
    with whole_file(to, mode) as out:
        out.write(content)


def make_private_folder(folder: Path) -> None:
    """Create a folder and its parents for their owner only. An existing folder keeps its mode: an operator may have
    opened it to others."""
    try:
        folder.mkdir(PRIVATE_FOLDER)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        make_private_folder(folder.parent)
        make_private_folder(folder)
    except OSError:
        if not folder.is_dir():
            raise


def put_in_place(draft: Path, to: Path) -> None:
    """Rename a draft to its final name and sync the folder. The content of the draft must be on disk already."""
    os.replace(draft, to)
    sync(to.parent)


def sync_written(out: TextIO) -> None:
    out.flush()
    os.fsync(out.fileno())


def sync_tree(folder: Path) -> None:
    """Sync everything in a folder to disk: files, then the folders that contain them, then the folder itself."""
    for inner, _, files in os.walk(folder, topdown=False):
        for name in files:
            sync(Path(inner, name))
        sync(Path(inner))


def sync_parents(path: Path) -> None:
    """Sync the parent folders of a path, which may be new themselves. A folder that we may not read is skipped."""
    for folder in path.parents:
        with suppress(PermissionError):
            sync(folder)


def sync(path: Path) -> None:
    """Sync one file or folder to disk. Some file systems do not support that for folders, and do not need it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED or not path.is_dir():
            raise
    finally:
        os.close(descriptor)
