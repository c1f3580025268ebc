"""The sources of messages, and what is stored of a message."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Final

import msgspec

from holdfast.delivery_log import DeliveryLog
from holdfast.errors import BadQueryError, DeclarationError, TooLargeError
from holdfast.kit import NO_TENANT
from holdfast.kit.inbox.models import InboxItem
from holdfast.webhook_verifier import MessageVerifier, Verified, Verifier, Verify

BODY_BYTES_USUAL: Final = 1_000_000
BODY_BYTES_MAX: Final = 25 * 1024 * 1024
_SEGMENT_BYTES_MAX: Final = 300
# A header named with one of these words holds a credential, whoever sent it: it is never stored.
_SECRET_WORDS: Final = ("authorization", "cookie", "secret", "token")
_NAMES_MAX: Final = 1_000


class Source(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A sender of messages and how they are verified.

    A message belongs to the tenant that `tenant_of` finds for the verified account (a GitHub installation, a
    Telegram chat), and to `tenant_id` where it finds none. `is_ours` is asked about a message that could not
    be verified: one meant for somebody else is ignored. `delivery_log` finds what the provider could not
    deliver.

    Example: `Source(name="github", verifier=GithubVerifier(secret), tenant_of=tenant_of_installation,
    body_bytes_max=25_000_000)`
    """

    name: str
    verifier: Verifier
    tenant_id: str = NO_TENANT
    tenant_of: Callable[[str], Awaitable[str | None]] | None = None
    ordered: bool = False
    body_bytes_max: int = BODY_BYTES_USUAL
    keep_headers: tuple[str, ...] = ()
    is_ours: Callable[[Mapping[str, str]], Awaitable[bool]] | None = None
    delivery_log: DeliveryLog | None = None

    def __post_init__(self) -> None:
        if not 0 < self.body_bytes_max <= BODY_BYTES_MAX:
            raise DeclarationError(f"source {self.name!r}: a body takes at most {BODY_BYTES_MAX:,} bytes")

    @cached_property
    def verify(self) -> Verify:
        """The verifier's method for this source: without the account, where that finds no tenant."""
        verifier = self.verifier
        if self.tenant_of is None and isinstance(verifier, MessageVerifier):
            return verifier.verify_message
        return verifier.verify

    def check_size(self, body: bytes) -> None:
        """Raise TooLargeError for a body that is larger than the source may send."""
        if len(body) > self.body_bytes_max:
            raise TooLargeError(f"a body takes at most {self.body_bytes_max:,} bytes")


def new_item(
    source: Source,
    verified: Verified,
    *,
    tenant_id: str,
    now: datetime,
    headers: Mapping[str, str],
    body: bytes = b"",
) -> InboxItem:
    """Return the item of a message, which is due at once; a large body and a queue are dealt with later."""
    if not verified.message_id:
        raise BadQueryError("the verifier returned no message id")
    is_stored = _stored_headers(source.keep_headers)
    stored = {name: value for name, value in headers.items() if is_stored[name]}
    return InboxItem(
        tenant_id=tenant_id, source=source.name, message_id=id_segment(verified.message_id), received_at=now,
        headers=stored, body=body, body_bytes=len(body), due_at=now,
        queue=_queue_of(source, verified) if source.ordered else "", lane=f"{source.name}:{tenant_id}",
    )  # fmt: skip


def _queue_of(source: Source, verified: Verified) -> str:
    if not source.ordered or not verified.order_key:
        return ""
    return id_segment(f"{source.name}:{verified.order_key}")


class _StoredHeaders(dict[str, bool]):
    """Whether a header is stored, by its name; each of the usual names is judged once."""

    def __init__(self, named: tuple[str, ...]) -> None:
        self._named = named

    def __missing__(self, name: str) -> bool:
        secret = any(word in name for word in _SECRET_WORDS)
        usual = name.startswith(("x-", "webhook-")) or name in ("content-type", "user-agent")
        judged = not secret and (usual or name in self._named)
        if len(self) < _NAMES_MAX:
            self[name] = judged
        return judged


_stored_headers: Final = lru_cache(maxsize=1_000)(_StoredHeaders)


def id_segment(name: str) -> str:
    """Return a name as part of an id: itself where it fits, otherwise its digest."""
    size = len(name if name.isascii() else name.encode(errors="surrogatepass"))
    if size <= _SEGMENT_BYTES_MAX and "/" not in name and name.isprintable():
        return name
    return "sha256-" + hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
