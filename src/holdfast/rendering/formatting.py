"""How the console says times, spans, numbers and bodies: short, and whole on a closer look."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final

from markupsafe import Markup

from holdfast.plural import plural

# A unit, and half of the one below: from there on the smaller one would be rounded up to a whole larger one.
_STEPS: Final = (
    (86_400 * 365, "y", 43_200),
    (86_400, "d", 1_800),
    (3_600, "h", 30),
    (60, "min", 0.5),
    (1, "s", 0.0005),
)
# What a state means to whoever looks: the colour of its mark, never the only sign of it.
_TONES: Final = {
    "good": (
        "ok", "delivered", "done", "active", "watched", "completed", "running", "sound", "on", "connected",
        "granted",
    ),
    "wait": ("pending", "sending", "processing", "opening", "retrying", "skipped", "ending"),
    "warn": ("degraded", "failed", "paused", "attention", "expired", "missed", "not granted", "warning"),
    "bad": ("critical", "dead", "dlq", "parked", "disabled", "broken", "needs_reauth", "reached"),
}  # fmt: skip
_TONE_OF: Final = {state: tone for tone, states in _TONES.items() for state in states}


def tone(state: str) -> str:
    """`good`, `wait`, `warn`, `bad`, or `calm` for what is none of them."""
    return _TONE_OF.get(state, "calm")


def span(seconds: float) -> str:
    """A length of time in one unit: `span(7300)` gives `2 h`."""
    whole = abs(seconds)
    for size, unit, slack in _STEPS:
        if whole >= size - slack:
            return f"{whole / size:.0f} {unit}"
    return f"{whole * 1000:.0f} ms" if whole else "0 s"


def ago(at: datetime | None, now: datetime) -> Markup:
    """A moment as people say it, with the exact time for machines and on hover."""
    if at is None:
        return Markup('<span class="none">–</span>')
    left_s = (at - now).total_seconds()
    said = f"in {span(left_s)}" if left_s > 0 else f"{span(left_s)} ago"
    exact = at.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        exact.isoformat(), exact.strftime("%Y-%m-%d %H:%M:%S UTC"), "now" if abs(left_s) < 1 else said
    )


def number(value: float) -> str:
    """A number with its thousands apart: `12,345`."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def body(raw: bytes | str) -> str:
    """A payload as text: JSON is laid out, other text stays, bytes are told by their size and first part."""
    try:
        text = raw if isinstance(raw, str) else raw.decode()
    except UnicodeDecodeError:
        assert isinstance(raw, bytes)
        return f"{plural(len(raw), 'byte')}, not text: {raw[:64].hex(' ')}{' …' if len(raw) > 64 else ''}"
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def pretty(value: Any) -> str:
    """A value as laid-out JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
