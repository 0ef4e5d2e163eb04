"""The encodings as JSON documents, as other implementations compare them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.encoding import sized
from sweep_tasks.errors import BadValue
from sweep_tasks.queue.encoding import decoded_line, encoded_line

UNSIGNED = [
    (0, "00"), (127, "7f"), (128, "8080"), (16383, "bfff"), (16384, "c04000"), (50000, "c0c350"),
    (10**7, "e0989680"), (2**56, "ff0100000000000000"), (2**63 - 1, "ff7fffffffffffffff"),
]  # fmt: skip
SIGNED = [
    (0, "80"), (1, "81"), (-1, "7f"), (63, "bf"), (64, "c040"), (-64, "40"), (-65, "3fbf"), (99999, "e1869f"),
    (2**63 - 1, "ffc07fffffffffffffff"), (-(2**63), "003f8000000000000000"),
]  # fmt: skip
ROW = {"partition": 0, "strategy": "thorough", "dedicated": False, "shard": 0, "dedicated_row": 0}
VECTORS: list[tuple[dict[str, Any], str]] = [
    *(({"kind": "var_long", "value": value}, encoded) for value, encoded in UNSIGNED),
    *(({"kind": "var_signed_long", "value": value}, encoded) for value, encoded in SIGNED),
    *(({"kind": "progress_value", "value": value}, encoded) for value, encoded in UNSIGNED),
    *(({"kind": "timestamps_column", "fine": value}, encoded) for value, encoded in UNSIGNED),
    (
        {"kind": "metadata", "strategy": "conservative", "dedicated": True, "shard": 200, "dedicated_row": 31},
        "f21f0000",
    ),
    ({"kind": "cells_row", **ROW}, "bdf460ff3e17b53a0000000000"),
    ({"kind": "cells_column", "modulus": 0, "write_index": -64}, "0040"),
    ({"kind": "timestamps_row", "shard": 0, "coarse": 0, "strategy": "thorough"}, "c610abe56eff5cb5000000"),
    ({"kind": "progress_row", "shard": -3, "strategy": "thorough"}, "039bad5f3c7aa7f57d00"),
    ({"kind": "write", "table_id": 1, "row": "00", "column": "ff", "tombstone": False}, "0101010001ff00"),
]


@pytest.mark.parametrize(("document", "encoded"), VECTORS)
def test_an_object_becomes_its_bytes(document: dict[str, Any], encoded: str) -> None:
    assert encoded_line(document) == {"hex": encoded}


@pytest.mark.parametrize(("document", "encoded"), VECTORS)
def test_bytes_become_their_object(document: dict[str, Any], encoded: str) -> None:
    assert decoded_line({"kind": document["kind"], "hex": encoded}) == document


def test_rows_of_the_queue_that_atlasdb_keeps_of_unswept_tables_are_read() -> None:
    row = {"shard": 0, "coarse": 0, "strategy": "nothing"}
    assert decoded_line({"kind": "timestamps_row", "hex": "c610abe56eff5cb5000002"}) == {"kind": "timestamps_row"} | row
    metadata = {"strategy": "nothing", "dedicated": False, "shard": 0, "dedicated_row": 0}
    assert decoded_line({"kind": "metadata", "hex": "80008000"}) == {"kind": "metadata"} | metadata


@given(
    st.sampled_from(["conservative", "thorough"]),
    st.booleans(),
    st.integers(0, 255),
    st.integers(0, 63),
    st.integers(0, 2**63 - 1),
)
def test_any_row_is_read_back(strategy: str, dedicated: bool, shard: int, row: int, partition: int) -> None:
    metadata = {"strategy": strategy, "dedicated": dedicated, "shard": shard, "dedicated_row": row}
    documents: list[dict[str, Any]] = [
        {"kind": "metadata", **metadata},
        {"kind": "cells_row", "partition": partition, **metadata},
        {"kind": "timestamps_row", "shard": shard, "coarse": partition, "strategy": strategy},
        {"kind": "progress_row", "shard": shard, "strategy": strategy},
    ]
    for document in documents:
        assert decoded_line({"kind": document["kind"]} | encoded_line(document)) == document


def test_an_older_write_is_shown_with_the_name_of_its_table() -> None:
    value = b"\x00" + sized(b"ns.first") + sized(b"\x0a") + sized(b"\x0b") + b"\x01"
    assert decoded_line({"kind": "write", "hex": value.hex()}) == {
        "kind": "write", "table": "ns.first", "row": "0a", "column": "0b", "tombstone": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({}, "kind"),
        ({"kind": "varlong", "value": 1}, "kind"),
        ({"kind": ["var_long"], "value": 1}, "kind"),
        ({"kind": "var_long"}, "value"),
        ({"kind": "var_long", "value": "1"}, "value"),
        ({"kind": "var_long", "value": 1.0}, "value"),
        ({"kind": "var_long", "value": True}, "value"),
        ({"kind": "var_long", "value": None}, "value"),
        ({"kind": "var_long", "value": -1}, "value"),
        ({"kind": "var_long", "value": 2**63}, "value"),
        ({"kind": "var_long", "value": 1, "extra": 2}, "extra"),
        ({"kind": "cells_row", **ROW, "strategy": "nothing"}, "strategy"),
        ({"kind": "cells_row", **ROW, "strategy": ["thorough"]}, "strategy"),
        ({"kind": "cells_row", **ROW, "dedicated": 0}, "dedicated"),
        ({"kind": "cells_row", **ROW, "shard": 256}, "shard"),
        ({"kind": "cells_row", **ROW, "dedicated_row": 64}, "dedicated_row"),
        ({"kind": "timestamps_row", "shard": -1, "coarse": 0, "strategy": "thorough"}, "shard"),
        ({"kind": "write", "table_id": 1, "row": "0", "column": "ff", "tombstone": False}, "row"),
        ({"kind": "write", "table_id": 1, "row": "00", "column": "xy", "tombstone": False}, "column"),
        ({"kind": "write", "table_id": 1, "row": "00", "column": "ff", "tombstone": "no"}, "tombstone"),
    ],
)
def test_an_invalid_object_is_refused_by_the_name_of_its_field(document: dict[str, Any], field: str) -> None:
    with pytest.raises(BadValue) as refused:
        encoded_line(document)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "document",
    [
        {"hex": "00"},
        {"kind": "var_long"},
        {"kind": "var_long", "hex": 0},
        {"kind": "var_long", "hex": "0"},
        {"kind": "var_long", "hex": "zz"},
        {"kind": "var_long", "hex": ""},
        {"kind": "var_long", "hex": "0000"},
        {"kind": "var_long", "hex": "80"},
        {"kind": "metadata", "hex": "f21f"},
        {"kind": "cells_row", "hex": "bdf460ff3e17b53b0000000000"},
        {"kind": "cells_column", "hex": "004000"},
        {"kind": "timestamps_row", "hex": "c610abe56eff5cb5000003"},
        {"kind": "timestamps_row", "hex": "c610abe56eff5cb6000000"},
        {"kind": "progress_row", "hex": "039bad5f3c7aa7f47d00"},
        {"kind": "progress_value", "hex": "0001"},
        {"kind": "write", "hex": "0201010001ff00"},
    ],
)
def test_invalid_bytes_are_refused(document: dict[str, Any]) -> None:
    with pytest.raises(BadValue):
        decoded_line(document)
