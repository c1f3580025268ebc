"""Small plots drawn here as SVG: shapes with classes, never styles, that always say themselves in words.

Colours come from the classes `tone-good`, `tone-warn`, … of the stylesheet, so plots follow light and dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from markupsafe import Markup, escape

WIDTH: Final = 600
HEIGHT: Final = 120
_GAP: Final = 0.2


class Series(msgspec.Struct, frozen=True):
    """Values of one kind over the same steps as its neighbours'."""

    name: str
    tone: str
    values: Sequence[float]


def bars(
    series: Sequence[Series],
    labels: Sequence[str],
    *,
    said: str,
    top: float | None = None,
    beside: Sequence[float] = (),
) -> Markup:
    """Stacked bars, one a step; hovering over a step tells its values.

    They reach up to `top`, the highest of them unless given. `beside` is what they are held against: a
    dashed line through the middle of the steps.

    Example: `bars([Series("delivered", "good", [3, 4])], ["12:00", "12:01"], said="Deliveries a minute")`
    """
    count = max((len(one.values) for one in series), default=0)
    totals = [sum(one.values[step] for one in series) for step in range(count)]
    high = top or max([*totals, 1])
    drawn = [_step(series, step, count, high, labels[step]) for step in range(count)]
    if beside:
        path = " ".join(
            f"{(step + 0.5) * WIDTH / count:.1f},{_up(v, high):.1f}" for step, v in enumerate(beside)
        )
        drawn.append(Markup('<polyline class="beside" points="{}"/>').format(path))
    peak = max(totals, default=0)
    return _svg("plot bars", Markup("").join(drawn), said=f"{said}. Highest: {peak:,.0f}.")


def _up(value: float, top: float) -> float:
    """How far down from the upper edge a value is drawn."""
    return HEIGHT - value / top * (HEIGHT - 4)


def _step(series: Sequence[Series], step: int, count: int, top: float, label: str) -> Markup:
    wide = WIDTH / count
    parts, floor = [], float(HEIGHT)
    for one in series:
        tall = one.values[step] / top * (HEIGHT - 4)
        if tall <= 0:
            continue
        floor -= tall
        parts.append(
            Markup('<rect class="tone-{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
                one.tone, step * wide + wide * _GAP / 2, floor, wide * (1 - _GAP), tall
            )
        )
    told = ", ".join(f"{one.name} {one.values[step]:,.0f}" for one in series)
    hit = Markup('<rect class="hit" x="{:.1f}" y="0" width="{:.1f}" height="{}"/>').format(
        step * wide, wide, HEIGHT
    )
    return Markup("<g><title>{}: {}</title>{}{}</g>").format(label, told, hit, Markup("").join(parts))


def line(
    values: Sequence[float],
    *,
    tone: str = "accent",
    said: str,
    unit: str = "",
    top: float | None = None,
    levels: Mapping[str, float] | None = None,
) -> Markup:
    """A line with the area under it, from nothing to `top` (its highest value unless given).

    `levels` are drawn across it, each in the tone that names it.
    """
    high = top or max([*values, 1e-9])
    wide = WIDTH / max(1, len(values) - 1)
    points = [(step * wide, _level(value, high)) for step, value in enumerate(values)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    across = Markup("").join(
        Markup('<polyline class="level tone-{0}" points="0,{1:.1f} {2},{1:.1f}"/>').format(
            name, _level(value, high), WIDTH
        )
        for name, value in (levels or {}).items()
    )
    shape = across + Markup(
        '<polygon class="area tone-{0}" points="0,{1} {2} {3},{1}"/><polyline class="tone-{0}" points="{2}"/>'
    ).format(tone, HEIGHT, path, WIDTH)
    highest = max(values, default=0)
    return _svg(
        "plot line", shape, said=f"{said}. Highest: {highest:,.1f}{unit}, now {values[-1]:,.1f}{unit}."
    )


def _level(value: float, top: float) -> float:
    return HEIGHT - 2 - value / top * (HEIGHT - 8)


def sparkline(
    values: Sequence[float], *, tone: str = "accent", said: str, top: float | None = None
) -> Markup:
    """A line as high as a word; lines beside one another have the same `top`."""
    high = top or max([*values, 1e-9])
    wide = 100 / max(1, len(values) - 1)
    path = " ".join(f"{step * wide:.1f},{19 - value / high * 18:.1f}" for step, value in enumerate(values))
    shape = Markup(f'<polyline class="tone-{escape(tone)}" points="{path}"/>')
    return _svg("spark", shape, said=said, size=(100, 20))


def meter(share: float, *, tone: str, said: str) -> Markup:
    """How much of something is left or used, from 0 to 1."""
    full = max(0.0, min(1.0, share)) * 100
    # A page may hold hundreds of these, and `Markup.format` takes ten times as long.
    shape = Markup(
        '<rect class="rail" width="100" height="8"/>'
        f'<rect class="tone-{escape(tone)}" width="{full:.1f}" height="8"/>'
    )
    return _svg("meter", shape, said=said, size=(100, 8))


def stretch(start: float, end: float, *, tone: str, said: str) -> Markup:
    """A part of a longer time, both ends from 0 to 1; what took no time is still to be seen.

    Example: `stretch(0.25, 0.5, tone="good", said="code, 3 s")`
    """
    left = max(0.0, min(1.0, start)) * 98
    wide = max(2.0 if end > start or start > 0 else 0.0, min(1.0, end) * 100 - left)
    shape = Markup('<rect class="rail" width="100" height="8"/>') + Markup(
        '<rect class="tone-{}" x="{:.1f}" width="{:.1f}" height="8"><title>{}</title></rect>'
    ).format(tone, left, wide, said)
    return _svg("meter stretch", shape, said=said, size=(100, 8))


def split(parts: Sequence[Series], *, said: str) -> Markup:
    """One bar shared among parts, each with its own tone; the words are beside it.

    Example: `split([Series("high", "bad", [3]), Series("low", "good", [9])], said="By risk")`
    """
    total, start, drawn = sum(sum(one.values) for one in parts) or 1.0, 0.0, []
    for one in parts:
        wide = sum(one.values) / total * 100
        told = f"{one.name} {sum(one.values):,.0f}"
        drawn.append(
            Markup(
                '<rect class="tone-{}" x="{:.2f}" width="{:.2f}" height="8"><title>{}</title></rect>'
            ).format(one.tone, start, wide, told)
        )
        start += wide
    rail = Markup('<rect class="rail" width="100" height="8"/>')
    told = ", ".join(f"{one.name} {sum(one.values):,.0f}" for one in parts)
    return _svg("meter split", rail + Markup("").join(drawn), said=f"{said}: {told}", size=(100, 8))


def _svg(kind: str, shape: Markup, *, said: str, size: tuple[int, int] = (WIDTH, HEIGHT)) -> Markup:
    return Markup(
        f'<svg class="{kind}" viewBox="0 0 {size[0]} {size[1]}" preserveAspectRatio="none" role="img"'
        f' aria-label="{escape(said)}">{shape}</svg>'
    )
