"""The verifier of Standard Webhooks; those of single vendors are in their provider's folder."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from holdfast.kit.outbox.signing import SignatureVerifier
from holdfast.webhook_verifier import Verified


class StandardWebhooksVerifier:
    """Checks the Standard Webhooks headers: id, timestamp, and a signature over both and the body."""

    def __init__(self, *secrets: str) -> None:
        self._signatures = SignatureVerifier(secrets)

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        return Verified(self._signatures.verify(headers, body, now=now))
