"""Any output of Cassandra's tools, or of others in their place, is parsed or raises an error of ours.

A dump that the real sstabledump has printed is cut, mixed up and filled with values of all kinds, as text and as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep_tasks.diagnosis.on_disk import read_dump
from sweep_tasks.errors import BadValue, SSTableUnreadable, SweepflowError
from sweep_tasks.sstables.dump import MalformedDump, Tools, entries_of, parsed, understood
from sweep_tasks.sstables.files import Chunks, SSTable
from sweep_tasks.sstables.measuring import counted
from sweep_tasks.sstables.nodes import AnswerNotUnderstood, metadata_in
from tests.unit.sstables.answers import answer
from tests.unit.sstables.dumps import reading
from tests.unit.sstables.test_measuring import ENCODING, NOW, SSTABLE

DUMP = answer("sstabledump_of_a_swept_table.txt")
PARTITIONS: list[Any] = [json.loads(line) for line in DUMP.splitlines()]
METADATA = answer("sstablemetadata_of_three_files.txt") + answer("sstablemetadata_with_positions.txt")
CHUNKS = Chunks(100, 1_000)
HUGE = "9" * 5_000

odd_values = st.recursive(
    st.sampled_from([None, True, 0, -1, -(10**18), 10**18, 1.5, 1e308, float("inf"), float("nan"), "", "0x", HUGE, "x"])
    | st.integers()
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)
pieces = st.sampled_from(
    ["[", "]", "{", "}", '"', ",", ":", "[" * 5_000, HUGE, f'{{"rows":[{HUGE}', "\\u12", "\x00", "NaN"]
)


@st.composite
def edited(draw: st.DrawFn, original: str) -> str:
    """Cut, repeated, or with something else in it."""
    text = original
    for _ in range(draw(st.integers(1, 3))):
        start, end = sorted(draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
        put = draw(st.one_of(st.just(""), pieces, st.text(max_size=9), st.just(text[start:end] * 2)))
        text = text[:start] + put + (text[end:] if draw(st.booleans()) else text[start:])
    return text


@st.composite
def filled_otherwise(draw: st.DrawFn) -> str:
    """Valid JSON with some of its values replaced or left out."""
    partitions = json.loads(json.dumps(PARTITIONS))
    for _ in range(draw(st.integers(1, 3))):
        holder, name = draw(st.sampled_from(list(places(partitions))))
        if isinstance(holder, dict) and draw(st.booleans()):
            holder.pop(name, None)
        elif isinstance(holder, dict) or name < len(holder):
            holder[name] = draw(odd_values)
    return "\n".join(map(json.dumps, partitions))


def places(inside: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a value, with what holds it."""
    names = inside if isinstance(inside, dict) else range(len(inside)) if isinstance(inside, list) else ()
    for name in names:
        yield inside, name
        yield from places(inside[name])


texts = st.one_of(
    edited(DUMP), filled_otherwise(), st.binary(max_size=200).map(lambda raw: raw.decode(errors="replace"))
)


def test_the_dump_that_is_changed_below_is_read_as_it_is() -> None:
    found = counted(parsed(reading(DUMP)), CHUNKS, ENCODING, "nb", NOW)
    assert found.partitions == len(PARTITIONS) > 2
    assert min(found.rows, found.bounds, found.deleted_partitions) > 0


@given(texts)
@settings(max_examples=300, deadline=None)
def test_text_that_is_no_dump_is_malformed_and_nothing_else(text: str) -> None:
    with suppress(MalformedDump):
        for kind, entry in parsed(reading(text)):
            assert (type(kind), type(entry)) == (str, dict)


def refusal(work: Callable[[], object]) -> SweepflowError | None:
    """The error of ours that it ended with; another one fails the test."""
    try:
        with suppress(MalformedDump):
            work()
    except SweepflowError as error:
        return error
    return None


def check_unreadable(error: SweepflowError | None) -> None:
    if isinstance(error, BadValue):
        assert error.field == "table", "its key is not a blob"
    elif error is not None:
        assert isinstance(error, SSTableUnreadable)
        assert (error.file, error.reason) == (SSTABLE.data, "unknown_dump")
        assert error.__cause__ is None, "it may quote the data"


@given(texts)
@settings(max_examples=300, deadline=None)
def test_what_can_not_be_counted_is_unreadable_and_nothing_else(text: str) -> None:
    def count() -> None:
        with understood(SSTABLE):
            counted(parsed(reading(text)), CHUNKS, ENCODING, "nb", NOW)

    check_unreadable(refusal(count))


@given(texts)
@settings(max_examples=200, deadline=None)
def test_what_can_not_be_explained_is_unreadable_and_nothing_else(text: str) -> None:
    def explain() -> None:
        with understood(SSTABLE):
            read_dump(parsed(reading(text)), b"column", "file")

    check_unreadable(refusal(explain))


@given(edited(METADATA))
@settings(max_examples=200, deadline=None)
def test_metadata_that_is_not_understood_is_an_error_of_ours(text: str) -> None:
    error = refusal(lambda: list(metadata_in(text)))
    assert error is None or (isinstance(error, AnswerNotUnderstood) and error.tool == "sstablemetadata")


@pytest.mark.parametrize(
    "output",
    [
        b"\xff\xfe\x00",
        DUMP.encode()[: len(DUMP) // 2],
        b'{"partition": {"key": ["61"], "position": 0}, "rows": [' + b"[" * 100_000,
        b'{"partition": {"key": ["61"], "position": 0}, "rows": [{"type": "row", "position": ' + HUGE.encode() + b"}]}",
        b'{"partition": {"key": ["61"], "position": 0}, "rows": [{"no": "type"}]}',
        b'{"partition": "key"}',
    ],
)
def test_malformed_program_output_raises_the_same_error(tmp_path: Path, output: bytes) -> None:
    folder = tmp_path / "ks" / f"t-{'0' * 32}"
    folder.mkdir(parents=True)
    (folder / "nb-1-big-Data.db").write_bytes(b"x")
    (tmp_path / "output").write_bytes(output)
    with pytest.raises(SweepflowError) as refused:
        list(entries_of(SSTable.at(folder / "nb-1-big-Data.db"), Tools(("sh", "-c", f"cat {tmp_path}/output"))))
    assert isinstance(refused.value, SSTableUnreadable)
    assert refused.value.reason == "incomplete"


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("partition", "position"), -(10**18)),
        (("partition", "position"), 1e308),
        (("partition", "key"), []),
        (
            ("rows",),
            [{"type": "row", "position": 0, "deletion_info": {"marked_deleted": 1, "local_delete_time": 1e999}}],
        ),
        (("rows",), [{"type": "row", "position": 0, "liveness_info": {"tstamp": HUGE, "ttl": 1, "expires_at": "1"}}]),
    ],
)
def test_values_that_are_hard_to_parse(where: tuple[str, ...], value: Any) -> None:
    partition = json.loads(json.dumps(PARTITIONS[0]))
    holder = partition
    for name in where[:-1]:
        holder = holder[name]
    holder[where[-1]] = value
    with pytest.raises(SSTableUnreadable) as refused, understood(SSTABLE):
        counted(parsed(reading(json.dumps(partition))), CHUNKS, ENCODING, "nb", NOW)
    assert refused.value.reason == "unknown_dump"
