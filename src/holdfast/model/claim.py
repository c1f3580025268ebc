"""How workers take turns on a collection."""

from __future__ import annotations

import msgspec


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The fields through which due documents are claimed: leased, fenced, taken over after a crash.

    `due` (a time or null) says when work is next wanted; null means never, and such a document costs
    claims nothing. Claiming moves `due` to the end of the lease, adds one to `fence`, writes the
    worker into `owner` and, where given, sets `state`. `lane` keeps one crowd from delaying another.

    Example: `Claim(due="next_retry_at", fence="fence", state=("status", "sending"), lane="endpoint_id")`
    """

    due: str
    fence: str = "fence"
    owner: str | None = None
    lane: str | None = None
    state: tuple[str, str] | None = None
