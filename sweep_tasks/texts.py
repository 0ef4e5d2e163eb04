"""Make texts from outside safe to store and to show, and format durations."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from sweep_tasks.errors import BadValue

# ---------------------------------------------------------------------------------------------------------------------
# Texts that users or other programs wrote.
#
# An escape sequence in a text controls the terminal that it is printed on, and a bidirectional control character makes
# a line look like another one, in a terminal and in a browser. So both are refused on input, where the writer can
# correct them, and written out on output, because stored texts may be older than this rule or come from another
# program.
# ---------------------------------------------------------------------------------------------------------------------

MOST_SHOWN = 2_000
"""The most characters of one text on a page or in a line; our own texts are shorter."""
LONGEST_ID = 200
_CUT = "…"

_LINE_BREAKS = "\t\n\v\f\r\x1c-\x1f\x85\u2028\u2029"
_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"
_SURROGATES = "\ud800-\udfff"
"""Halves of characters: they can be neither encoded nor printed."""

_BREAK = re.compile(f"[{_LINE_BREAKS}]+")
_CONTROL = re.compile(f"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f{_BIDI}{_SURROGATES}]")


def printable(text: str, most: int = MOST_SHOWN) -> str:
    """Return the text as one line that can be shown anywhere: tabs and line breaks are spaces, other control characters
    are written out (ESC as `\\x1b`), and what is longer than `most` is cut."""
    shown = _shown(text[: most + 1])
    return shown if len(shown) <= most else f"{shown[: most - 1]}{_CUT}"


def printable_lines(text: str) -> str:
    """Return a text of several lines as it can be shown; nothing is cut."""
    return "\n".join(map(_shown, text.split("\n")))


def one_line(field: str, text: str) -> str:
    """Return the text with every run of white space as one space. Raise `BadValue` if it has control characters."""
    return without_controls(field, " ".join(text.split()))


def without_controls(field: str, text: str) -> str:
    """Return the text. Raise `BadValue` if it has control characters, line breaks among them."""
    if _CONTROL.search(text) or _BREAK.search(text):
        raise BadValue(
            field, "has control characters, which can't be shown; write it without them", reason="control_character"
        )
    return text


def checked_id(field: str, text: str) -> str:
    """Return an id that came from outside. Raise `BadValue` if it can't be one of ours."""
    if not 0 < len(text) <= LONGEST_ID:
        raise BadValue(field, f"must have 1 to {LONGEST_ID} characters", reason="length")
    return without_controls(field, text)


def _shown(line: str) -> str:
    return _CONTROL.sub(_written_out, _BREAK.sub(" ", line))


def _written_out(found: re.Match[str]) -> str:
    return found[0].encode("ascii", "backslashreplace").decode() if found[0] >= "\x80" else f"\\x{ord(found[0]):02x}"


UNREADABLE_ADDRESS = "an address that can't be parsed"


def without_secrets(url: str) -> str:
    """Return an address as it may be shown: scheme, host, port and path. A user, a password or a key is in front of the
    host or behind the path."""
    try:
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        host = None
    return f"{parts.scheme}://{host}{port}{parts.path}" if host and parts.scheme else UNREADABLE_ADDRESS


# ---------------------------------------------------------------------------------------------------------------------
# Durations for people, in one form everywhere.
# ---------------------------------------------------------------------------------------------------------------------

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def duration(seconds: float | None, most_units: int = 2) -> str:
    """Return a duration in its greatest units: 6h 10m."""
    if seconds is None:
        return "unknown"
    left, parts = int(seconds), list[str]()
    for size, name in _UNITS:
        if left >= size:
            parts.append(f"{left // size}{name}")
            left %= size
    return " ".join(parts[:most_units]) or "0s"
