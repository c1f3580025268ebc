"""Pages use the words that other products use."""

from __future__ import annotations

import re
from pathlib import Path

import holdfast

ODD = (
    "The same again", ">turned {{", ">Loops<", "Put out", "What it said", "Ways to look", "Deaths",
    "That doesn't fit", "Tell RMS", "Not for you", "Not just now",
)  # fmt: skip


def test_no_page_has_a_word_of_our_own_where_there_is_a_usual_one() -> None:
    sources = Path(holdfast.__file__).parent
    pages = [page for pattern in ("**/*.html", "**/*.js") for page in sources.glob(pattern)]
    assert pages
    found = [(page.name, odd) for page in pages for odd in ODD if re.search(re.escape(odd), page.read_text())]
    assert found == []
