"""Which new files came of a compaction, and which of something else. Pure: what files tell of themselves in.

A file covers stretches of the commit log: those of the flush that wrote it, or those of all files it was compacted
from, joined (tried on Cassandra 5.0.9, size-tiered, leveled and unified). No two flushes of a table cover the same. So
a new file that covers what the sources covered came of them; one that covers nothing of it did not; and one that covers
more came of them and of others, in a second compaction. Files from other nodes cover nothing: then write times are all
there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sweep_tasks.compaction.metadata import Metadata, joined, meet
from sweep_tasks.compaction.sstables import Identity


@dataclass(frozen=True, slots=True)
class Descent:
    made: Mapping[str, Identity] = field(default_factory=dict)
    none_of_it: bool = False
    """All sources are still there, and nothing came of them."""
    unclear: bool = False
    """Something came of them that is not only theirs, or went away again."""
    certain: bool = True
    """Nothing but a compaction of the sources can have made these."""


def descent_of(
    sources_left: int, sources: Sequence[Metadata], new: Mapping[str, Identity], told: Mapping[str, Metadata | None]
) -> Descent:
    """`told`: of the new files; None of one that went away before it could be asked."""
    covered = joined(stretch for source in sources for stretch in source.covers)
    whole = all(source.covers for source in sources)
    first = min(source.min_timestamp for source in sources)
    last = max(source.max_timestamp for source in sources)
    made: dict[str, Identity] = {}
    unclear = 0 < sources_left < len(sources)
    for name, identity in new.items():
        metadata = told.get(name)
        if metadata is None:
            unclear = True
        elif metadata.covers == covered and first <= metadata.min_timestamp <= metadata.max_timestamp <= last:
            made[name] = identity
        elif meet(metadata.covers, covered):
            unclear = True
    if sources_left == len(sources) and not made and not unclear:
        return Descent(none_of_it=True)
    nowhere_to_be_seen = bool(new) and not (made or covered)
    return Descent(made, unclear=unclear or nowhere_to_be_seen, certain=whole)
