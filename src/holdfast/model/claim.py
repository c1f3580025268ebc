"""The declaration of a claimable collection."""

from __future__ import annotations

import msgspec


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The fields through which due documents are claimed: leased, fenced, taken over after a crash.

    `due` is when the document is next to be worked on; null means never, and such a document costs claims
    nothing. A claim moves `due` to the end of the lease, increments `fence`, writes the worker into
    `owner` and, where given, sets `state`. Lanes share a claim fairly. Whoever settles a document that is to
    be due again clears `owner` or leaves `state`: what a process that is gone holds is made due at once.

    Example: `Claim(due="next_retry_at", fence="fence", state=("status", "sending"), lane="endpoint_id")`
    """

    due: str
    fence: str = "fence"
    owner: str | None = None
    lane: str | None = None
    state: tuple[str, str] | None = None
