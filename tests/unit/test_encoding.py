"""Integers as keys: the bytes of AtlasDB, and their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.encoding import (
    read_sized,
    read_var_long,
    read_var_signed_long,
    sized,
    var_long,
    var_signed_long,
)
from sweep_tasks.errors import BadValue

UNSIGNED = [
    (0, "00"), (127, "7f"), (128, "8080"), (16383, "bfff"), (16384, "c04000"), (50000, "c0c350"),
    (10**7, "e0989680"), (2**56, "ff0100000000000000"), (2**63 - 1, "ff7fffffffffffffff"),
]  # fmt: skip
SIGNED = [
    (0, "80"), (1, "81"), (-1, "7f"), (63, "bf"), (64, "c040"), (-64, "40"), (-65, "3fbf"), (99999, "e1869f"),
    (2**63 - 1, "ffc07fffffffffffffff"), (-(2**63), "003f8000000000000000"),
]  # fmt: skip

longs = st.integers(0, 2**63 - 1)
signed_longs = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(("value", "encoded"), UNSIGNED)
def test_unsigned_integers_have_atlasdbs_bytes(value: int, encoded: str) -> None:
    assert var_long(value).hex() == encoded
    assert read_var_long(bytes.fromhex(encoded)) == (value, len(encoded) // 2)


@pytest.mark.parametrize(("value", "encoded"), SIGNED)
def test_signed_integers_have_atlasdbs_bytes(value: int, encoded: str) -> None:
    assert var_signed_long(value).hex() == encoded
    assert read_var_signed_long(bytes.fromhex(encoded)) == (value, len(encoded) // 2)


@given(longs, longs)
def test_unsigned_bytes_sort_as_the_integers_do(a: int, b: int) -> None:
    assert (var_long(a) < var_long(b)) == (a < b)


@given(signed_longs, signed_longs)
def test_signed_bytes_sort_as_the_integers_do(a: int, b: int) -> None:
    assert (var_signed_long(a) < var_signed_long(b)) == (a < b)


@given(longs, signed_longs, st.binary(max_size=300), st.binary())
def test_what_is_written_one_after_the_other_is_read_back(a: int, b: int, data: bytes, rest: bytes) -> None:
    encoded = var_long(a) + var_signed_long(b) + sized(data) + rest
    first, at = read_var_long(encoded)
    second, at = read_var_signed_long(encoded, at)
    third, at = read_sized(encoded, at)
    assert (first, second, third, encoded[at:]) == (a, b, data, rest)


@pytest.mark.parametrize("value", [-1, 2**63])
def test_what_does_not_fit_is_refused(value: int) -> None:
    with pytest.raises(BadValue) as refused:
        var_long(value)
    assert (refused.value.field, str(value) in str(refused.value)) == ("value", True)


@pytest.mark.parametrize("value", [-(2**63) - 1, 2**63])
def test_what_does_not_fit_with_a_sign_is_refused(value: int) -> None:
    with pytest.raises(BadValue) as refused:
        var_signed_long(value)
    assert (refused.value.field, str(value) in str(refused.value)) == ("value", True)


@pytest.mark.parametrize("data", ["", "80", "ff", "ff80", "ffffffffffffffffff", "c040"])
def test_cut_off_or_impossible_unsigned_bytes_are_refused(data: str) -> None:
    with pytest.raises(BadValue) as refused:
        read_var_long(bytes.fromhex(data))
    assert refused.value.field == "bytes"


@pytest.mark.parametrize("data", ["", "c0", "00", "ffff", "fffffffffffffffffffffff0", "0000"])
def test_cut_off_or_impossible_signed_bytes_are_refused(data: str) -> None:
    with pytest.raises(BadValue) as refused:
        read_var_signed_long(bytes.fromhex(data))
    assert refused.value.field == "bytes"


@given(st.binary(max_size=30))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for read in (read_var_long, read_var_signed_long, read_sized):
        try:
            _, at = read(data)
            assert at <= len(data)
        except BadValue as error:
            assert error.field == "bytes"  # noqa: PT017
