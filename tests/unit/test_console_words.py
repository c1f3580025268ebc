"""How the console says things."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.console.plots import Series, bars, line, meter, sparkline
from holdfast.rendering import formatting

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"), (0.25, "250 ms"), (1, "1 s"), (59.4, "59 s"), (59.6, "1 min"), (90, "2 min"),
        (59.4 * 60, "59 min"), (59.6 * 60, "1 h"), (7_300, "2 h"), (23.8 * 3_600, "1 d"),
        (364.9 * 86_400, "1 y"), (-5, "5 s"),
    ],
)  # fmt: skip
def test_a_span_is_one_number_and_one_unit(seconds: float, said: str) -> None:
    assert formatting.span(seconds) == said


def test_a_moment_is_said_from_now_on() -> None:
    assert ">5 min ago<" in formatting.ago(NOW - timedelta(minutes=5), NOW)
    assert ">in 2 h<" in formatting.ago(NOW + timedelta(hours=2), NOW)
    assert ">now<" in formatting.ago(NOW, NOW)
    assert 'datetime="2026-11-15T12:00:00+00:00"' in formatting.ago(NOW, NOW)
    assert "none" in formatting.ago(None, NOW)


def test_a_body_is_laid_out_when_it_is_json_and_left_alone_when_not() -> None:
    assert formatting.body(b'{"a":"\xc3\xa4"}') == '{\n  "a": "ä"\n}'
    assert formatting.body("<b>") == "<b>"
    assert formatting.body(b"\xff\x00") == "2 bytes, not text: ff 00"
    assert formatting.body("[" * 100_000).startswith("[")


def test_an_unknown_state_has_a_calm_tone() -> None:
    assert (formatting.tone("dead"), formatting.tone("delivered"), formatting.tone("whatever")) == (
        "bad",
        "good",
        "calm",
    )


def test_plots_say_themselves_in_words_and_escape_what_they_are_told() -> None:
    hostile = '"><script>'
    drawn = [
        bars([Series(hostile, "good", [1, 3]), Series("b", "bad", [0, 1])], [hostile, "12:01"], said=hostile),
        line([0, 2, 1], said=hostile, unit=" s"),
        sparkline([1, 2], said=hostile),
        meter(2.5, tone="warn", said=hostile),
    ]
    for plot in drawn:
        assert 'role="img" aria-label="&#34;&gt;&lt;script&gt;' in plot
        assert "<script>" not in plot
        assert "style=" not in plot
    assert "Highest: 4." in drawn[0]
    assert "now 1.0 s" in drawn[1]
    assert 'width="100.0"' in drawn[3]


def test_plots_of_nothing_are_drawn_too() -> None:
    assert "Highest: 0." in bars([], [], said="none")
    assert "Highest: 0." in bars([Series("a", "good", [])], [], said="none")
