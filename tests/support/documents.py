"""The commands in the documentation, for tests that run them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def fenced(page: str, language: str) -> list[str]:
    """The blocks of a page in this language, in order."""
    return re.findall(rf"^```{re.escape(language)}\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
