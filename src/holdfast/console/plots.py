"""Small plots drawn here as SVG: shapes with classes, never styles, that always say themselves in words.

Colours come from the classes `tone-good`, `tone-warn`, … of the stylesheet, so plots follow light and dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from markupsafe import Markup

WIDTH: Final = 600
HEIGHT: Final = 120
_GAP: Final = 0.2


class Series(msgspec.Struct, frozen=True):
    """Values of one kind over the same steps as its neighbours'."""

    name: str
    tone: str
    values: Sequence[float]


def bars(series: Sequence[Series], labels: Sequence[str], *, said: str) -> Markup:
    """Stacked bars, one a step; hovering over a step tells its values.

    Example: `bars([Series("delivered", "good", [3, 4])], ["12:00", "12:01"], said="Deliveries a minute")`
    """
    count = max((len(one.values) for one in series), default=0)
    totals = [sum(one.values[step] for one in series) for step in range(count)]
    top = max([*totals, 1])
    drawn = [_step(series, step, count, top, labels[step]) for step in range(count)]
    peak = max(totals, default=0)
    return _svg("plot bars", Markup("").join(drawn), said=f"{said}. Highest: {peak:,.0f}.")


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


def line(values: Sequence[float], *, tone: str = "accent", said: str, unit: str = "") -> Markup:
    """A line with the area under it, from nothing to its highest value."""
    top = max([*values, 1e-9])
    wide = WIDTH / max(1, len(values) - 1)
    points = [(step * wide, HEIGHT - 2 - value / top * (HEIGHT - 8)) for step, value in enumerate(values)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    shape = Markup(
        '<polygon class="area tone-{0}" points="0,{1} {2} {3},{1}"/><polyline class="tone-{0}" points="{2}"/>'
    ).format(tone, HEIGHT, path, WIDTH)
    highest = max(values, default=0)
    return _svg(
        "plot line", shape, said=f"{said}. Highest: {highest:,.1f}{unit}, now {values[-1]:,.1f}{unit}."
    )


def sparkline(values: Sequence[float], *, tone: str = "accent", said: str) -> Markup:
    """A line as high as a word."""
    top = max([*values, 1e-9])
    wide = 100 / max(1, len(values) - 1)
    path = " ".join(f"{step * wide:.1f},{19 - value / top * 18:.1f}" for step, value in enumerate(values))
    shape = Markup('<polyline class="tone-{}" points="{}"/>').format(tone, path)
    return _svg("spark", shape, said=said, size=(100, 20))


def meter(share: float, *, tone: str, said: str) -> Markup:
    """How much of something is left or used, from 0 to 1."""
    full = max(0.0, min(1.0, share)) * 100
    shape = Markup(
        '<rect class="rail" width="100" height="8"/><rect class="tone-{}" width="{:.1f}" height="8"/>'
    )
    return _svg("meter", shape.format(tone, full), said=said, size=(100, 8))


def _svg(kind: str, shape: Markup, *, said: str, size: tuple[int, int] = (WIDTH, HEIGHT)) -> Markup:
    return Markup(
        '<svg class="{}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(kind, *size, said, shape)
