"""Signature checks as a receiver makes them: Standard Webhooks, and the HMAC of the body."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Final

TOLERANCE_S: Final = 300


def signature_fault(headers: Mapping[str, str], body: bytes, *, secret: str, now: datetime) -> str:
    """What is wrong with a message's signatures; empty when nothing is.

    `secret` may be several, separated by spaces: during a rotation a receiver knows the old and the new one.
    """
    keys = [decode_secret(one) for one in secret.split()]
    message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not message_id or not timestamp.isdigit():
        return "webhook-id or webhook-timestamp is missing"
    if abs(now.timestamp() - int(timestamp)) > TOLERANCE_S:
        return "webhook-timestamp is too far from now"
    signed = f"{message_id}.{timestamp}.".encode() + body
    given = headers.get("webhook-signature", "").split()
    if not _any_equal(given, [_standard_signature(key, signed) for key in keys]):
        return "webhook-signature matches no secret"
    body_signature = headers.get("x-webhook-signature", "")
    if body_signature and not _any_equal([body_signature], [_body_signature(key, body) for key in keys]):
        return "x-webhook-signature does not match the body"
    return ""


def decode_secret(secret: str) -> bytes:
    """The key of a `whsec_` secret; `ValueError` for an invalid one."""
    return base64.b64decode(secret.removeprefix("whsec_"), validate=True)


def _standard_signature(key: bytes, signed: bytes) -> str:
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def _body_signature(key: bytes, body: bytes) -> str:
    return "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest()


def _any_equal(given: list[str], expected: list[str]) -> bool:
    return any(hmac.compare_digest(one.encode(), other.encode()) for one in given for other in expected)
