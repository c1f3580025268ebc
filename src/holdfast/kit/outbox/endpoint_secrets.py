"""An endpoint's signing secrets: sealed at rest, overlapping during a rotation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from holdfast.clock import to_us
from holdfast.kit.outbox.models import Endpoint, EndpointSecret
from holdfast.kit.outbox.signing import Sign, WebhookSigner
from holdfast.kit.vault import SealedField, Secret, Vault
from holdfast.net import SendFailure

SECRET_FIELD: Final = "secrets.sealed"
OVERLAP_S: Final = 24 * 3_600.0
LIVE_MAX: Final = 3


class EndpointSecrets:
    """Seals the secrets of endpoints and signs with those that have not expired.

    `signing` is for a dispatcher. With `plain_header` the body alone is signed under that
    name too; see `WebhookSigner`.

    Example: `Dispatcher(store, sender, signing=EndpointSecrets(vault).signing)`
    """

    def __init__(self, vault: Vault, *, plain_header: str | None = None) -> None:
        self._vault = vault
        self._plain_header = plain_header

    def seal(self, endpoint: Endpoint, secret: str | Secret) -> EndpointSecret:
        """Seal a secret for this endpoint; refuse one that could not sign."""
        text = secret.reveal() if isinstance(secret, Secret) else secret
        WebhookSigner([text])
        return EndpointSecret(sealed=self._field(endpoint).seal(text, endpoint.id))

    def rotated(
        self, endpoint: Endpoint, secret: str | Secret, *, now: datetime, overlap_s: float = OVERLAP_S
    ) -> list[EndpointSecret]:
        """Return the endpoint's next `secrets`: the new one first, the others until the overlap ends.

        At most three are live: of the others, the newest two. Without an overlap they end at once.
        """
        end = now + timedelta(seconds=overlap_s)
        current = (
            []
            if overlap_s <= 0
            else [
                msgspec.structs.replace(old, expires_at=min(old.expires_at or end, end))
                for old in endpoint.secrets
                if old.expires_at is None or old.expires_at > now
            ]
        )
        return [self.seal(endpoint, secret), *current[: LIVE_MAX - 1]]

    async def signing(self, endpoint: Endpoint) -> Sign:
        """Return what signs this endpoint's messages; `DecryptionError` when a secret does not open.

        It raises `SendFailure` while no secret is active: nothing is sent unsigned.
        """
        field = self._field(endpoint)
        opened = [(_end_s(one), field.open(one.sealed, endpoint.id)) for one in endpoint.secrets]
        return _signing_with(opened, lambda texts: WebhookSigner(texts, plain_header=self._plain_header))

    def _field(self, endpoint: Endpoint) -> SealedField:
        return self._vault.field(type(endpoint), SECRET_FIELD)


def _end_s(secret: EndpointSecret) -> float:
    return float("inf") if secret.expires_at is None else to_us(secret.expires_at) / 1e6


def _signing_with(opened: Sequence[tuple[float, Secret]], make: Callable[[list[str]], WebhookSigner]) -> Sign:
    """Sign with the secrets that are valid at that moment; the signer is rebuilt when one expires."""
    signer: WebhookSigner | None = None
    valid_to_s = -1.0

    def sign(message_id: str, at_s: int, body: bytes) -> Sequence[tuple[str, str]]:
        nonlocal signer, valid_to_s
        if at_s >= valid_to_s:
            active = [(end_s, secret.reveal()) for end_s, secret in opened if end_s > at_s]
            signer = make([text for _, text in active]) if active else None
            valid_to_s = min((end_s for end_s, _ in active), default=float("inf"))
        if signer is None:
            raise SendFailure("unsigned", "the endpoint has no active signing secret; rotate its secret")
        return signer.headers(message_id, at_s, body)

    return sign
