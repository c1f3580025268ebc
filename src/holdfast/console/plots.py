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
# Where a chart's bars are within it, in percent: values are written at their left, times below.
_LEFT: Final = 10
_UPPER: Final = 3
_TALL: Final = 80


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
    told = ", ".join(f"{one.name} {_number(one.values[step])}" for one in series)
    hit = Markup('<rect class="hit" x="{:.1f}" y="0" width="{:.1f}" height="{}"/>').format(
        step * wide, wide, HEIGHT
    )
    return Markup("<g><title>{}: {}</title>{}{}</g>").format(label, told, hit, Markup("").join(parts))


def chart(
    series: Sequence[Series],
    labels: Sequence[str],
    *,
    id: str,
    title: str,
    ticks: Sequence[str],
    unit: str = "",
    links: Sequence[str] = (),
) -> Markup:
    """Stacked bars with axes: three values at the left, and `ticks` at even distances below.

    With `links`, each step leads to one. They are no tab stops: beside a chart there is a table with them.

    Example: `chart([Series("sent", "good", [3, 4])], ["12:00", "12:01"], id="sent", title="Sent", ticks=at)`
    """
    count = len(labels)
    totals = [sum(one.values[step] for one in series) for step in range(count)]
    peak = max(totals, default=0)
    high = _round_up(peak)
    drawn = [_step(series, step, count, high, label) for step, label in enumerate(labels)]
    if links:
        linked = Markup('<a href="{}" tabindex="-1">{}</a>')
        drawn = [linked.format(link, shape) for link, shape in zip(links, drawn, strict=True)]
    grid = Markup("").join(
        Markup('<polyline class="grid" points="0,{0:.1f} {1},{0:.1f}"/>').format(_up(value, high), WIDTH)
        for value in (0, high / 2, high)
    )
    at = f", at {labels[totals.index(peak)]}" if peak else ""
    return Markup(
        '<svg class="chart" role="{role}" aria-labelledby="{id}-title {id}-about">'
        '<title id="{id}-title">{title}</title><desc id="{id}-about">Highest: {peak}{unit}{at}.</desc>{axes}'
        '<svg x="{left}%" y="{upper}%" width="{wide}%" height="{tall}%" viewBox="0 0 {w} {h}"'
        ' preserveAspectRatio="none">{shape}</svg></svg>'
    ).format(
        role="group" if links else "img", id=id, title=title, peak=_number(peak), unit=unit, at=at,
        axes=_axes(high, ticks, unit), left=_LEFT, upper=_UPPER, wide=100 - _LEFT, tall=_TALL, w=WIDTH,
        h=HEIGHT, shape=grid + Markup("").join(drawn),
    )  # fmt: skip


def _axes(high: float, ticks: Sequence[str], unit: str) -> Markup:
    """The words of both axes; every other tick is `minor`, left out where there is little room."""
    values = [
        Markup('<text class="value" x="{}%" y="{:.1f}%">{}{}</text>').format(
            _LEFT - 1, _UPPER + _up(value, high) / HEIGHT * _TALL, _short(value), unit
        )
        for value in (0, high / 2, high)
    ]
    last = len(ticks) - 1
    times = [
        Markup('<text class="tick{}" x="{:.1f}%" y="98%">{}</text>').format(
            " first" if at == 0 else " last" if at == last else " minor" if at % 2 else "",
            _LEFT + (100 - _LEFT) * at / max(1, last), tick,
        )
        for at, tick in enumerate(ticks)
    ]  # fmt: skip
    return Markup("").join([*values, *times])


def _round_up(value: float) -> float:
    """The next of 2, 4, 6, 8, 10, 20, 40, …: half of it is a whole number too."""
    scale = 1
    while value > scale * 10:
        scale *= 10
    return next(step * scale for step in (2, 4, 6, 8, 10) if value <= step * scale)


def _number(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


def _short(value: float) -> str:
    """A number in the little room beside an axis: 2.5M, 40k, 6,000."""
    if value >= 1_000_000:
        return f"{_number(value / 1_000_000)}M"
    if value >= 10_000:
        return f"{_number(value / 1_000)}k"
    return _number(value)


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
