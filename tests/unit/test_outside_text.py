"""Text from outside is stored without what breaks SQL, terminals or pages, and URLs without their secrets."""

from __future__ import annotations

import sys

import pytest

from holdfast.outside_text import clean_text, clean_value, error_text, mask_urls


def test_control_characters_and_lone_surrogates_are_replaced_and_the_text_is_cut() -> None:
    assert clean_text(b"a\x00b\x1b[31m\xff\tc\n", characters_max=100) == "a\ufffdb\ufffd[31m\ufffd\tc\n"
    assert clean_text("x\ud800y" * 100, characters_max=3) == "x\ufffdy"
    assert error_text(ValueError("no\x00"), characters_max=100) == "no\ufffd"
    assert error_text(TimeoutError(), characters_max=100) == "TimeoutError"


def test_every_unfit_character_is_replaced() -> None:
    kept = {one for one in map(chr, range(sys.maxunicode + 1)) if clean_text(one, characters_max=1) == one}
    unfit = {*map(chr, range(0x20)), "\x7f", *map(chr, range(0xD800, 0xE000))} - {"\t", "\n", "\r"}
    assert kept == {*map(chr, range(sys.maxunicode + 1))} - unfit


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("https://a.example/hook?sig=abc&v=1", "https://a.example/hook?sig=***&v=***"),
        ("https://a.example/hook?abc", "https://a.example/hook?***"),
        ("https://ann:pw@a.example/hook", "https://***@a.example/hook"),
        ("sent to https://a.example/?t=abc, twice", "sent to https://a.example/?t=*** twice"),
        ("https://a.example/hook#part", "https://a.example/hook#part"),
        ("is a = b? yes", "is a = b? yes"),
    ],
)
def test_what_a_url_may_hide_is_masked(text: str, masked: str) -> None:
    assert mask_urls(text) == masked


def test_a_value_is_cleaned_all_through() -> None:
    value = {"url": "https://a.example/?k=v", "n": [1, None, ("b\x00",)], "c\x00": True}
    assert clean_value(value, characters_max=50) == {
        "url": "https://a.example/?k=***", "n": [1, None, ["b\ufffd"]], "c\ufffd": True,
    }  # fmt: skip
