"""Texts from outside can be shown anywhere: they drive no terminal, fit on a line, and have an end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep_tasks.errors import BadValue
from sweep_tasks.texts import LONGEST_ID, MOST_SHOWN, checked_id, one_line, printable, printable_lines, without_controls

CLEAR_SCREEN, CSI, RIGHT_TO_LEFT, ISOLATE, HALF = "\x1b[2J", "\x9b2J", "\u202e", "\u2066", "\ud83d"
CONTROLS = [CLEAR_SCREEN, CSI, RIGHT_TO_LEFT, ISOLATE, HALF, "\x00", "\x07", "\x08", "\x7f", "\u200f", "\u061c"]


@pytest.mark.parametrize("control", CONTROLS)
def test_a_control_character_is_written_out(control: str) -> None:
    shown = printable(f"a{control}b")
    assert shown.isprintable()
    assert shown.isascii()
    assert f"{ord(control[0]):02x}" in shown


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\t", "\v", "\x1c", "\x85", "\u2028", "\n\t\n"])
def test_tabs_and_line_breaks_are_a_space(line_break: str) -> None:
    assert printable(f"a{line_break}b") == "a b"
    assert one_line("reason", f" a{line_break}b ") == "a b"


@pytest.mark.parametrize("text", ["", "plain", "naïve – 読む", "1\u202f234", "👩\u200d💻", "[bold] <b> &"])
def test_usual_text_is_shown_unchanged(text: str) -> None:
    assert printable(text) == text
    assert printable_lines(text) == text
    assert without_controls("id", text) == text


def test_what_is_too_long_is_cut_and_shows_it() -> None:
    assert printable("x" * MOST_SHOWN) == "x" * MOST_SHOWN
    for text in ("x" * (MOST_SHOWN + 1), "\x1b" * MOST_SHOWN, "x" * 10_000_000):
        shown = printable(text)
        assert len(shown) == MOST_SHOWN
        assert shown.endswith("…")
    assert printable("abcdef", most=4) == "abc…"


def test_lines_stay_lines_and_are_not_cut() -> None:
    assert printable_lines(f"a\n{CLEAR_SCREEN}\n{'x' * 5_000}").split("\n") == ["a", "\\x1b[2J", "x" * 5_000]


@given(st.text(alphabet=st.characters()))
def test_any_text_becomes_one_line_that_can_be_encoded(text: str) -> None:
    shown = printable(text)
    shown.encode()
    assert len(shown.splitlines()) <= 1
    assert printable(shown) == shown


@pytest.mark.parametrize("control", CONTROLS)
def test_invalid_text_in_a_request_is_refused_by_the_name_of_its_field(control: str) -> None:
    for check in (one_line, without_controls, checked_id):
        with pytest.raises(BadValue) as refused:
            check("label", f"a{control}b")
        assert (refused.value.field, refused.value.reason) == ("label", "control_character")
        assert control not in str(refused.value)


def test_an_id_has_a_beginning_and_an_end() -> None:
    assert checked_id("id", "x" * LONGEST_ID) == "x" * LONGEST_ID
    for given_id in ("", "x" * (LONGEST_ID + 1)):
        with pytest.raises(BadValue) as refused:
            checked_id("id", given_id)
        assert (refused.value.field, refused.value.reason) == ("id", "length")
    with pytest.raises(BadValue) as refused:
        checked_id("id", "two\nlines")
    assert refused.value.reason == "control_character"
