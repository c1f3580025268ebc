"""The RSS feed of a timespan: ids that stay, and text that is nothing but text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from email.utils import format_datetime
from typing import Final
from xml.etree.ElementTree import Element, SubElement, register_namespace, tostring

from holdfast.clock import from_us
from holdfast.plural import plural
from holdfast.services.hackernews.domain.presentation import StoryCard

MEDIA_TYPE: Final = "application/rss+xml; charset=utf-8"
FEED_PATH: Final = "/api/v1/feed.rss"
_CREATOR: Final = "http://purl.org/dc/elements/1.1/"
_ATOM: Final = "http://www.w3.org/2005/Atom"
# XML has no way to write these, not even escaped.
_NO_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

register_namespace("dc", _CREATOR)
register_namespace("atom", _ATOM)


def render_feed(cards: Iterable[StoryCard], *, timespan: str, base_url: str, at: datetime) -> bytes:
    """Return the feed of these stories; an item's id is the address of its discussion.

    `base_url` is where the service's pages are.

    Example: `render_feed(cards, timespan="Day", base_url="https://example.com/hackernews", at=clock.now())`
    """
    page_url, feed_url = (f"{base_url}{path}?timespan={timespan}" for path in ("/", FEED_PATH))
    rss = Element("rss", {"version": "2.0"})
    channel = SubElement(rss, "channel")
    _add(channel, "title", f"Best of Hacker News: {timespan}")
    _add(channel, "link", page_url)
    _add(channel, "description", "The highest-scored stories, best first.")
    _add(channel, "lastBuildDate", format_datetime(at, usegmt=True))
    _add(channel, "ttl", "30")
    SubElement(channel, f"{{{_ATOM}}}link", {"href": feed_url, "rel": "self", "type": "application/rss+xml"})
    for card in cards:
        _add_item(channel, card)
    xml: bytes = tostring(rss, encoding="utf-8", xml_declaration=True)
    return xml


def _add_item(channel: Element, card: StoryCard) -> None:
    item = SubElement(channel, "item")
    _add(item, "title", card.title)
    _add(item, "link", card.url)
    _add(item, "guid", card.comments_url, isPermaLink="true")
    _add(item, "comments", card.comments_url)
    _add(item, "pubDate", format_datetime(from_us(card.time * 1_000), usegmt=True))
    _add(item, f"{{{_CREATOR}}}creator", card.by)
    _add(
        item,
        "description",
        f"{plural(card.score, 'point')}, {plural(card.descendants, 'comment')}: {card.comments_url}",
    )


def _add(parent: Element, tag: str, text: str, **attributes: str) -> None:
    SubElement(parent, tag, attributes).text = _NO_XML.sub("\ufffd", text)
