"""Which new files came of a compaction."""

from __future__ import annotations

from sweep_tasks.compaction.execution import outputs_of
from sweep_tasks.sstables.files import Identity
from sweep_tasks.sstables.nodes import FileMetadata, LogInterval, joined, metadata_in
from tests.unit.compaction.scripted_node import interval
from tests.unit.sstables.answers import answer

NEW = {"new": Identity("new", "9", 5, 5)}
REPORTED = answer("sstablemetadata_with_positions.txt")


def of(*covers: LogInterval, first: int = 10, last: int = 20) -> FileMetadata:
    return FileMetadata(first, last, covers=covers)


SOURCES = [of(interval(0, 5)), of(interval(5, 9))]


def test_a_file_that_covers_all_sources_is_their_output() -> None:
    found = outputs_of(0, SOURCES, NEW, {"new": of(interval(0, 9))})
    assert (dict(found.made), found.unclear, found.certain) == (NEW, False, True)


def test_a_concurrent_flush_is_not_their_output() -> None:
    found = outputs_of(0, SOURCES, NEW, {"new": of(interval(9, 12), first=30, last=40)})
    assert (dict(found.made), found.unclear) == ({}, False)


def test_a_file_that_covers_more_is_the_output_of_a_second_compaction() -> None:
    assert outputs_of(0, SOURCES, NEW, {"new": of(interval(0, 12))}).unclear


def test_a_file_that_vanished_before_it_was_read_leaves_the_outputs_unknown() -> None:
    assert outputs_of(0, SOURCES, NEW, {"new": None}).unclear


def test_if_only_some_sources_vanish_the_outputs_are_unknown() -> None:
    assert outputs_of(1, SOURCES, NEW, {"new": of(interval(0, 9))}).unclear


def test_sources_that_stay_with_nothing_new_of_theirs_were_not_compacted() -> None:
    assert outputs_of(2, SOURCES, {}, {}).none_of_it
    assert outputs_of(2, SOURCES, NEW, {"new": of(interval(9, 12))}).none_of_it
    assert not outputs_of(2, SOURCES, NEW, {"new": of(interval(0, 9))}).none_of_it, "a reader may still hold them"


def test_files_of_other_nodes_cover_nothing_and_are_known_by_their_times_but_not_for_certain() -> None:
    sources = [of(), of()]
    found = outputs_of(0, sources, NEW, {"new": of(first=12, last=20)})
    assert (dict(found.made), found.certain) == (NEW, False)
    assert outputs_of(0, sources, NEW, {"new": of(interval(1, 2), first=1, last=20)}).unclear, (
        "it may hold them as well"
    )
    assert not outputs_of(0, sources, {}, {}).unclear, "everything was dropped"


def test_adjacent_ranges_are_merged() -> None:
    assert joined([interval(5, 9), interval(0, 5), interval(11, 12)]) == (interval(0, 9), interval(11, 12))


def test_what_a_file_covers_is_read_as_cassandra_prints_it() -> None:
    ((_, found),) = metadata_in(REPORTED)
    assert found.covers == (((17, 86), (17, 90)), ((17, 95), (18, 2)))
