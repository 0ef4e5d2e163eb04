"""What a line for people shows, whatever the words around it."""

from __future__ import annotations


def words_in(line: str) -> list[str]:
    """Without punctuation: for names and values that must be shown."""
    return [word.strip(",;:()'") for word in line.split()]


def values_in(line: str) -> list[str]:
    """The words that hold a digit, in their order."""
    return [word for word in words_in(line) if any(each.isdigit() for each in word)]
