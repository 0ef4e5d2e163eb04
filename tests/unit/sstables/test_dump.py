"""Reading a dump piece by piece."""

from __future__ import annotations

import json
import sys
import tracemalloc
from pathlib import Path

import pytest

from sweep_tasks.errors import BadValue, SSTableGone, SSTableUnreadable
from sweep_tasks.sstables.dump import MalformedDump, Tools, entries_of, parsed
from sweep_tasks.sstables.files import SSTable
from tests.unit.sstables.dumps import Entry, bound, dead, live, partition, reading, text

TWO = [partition(0, live(20), bound("start", 7), key=b"a"), partition(60, dead(80, 7), key=b"b")]


@pytest.fixture
def sstable(tmp_path: Path) -> SSTable:
    folder = tmp_path / "ks" / f"t-{'0' * 32}"
    folder.mkdir(parents=True)
    (folder / "nb-1-big-Data.db").write_bytes(b"x")
    return SSTable.at(folder / "nb-1-big-Data.db")


def printing(script: str) -> Tools:
    """A program of ours in the place of sstabledump, to see what becomes of one that fails."""
    return Tools(sstabledump=(sys.executable, "-c", script))


def flat(partitions: list[Entry]) -> list[tuple[str, Entry]]:
    return [
        each
        for whole in partitions
        for each in [("partition", whole["partition"]), *((row["type"], row) for row in whole["rows"])]
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 10_000])
def test_the_result_does_not_depend_on_the_chunking(size: int) -> None:
    whole = text(*TWO)
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    assert list(parsed(lambda _: pieces.pop(0) if pieces else "")) == flat(TWO)


def test_one_indented_array_is_read_as_lines_are() -> None:
    assert list(parsed(reading(json.dumps(TWO, indent=2)))) == flat(TWO)


def test_text_that_resembles_structure_is_parsed_as_a_value() -> None:
    row = {**live(20), "cells": [{"name": 'x"]}', "value": '}]} , "rows" : [\\'}]}
    assert list(parsed(reading(text(partition(0, row), partition(60))))) == flat([partition(0, row), partition(60)])


@pytest.mark.parametrize("cut", range(1, len(text(TWO[0])), 13))
def test_a_truncated_dump_is_an_error(cut: int) -> None:
    with pytest.raises(MalformedDump):
        list(parsed(reading(text(TWO[0])[:cut])))


@pytest.mark.parametrize("output", ["", "Unknown argument", "[", "{}]", '{"rows":5}', '{"rows":[1]}', "[]x", "7"])
def test_what_is_not_a_dump_is_refused(output: str) -> None:
    with pytest.raises(MalformedDump):
        list(parsed(reading(output)))


def test_of_a_partition_larger_than_memory_no_more_is_held_than_a_few_rows() -> None:
    rows, value = 30_000, b"x" * 200

    def pieces() -> list[str]:
        head, tail = text(partition(0)).split("[]", 1)
        row = json.dumps(live(20, value))
        return [head, "[", *([row, ","] * (rows - 1)), row, "]", tail]

    given = pieces()
    size = sum(map(len, given))
    tracemalloc.start()
    try:
        counted = sum(1 for _ in parsed(reading(given)))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert counted == rows + 1
    assert size > 15_000_000
    assert most < 1_000_000


def test_a_value_larger_than_what_is_read_at_once_is_read_whole() -> None:
    large = partition(0, live(20, b"y" * 1_000_000), live(1_000_050))
    assert list(parsed(reading(text(large)))) == flat([large])


class TestTheProgram:
    def test_is_given_the_file_and_read_to_its_end(self, sstable: SSTable) -> None:
        script = f"import sys; assert sys.argv[1:] == [{str(sstable.data)!r}, '-t', '-l']; print({text(*TWO)!r})"
        assert list(entries_of(sstable, printing(script))) == flat(TWO)

    def test_a_missing_program_is_named(self, sstable: SSTable) -> None:
        with pytest.raises(BadValue) as refused:
            list(entries_of(sstable, Tools(("/no/such/tool",))))
        assert refused.value.field == "sstabledump"
        assert "/no/such/tool" in str(refused.value)
        assert isinstance(refused.value.__cause__, FileNotFoundError)

    def test_a_failing_program_is_reported_without_data(self, sstable: SSTable) -> None:
        complaint = "ERROR Fatal error parsing partition: 736563726574 org.x.CorruptSSTableException: secret at 5"
        script = f"import sys; print({text(*TWO)!r}); print({complaint!r}, file=sys.stderr); sys.exit(1)"
        with pytest.raises(SSTableUnreadable) as caught:
            list(entries_of(sstable, printing(script)))
        assert (caught.value.file, caught.value.reason) == (sstable.data, "CorruptSSTableException")
        assert "CorruptSSTableException" in str(caught.value)
        assert "736563726574" not in str(caught.value)
        assert "secret" not in str(caught.value)

    def test_a_program_that_stops_in_the_middle_is_a_failure(self, sstable: SSTable) -> None:
        with pytest.raises(SSTableUnreadable) as caught:
            list(entries_of(sstable, printing(f"print({text(*TWO)[:-9]!r})")))
        assert caught.value.reason == "incomplete"

    def test_a_program_that_fails_without_output_is_reported_with_its_exit_code(self, sstable: SSTable) -> None:
        with pytest.raises(SSTableUnreadable) as caught:
            list(entries_of(sstable, printing("import sys; print('not found', file=sys.stderr); sys.exit(127)")))
        assert (caught.value.file, caught.value.reason) == (sstable.data, "exit_127")
        assert "127" in str(caught.value).replace(str(sstable.data), "")

    def test_a_program_that_fails_in_the_middle_is_reported_with_its_exit_code(self, sstable: SSTable) -> None:
        with pytest.raises(SSTableUnreadable) as caught:
            list(entries_of(sstable, printing(f"import sys; print({text(*TWO)[:-9]!r}); sys.exit(3)")))
        assert caught.value.reason == "exit_3"

    def test_a_program_that_continues_with_other_output_is_not_waited_for(self, sstable: SSTable) -> None:
        with pytest.raises(SSTableUnreadable) as caught:
            list(entries_of(sstable, printing("while True: print('help')")))
        assert caught.value.reason == "incomplete"

    def test_a_failure_because_of_a_missing_file_is_reported_as_that(self, sstable: SSTable) -> None:
        script = f"import os, sys; os.unlink({str(sstable.data)!r}); sys.exit(1)"
        with pytest.raises(SSTableGone) as caught:
            list(entries_of(sstable, printing(script)))
        assert caught.value.file == sstable.data

    def test_the_program_is_ended_when_its_output_is_not_read_further(self, sstable: SSTable) -> None:
        endless = f"import sys\nprint({text(partition(0))[:-2]!r})\nwhile True: print({json.dumps(live(9)) + ','!r})"
        entries = entries_of(sstable, printing(endless))
        assert next(iter(entries))[0] == "partition"
        entries.close()  # type: ignore[attr-defined]  # returns only when the program has ended
