"""What a line for people shows, whatever the words around it."""

from __future__ import annotations


def values_in(line: str) -> list[str]:
    """The words that hold a digit, in their order, without punctuation."""
    words = (word.strip(",;:()'") for word in line.split())
    return [word for word in words if any(each.isdigit() for each in word)]
