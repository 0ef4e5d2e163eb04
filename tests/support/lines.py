"""The names and values in a line of text, independent of its wording."""

from __future__ import annotations


def words_in(line: str) -> list[str]:
    """The words without punctuation, for names and values that must be shown."""
    return [word.strip(",;:()'") for word in line.split()]


def values_in(line: str) -> list[str]:
    """The words that contain a digit, in order."""
    return [word for word in words_in(line) if any(each.isdigit() for each in word)]
