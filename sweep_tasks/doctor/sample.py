"""A look at part of a table, in a bounded number of calls however large it is.

A small table is read whole. Of a large one the scan order is cut into parts, a few of them are read to their end, and
where one is too long for that it is all cut finer. What was read is judged by the rules of a scan, which then deletes
nothing: so the sample says what a scan would find. How long one would take is measured where the look at the table
resembles a scan: many versions behind one another, read and judged once. Parts that were found too long and the cutting
itself are not counted, nor are parts of a few versions, of which most time goes into asking.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import groupby
from typing import NamedTuple

from sweep_tasks.doctor.facts import Sample
from sweep_tasks.legacy.rules import TableRules
from sweep_tasks.model import SENTINEL_TS, StoredVersion, TableRef
from sweep_tasks.store.contract import EVERYWHERE, Store, Stretch
from sweep_tasks.transactions.commits import CommitTable

_PAGE = 1_000
_WHOLE = 5_000
"""Versions: a table with fewer is read from end to end."""
_PER_PART = 2_000
_PARTS_READ = 8
_CUTS = (16, 256, 4_096, 65_536)


class _Read(NamedTuple):
    parts: list[list[StoredVersion]]
    share: float
    """How much of the table that is."""
    at_least: bool
    """It may be less."""


class Sampler:
    """`in_time` says whether there is time for more. The first few thousand versions are always read."""

    def __init__(
        self,
        store: Store,
        in_time: Callable[[], bool] = lambda: True,
        now_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._store = store
        self._in_time = in_time
        self._now_s = now_s
        self._commits = CommitTable(store)

    def sample(self, table: TableRef, now: TableRules | None, later: TableRules | None) -> Sample:
        """Judged by what may go now and later; by nothing where the table is never swept."""
        began = self._now_s()
        first, done = self._part(table, EVERYWHERE, _WHOLE)
        going_of_first = self._going(now, first)
        per_version = (self._now_s() - began) / len(first) if first else 0.0
        read = _Read([first], 1.0, False) if done else self._cut(table, first)
        found = [version for part in read.parts for version in part]
        sentinels = sum(ts == SENTINEL_TS for _, ts, _ in found)
        return Sample(
            cells=sum(1 for _ in groupby(found, key=lambda version: version.cell)),
            versions=len(found),
            sentinels=sentinels,
            delete_markers=sum(empty for _, _, empty in found) - sentinels,
            goes_now=going_of_first if done else sum(self._going(now, part) for part in read.parts),
            goes_later=sum(self._going(later, part) for part in read.parts),
            share=read.share,
            at_least=read.at_least,
            seconds_per_version=per_version,
        )

    def _cut(self, table: TableRef, first: list[StoredVersion]) -> _Read:
        """Ever finer, until a few parts can be read to their end, or there is no time left."""
        read = _Read([first], 1.0, True)
        for cut in _CUTS:
            if not self._in_time():
                break
            stretches = self._store.stretches(table, cut)
            picked = stretches[:: -(-len(stretches) // _PARTS_READ)]
            parts = [self._part(table, stretch, _PER_PART) for stretch in picked if self._in_time()]
            if not parts:
                break
            at_least = not all(done for _, done in parts)
            read = _Read([found for found, _ in parts], len(parts) / len(stretches), at_least)
            if not at_least or len(stretches) < cut // 2:
                break
        return read

    def _part(self, table: TableRef, stretch: Stretch, most: int) -> tuple[list[StoredVersion], bool]:
        """Up to so many versions, and whether that was all of it."""
        found: list[StoredVersion] = []
        resume = None
        while len(found) < most:
            page = self._store.scan_versions(table, limit=_PAGE, after=resume, stretch=stretch)
            found += page.items
            resume = page.resume
            if resume is None:
                return found, True
        return found, False

    def _going(self, rules: TableRules | None, versions: list[StoredVersion]) -> int:
        if rules is None:
            return 0
        outcomes = self._commits.settled(rules.starts(versions), dry_run=True)
        return rules.judged(None, versions, outcomes, at_end=True).counts.deleted
