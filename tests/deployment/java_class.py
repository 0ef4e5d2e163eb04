"""The fields of a compiled Java class, read from its jar: what a server knows, without starting it.

Only what is needed of the class file format (chapter 4 of the Java Virtual Machine Specification).
"""

from __future__ import annotations

import struct
import zipfile
from io import BytesIO
from pathlib import Path

_UTF8 = 1
_BYTES_BEHIND_TAG = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4}
_TAKES_TWO_PLACES = (5, 6)
_STATIC = 0x0008


def fields_of(jar: Path, name: str) -> set[str]:
    """Names of the fields that an object of the class has of its own."""
    with zipfile.ZipFile(jar) as opened:
        data = BytesIO(opened.read(name.replace(".", "/") + ".class"))
    if _numbers(data, ">IHH")[0] != 0xCAFEBABE:
        raise ValueError(f"{name} is no class file")
    words = _words(data)
    _, _, _, interfaces = _numbers(data, ">HHHH")
    data.seek(2 * interfaces, 1)
    return {words[name] for flags, name in _members(data) if not flags & _STATIC}


def has_class(jar: Path, name: str) -> bool:
    with zipfile.ZipFile(jar) as opened:
        return name.replace(".", "/") + ".class" in opened.namelist()


def _words(data: BytesIO) -> dict[int, str]:
    """The texts of the constant pool, by their place in it."""
    words: dict[int, str] = {}
    (size,) = _numbers(data, ">H")
    place = 1
    while place < size:
        (tag,) = _numbers(data, ">B")
        if tag == _UTF8:
            words[place] = data.read(*_numbers(data, ">H")).decode(errors="replace")
        else:
            data.seek(_BYTES_BEHIND_TAG[tag], 1)
        place += 2 if tag in _TAKES_TWO_PLACES else 1
    return words


def _members(data: BytesIO) -> list[tuple[int, int]]:
    found = []
    (number,) = _numbers(data, ">H")
    for _ in range(number):
        flags, name, _, attributes = _numbers(data, ">HHHH")
        found.append((flags, name))
        for _ in range(attributes):
            _, length = _numbers(data, ">HI")
            data.seek(length, 1)
    return found


def _numbers(data: BytesIO, form: str) -> tuple[int, ...]:
    return struct.unpack(form, data.read(struct.calcsize(form)))
