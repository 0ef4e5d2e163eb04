"""Encodings of integers and byte strings as keys that keep their order under unsigned byte comparison.

They are byte-compatible with AtlasDB, so that a queue that AtlasDB wrote can be read. They are not protobuf varints:
the number of leading one bits is the length, which keeps `127 < 128` true for the encoded bytes.
"""

from __future__ import annotations

from sweep_tasks.errors import BadValue

_LONG_MAX = 2**63 - 1


def var_long(value: int) -> bytes:
    """Encode a non-negative 64-bit integer in one to nine bytes; values below 128 take one."""
    if 0 <= value < 128:
        return _ONE_BYTE[value]
    if not 0 <= value <= _LONG_MAX:
        raise BadValue("value", f"{value} does not fit an unsigned variable-length integer (0 to {_LONG_MAX})")
    size = (value.bit_length() + 6) // 7
    return (value | _LENGTH_BITS[size]).to_bytes(size, "big")


def var_signed_long(value: int) -> bytes:
    """Encode any 64-bit integer; a negative one is the complement of its non-negative counterpart."""
    if not -_LONG_MAX - 1 <= value <= _LONG_MAX:
        raise BadValue("value", f"{value} does not fit a signed 64-bit integer")
    magnitude = value if value >= 0 else ~value
    size = (magnitude.bit_length() + 7) // 7
    encoded = magnitude | _SIGNED_LENGTH_BITS[size]
    if value < 0:
        encoded ^= (1 << (8 * size)) - 1
    return encoded.to_bytes(size, "big")


def read_var_long(data: bytes, at: int = 0) -> tuple[int, int]:
    """Return the integer at `at`, and where the next component starts."""
    first = _byte(data, at)
    if first < 128:
        return first, at + 1
    size = _ones(first) + 1
    if size == 9 and _byte(data, at + 1) >= 128:
        raise BadValue("bytes", f"no variable-length integer starts at byte {at}: it is longer than nine bytes")
    value = int.from_bytes(_take(data, at, size), "big") ^ _LENGTH_BITS[size]
    return value, at + size


def stored_long(value: bytes | None, default: int = 0) -> int:
    """Decode a register with one integer; return the default if it is absent."""
    return default if value is None else read_var_long(value)[0]


def read_var_signed_long(data: bytes, at: int = 0) -> tuple[int, int]:
    """Return the signed integer at `at`, and where the next component starts."""
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
    """Prefix bytes with their length."""
    return var_long(len(data)) + data


def read_sized(data: bytes, at: int = 0) -> tuple[bytes, int]:
    size, start = read_var_long(data, at)
    return _take(data, start, size), start + size


def _ones(byte: int) -> int:
    """Count the leading one bits of a byte."""
    return 8 - (byte ^ 0xFF).bit_length()


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise BadValue("bytes", f"ends at byte {len(data)} where an integer should start")
    return data[at]


def _take(data: bytes, at: int, size: int) -> bytes:
    part = data[at : at + size]
    if len(part) != size:
        raise BadValue("bytes", f"ends at byte {len(data)}, {at + size - len(data)} bytes before its declared length")
    return part


_ONE_BYTE = [bytes([n]) for n in range(128)]
# By encoded size: n-1 one bits and a zero (unsigned), n one bits and a zero (signed), above the value's 7n (7n-1) bits.
_LENGTH_BITS = [0] + [((1 << (n - 1)) - 1) << (7 * n + 1) for n in range(1, 10)]
_SIGNED_LENGTH_BITS = [0] + [((1 << n) - 1) << (7 * n) for n in range(1, 11)]
