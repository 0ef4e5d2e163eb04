"""Fewer searches for garbage while very many small values come and go.

A sweep makes entries, cells and ranges by the hundred thousand, plain tuples that no cycle leads through: they go when
nobody holds them. Python's search for cycles looks at them all the same, again and again, and takes a third of the time
of a sweep (measured: 0.62 s instead of 0.94 s for ten thousand entries on Cassandra).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_SELDOM = (100_000, 50, 50)
"""A search after so many new objects: some ten megabytes of what may be garbage."""


@contextmanager
def collected_seldom() -> Iterator[None]:
    """For the whole process, until the block ends; who has set it higher or switched it off is left alone."""
    before = gc.get_threshold()
    if 0 < before[0] < _SELDOM[0]:
        gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)
