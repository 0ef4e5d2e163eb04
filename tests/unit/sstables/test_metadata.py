"""What Cassandra keeps beside a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep_tasks.sstables.nodes import AnswerNotUnderstood, FileMetadata, metadata_in
from tests.unit.sstables.answers import answer

OUTPUT = answer("sstablemetadata_of_three_files.txt")


def test_all_files_of_an_answer_are_distinguished() -> None:
    assert dict(metadata_in(OUTPUT)) == {
        Path("/data/ks/t-1/nb-1-big-Data.db"): FileMetadata(-1, 1001, level=3, repaired=True),
        Path("/data/ks/t-1/nb-2-big-Data.db"): FileMetadata(20, 1_794_900_862_000_000, pending_repair=True),
    }


@pytest.mark.parametrize(
    "left_out",
    ["Minimum timestamp: 01/01/1970 00:00:00 (20)\n", "SSTable Level: 0\n", "Repaired at: 0\n", "Pending repair: --\n"],
)
def test_a_partly_described_file_is_an_error_and_not_a_missing_file(left_out: str) -> None:
    with pytest.raises(AnswerNotUnderstood) as refused:
        dict(metadata_in(OUTPUT.replace(left_out, "")))
    assert refused.value.tool == "sstablemetadata"


def test_a_file_that_is_not_described_is_missing() -> None:
    assert Path("/data/ks/t-1/nb-9-big-Data.db") not in dict(metadata_in(OUTPUT))
    assert dict(metadata_in("")) == {}
