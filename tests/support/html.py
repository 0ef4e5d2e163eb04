"""A page as a test reads it: elements by their attributes, each with its text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Self

_WITHOUT_END = {"meta", "link", "input", "br"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    inside: list[Element | str] = field(default_factory=list)

    @classmethod
    def of(cls, text: str) -> Self:
        page = cls("page")
        _Reader(page).feed(text)
        return page

    def __getitem__(self, name: str) -> str:
        return self.attributes[name]

    @property
    def text(self) -> str:
        """The text as a browser shows it."""
        return " ".join("".join(each if isinstance(each, str) else each.text for each in self.inside).split())

    def all(self, name: str, value: str | None = None) -> list[Element]:
        """The elements with this attribute, and this value if one is given, in the order of the page."""
        given = (each for each in self._below() if name in each.attributes)
        return [each for each in given if value is None or each[name] == value]

    def one(self, name: str, value: str | None = None) -> Element:
        (found,) = self.all(name, value)
        return found

    def _below(self) -> Iterator[Element]:
        for each in self.inside:
            if isinstance(each, Element):
                yield each
                yield from each._below()


class _Reader(HTMLParser):
    def __init__(self, page: Element) -> None:
        super().__init__()
        self._open = [page]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        created = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].inside.append(created)
        if tag not in _WITHOUT_END:
            self._open.append(created)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag, f"</{tag}> ends something else"

    def handle_data(self, data: str) -> None:
        self._open[-1].inside.append(data)
