"""Checks a webhook as its receiver would: Standard Webhooks, and the plain signature of the body."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Final

TOLERANCE_S: Final = 300


def fault_of(headers: Mapping[str, str], body: bytes, *, secret: str, now: datetime) -> str:
    """What is wrong with a message's signatures; empty when nothing is."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not message_id or not timestamp.isdigit():
        return "webhook-id or webhook-timestamp is missing"
    if abs(now.timestamp() - int(timestamp)) > TOLERANCE_S:
        return "webhook-timestamp is too far from now"
    signed = f"{message_id}.{timestamp}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    if not _any_is(headers.get("webhook-signature", "").split(), expected):
        return "webhook-signature fits no secret"
    plain = headers.get("x-webhook-signature", "")
    if plain and not _any_is([plain], "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest()):
        return "x-webhook-signature does not fit the body"
    return ""


def _any_is(given: list[str], expected: str) -> bool:
    return any(hmac.compare_digest(one.encode(), expected.encode()) for one in given)
