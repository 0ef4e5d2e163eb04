"""A look at part of a table, in a bounded number of calls however large it is.

A small table is read whole. Of a large one the scan order is cut into parts, a few of them are read to their end, and
where one is too long for that it is all cut finer. What was read is judged by the rules of a scan, which then deletes
nothing: so the sample says what a scan would find, and the time it took how long that one would take.
"""

from __future__ import annotations

import time
from itertools import groupby

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


class Sampler:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._commits = CommitTable(store)

    def sample(self, table: TableRef, now: TableRules | None, later: TableRules | None) -> Sample:
        """Judged by what may go now and later; by nothing where the table is never swept."""
        began = time.perf_counter()
        parts, share, at_least = self._read(table)
        found = [version for part in parts for version in part]
        goes_now, goes_later = (
            sum(self._going(rules, part) for part in parts) if rules else 0 for rules in (now, later)
        )
        sentinels = sum(ts == SENTINEL_TS for _, ts, _ in found)
        return Sample(
            cells=sum(1 for _ in groupby(found, key=lambda version: version.cell)),
            versions=len(found),
            sentinels=sentinels,
            delete_markers=sum(empty for _, _, empty in found) - sentinels,
            goes_now=goes_now,
            goes_later=goes_later,
            share=share,
            at_least=at_least,
            seconds=time.perf_counter() - began,
        )

    def _read(self, table: TableRef) -> tuple[list[list[StoredVersion]], float, bool]:
        """What was read, part by part; how much of the table that is, and whether it may be less."""
        whole, done = self._part(table, EVERYWHERE, _WHOLE)
        if done:
            return [whole], 1.0, False
        parts, share, at_least = [whole], 1.0, True
        for cut in _CUTS:
            stretches = self._store.stretches(table, cut)
            picked = stretches[:: -(-len(stretches) // _PARTS_READ)]
            read = [self._part(table, stretch, _PER_PART) for stretch in picked]
            parts, share = [found for found, _ in read], len(picked) / len(stretches)
            at_least = not all(done for _, done in read)
            if not at_least or len(stretches) < cut // 2:
                break
        return parts, share, at_least

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

    def _going(self, rules: TableRules, versions: list[StoredVersion]) -> int:
        outcomes = self._commits.settled(rules.starts(versions), dry_run=True)
        return rules.judged(None, versions, outcomes, at_end=True).counts.deleted
