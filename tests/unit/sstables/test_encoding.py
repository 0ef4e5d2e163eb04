"""How many bytes an entry takes; a real Cassandra is asked in tests/cassandra."""

from __future__ import annotations

from pathlib import Path
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.errors import SSTableGone, SSTableUnreadable
from sweep_tasks.sstables.dump import Encoding, encoding_of, head, read_vint, vint
from sweep_tasks.sstables.files import SSTable
from tests.unit.sstables.dumps import bound, boundary

EPOCH_S = 1_442_880_000


def stored(number: int) -> bytes:
    """As Cassandra writes an unsigned number of variable length."""
    size = vint(number)
    if size == 9:
        return b"\xff" + number.to_bytes(8)
    ones = (0xFF << (9 - size)) & 0xFF
    raw = number.to_bytes(size)
    return bytes([raw[0] | ones]) + raw[1:]


def statistics(min_timestamp: int, min_deletion_s: int) -> bytes:
    header = stored((min_timestamp - EPOCH_S * 1_000_000) % 2**64) + stored((min_deletion_s - EPOCH_S) % 2**64)
    return pack(">iiiiiii", 2, 0, 2, 28, 3, 32, 0) + b"....."[:4] + header + b"\0\0\0\0"


@pytest.fixture
def sstable(tmp_path: Path) -> SSTable:
    folder = tmp_path / "ks" / f"t-{'0' * 32}"
    folder.mkdir(parents=True)
    (folder / "oa-1-big-Data.db").touch()
    return SSTable.at(folder / "oa-1-big-Data.db")


@pytest.mark.parametrize(
    ("number", "size"),
    [(0, 1), (127, 1), (128, 2), (2**14 - 1, 2), (2**14, 3), (2**56 - 1, 8), (2**56, 9), (2**64 - 1, 9)],
)
def test_a_number_takes_as_few_bytes_as_it_needs(number: int, size: int) -> None:
    assert vint(number) == size


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_a_number_is_read_back_from_amid_others(number: int, before: bytes, after: bytes) -> None:
    data = before + stored(number) + after
    assert read_vint(data, len(before)) == (number, len(before) + vint(number))


@pytest.mark.parametrize("times", [(17, EPOCH_S + 5), (EPOCH_S * 1_000_000 + 9, EPOCH_S), (-5, 7)])
def test_the_least_times_of_a_file_are_in_its_statistics(sstable: SSTable, times: tuple[int, int]) -> None:
    sstable.component("Statistics.db").write_bytes(statistics(*times))
    assert encoding_of(sstable) == Encoding(*times)


@pytest.mark.parametrize("content", [b"", pack(">ii", 1, 0), pack(">iiii", 1, 0, 2, 16), statistics(5, 5)[:36]])
def test_damaged_statistics_are_refused(sstable: SSTable, content: bytes) -> None:
    sstable.component("Statistics.db").write_bytes(content)
    with pytest.raises(SSTableUnreadable) as refused:
        encoding_of(sstable)
    assert (refused.value.file, refused.value.reason) == (sstable.data, "bad_statistics")


def test_missing_statistics_are_distinguished_from_a_missing_file(sstable: SSTable) -> None:
    with pytest.raises(SSTableUnreadable) as refused:
        encoding_of(sstable)
    assert (refused.value.file, refused.value.reason) == (sstable.data, "no_statistics")
    sstable.data.unlink()
    with pytest.raises(SSTableGone):
        encoding_of(sstable)


def test_a_bound_is_its_clustering_and_its_times_in_as_few_bytes_as_they_need() -> None:
    encoding = Encoding(min_timestamp=100, min_deletion_s=700)
    frame, clustering, sizes = 5, 1 + 3 + 8, 2
    assert encoding.marker(bound("start", 700), 30) == frame + clustering + sizes + 2
    assert encoding.marker(bound("start", 700 + 128), 30) == frame + clustering + sizes + 3
    assert encoding.marker(bound("start", 700), 128) == frame + clustering + sizes + 3
    assert encoding.marker(boundary(700, 700), 30) == frame + clustering + sizes + 4


def test_a_partition_says_when_it_was_deleted_and_since_cassandra_5_briefly_that_it_was_not() -> None:
    assert head("nb", 10, is_deleted=False) == head("oa", 10, is_deleted=True) == head("da", 10, is_deleted=True) == 24
    assert head("oa", 10, is_deleted=False) == head("da", 10, is_deleted=False) == 13
