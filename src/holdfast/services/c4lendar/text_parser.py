"""Parsers of event text: the deterministic one, and a language model that falls back to it."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol
from zoneinfo import ZoneInfo

from holdfast.services.c4lendar.domain.parser import EventDetails, Question, parse


class TextParser(Protocol):
    """Understands the text of an event."""

    async def parse(self, text: str, *, now: datetime, zone: ZoneInfo) -> EventDetails | Question:
        """Return the event that a text describes, or what to ask."""
        ...


class RuleParser:
    """The deterministic parser: no network, the same answer for the same input."""

    async def parse(self, text: str, *, now: datetime, zone: ZoneInfo) -> EventDetails | Question:
        return parse(text, now=now, zone=zone)
