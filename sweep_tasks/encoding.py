"""Integers and byte strings as keys: encodings that keep their order under unsigned byte comparison.

These are AtlasDB's, byte for byte, so that a queue written there is read here. They are not protobuf varints: the
number of leading one bits tells the length, which is what keeps `127 < 128` true for the encoded bytes as well.
"""

from __future__ import annotations

from sweep_tasks.errors import BadValue

_LONG_MAX = 2**63 - 1


def var_long(value: int) -> bytes:
    """Non-negative 64-bit integers, one byte below 128 and nine at most."""
    if 0 <= value < 128:
        return _ONE_BYTE[value]
    if not 0 <= value <= _LONG_MAX:
        raise BadValue("value", f"{value} does not fit an unsigned variable-length integer (0 to {_LONG_MAX})")
    size = (value.bit_length() + 6) // 7
    return (value | _LENGTH_BITS[size]).to_bytes(size, "big")


def var_signed_long(value: int) -> bytes:
    """Any 64-bit integer; negative ones are the complement of their non-negative counterpart."""
    if not -_LONG_MAX - 1 <= value <= _LONG_MAX:
        raise BadValue("value", f"{value} does not fit a signed 64-bit integer")
    magnitude = value if value >= 0 else ~value
    size = (magnitude.bit_length() + 7) // 7
    encoded = magnitude | _SIGNED_LENGTH_BITS[size]
    if value < 0:
        encoded ^= (1 << (8 * size)) - 1
    return encoded.to_bytes(size, "big")


def read_var_long(data: bytes, at: int = 0) -> tuple[int, int]:
    """The integer at `at` and where the next component starts."""
    first = _byte(data, at)
    if first < 128:
        return first, at + 1
    size = _ones(first) + 1
    if size == 9 and _byte(data, at + 1) >= 128:
        raise BadValue("bytes", f"no variable-length integer starts at byte {at}: it is longer than nine bytes")
    value = int.from_bytes(_take(data, at, size), "big") ^ _LENGTH_BITS[size]
    return value, at + size


def stored_long(value: bytes | None, default: int = 0) -> int:
    """What a register that holds one integer says, or what its absence means."""
    return default if value is None else read_var_long(value)[0]


def read_var_signed_long(data: bytes, at: int = 0) -> tuple[int, int]:
    first = _byte(data, at)
    negative = first < 128
    ones = _ones(first ^ 0xFF if negative else first)
    if ones == 8:
        second = _byte(data, at + 1)
        ones += _ones(second ^ 0xFF if negative else second)
    if ones > 10:
        raise BadValue("bytes", f"no variable-length integer starts at byte {at}: it is longer than ten bytes")
    encoded = int.from_bytes(_take(data, at, ones), "big")
    if negative:
        encoded ^= (1 << (8 * ones)) - 1
    magnitude = encoded ^ _SIGNED_LENGTH_BITS[ones]
    return (~magnitude if negative else magnitude), at + ones


def sized(data: bytes) -> bytes:
    return var_long(len(data)) + data


def read_sized(data: bytes, at: int = 0) -> tuple[bytes, int]:
    size, start = read_var_long(data, at)
    return _take(data, start, size), start + size


def _ones(byte: int) -> int:
    """Leading one bits of a byte."""
    return 8 - (byte ^ 0xFF).bit_length()


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise BadValue("bytes", f"ends at byte {len(data)} where an integer should start")
    return data[at]


def _take(data: bytes, at: int, size: int) -> bytes:
    part = data[at : at + size]
    if len(part) != size:
        raise BadValue("bytes", f"ends at byte {len(data)}, {at + size - len(data)} short of what its length says")
    return part


_ONE_BYTE = [bytes([n]) for n in range(128)]
# By encoded size: n-1 one bits and a zero (unsigned), n one bits and a zero (signed), above the value's 7n (7n-1) bits.
_LENGTH_BITS = [0] + [((1 << (n - 1)) - 1) << (7 * n + 1) for n in range(1, 10)]
_SIGNED_LENGTH_BITS = [0] + [((1 << n) - 1) << (7 * n) for n in range(1, 11)]
