"""The console's colours: enough contrast for every reader, by day and by night."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import holdfast.console


def _tokens(text: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", text))


def _light(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_light(one), _light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_what_they_stand_on(scheme: str) -> None:
    text = (Path(holdfast.console.__file__).parent / "assets" / "tokens.css").read_text()
    light, _, dark = text.partition("@media")
    tokens = _tokens(light) | (_tokens(dark) if scheme == "dark" else {})
    pairs = [
        ("ink", "ground"),
        ("ink", "surface"),
        ("soft", "surface"),
        ("soft", "ground"),
        ("accent", "surface"),
    ]
    pairs += [("accent-ink", "accent"), ("accent", "accent-wash")]
    pairs += [(tone, f"{tone}-wash") for tone in ("good", "wait", "warn", "bad", "calm")]
    poor = {pair: round(_contrast(tokens[pair[0]], tokens[pair[1]]), 2) for pair in pairs}
    assert {pair: ratio for pair, ratio in poor.items() if ratio < 4.5} == {}
