"""A rate limit shared by all processes on a store: at most n per period for each key.

    limit = SharedRateLimit(store, "telegram", RateQuota(count=30, period_s=1.0))
    await limit.acquire("all")          # waits for its turn, first come, first served

Turns are points in time, reserved in the store: a process reserves as many as it has callers waiting, in one
commit, and lets each caller go on at its own. A process that dies loses only the turns it had reserved.
`NestedRateLimit` is a limit for each key within one for all. Callers that are refused instead of waiting have
`SlidingWindow`.
"""

from holdfast.kit.rate_limit.decision import RateQuota
from holdfast.kit.rate_limit.models import RateLimitDocument, RateLimitFields
from holdfast.kit.rate_limit.shared_rate_limit import NestedRateLimit, SharedRateLimit
from holdfast.kit.rate_limit.sliding_window import RateWindow, SlidingWindow, WindowQuota

__all__ = [
    "NestedRateLimit",
    "RateLimitDocument",
    "RateLimitFields",
    "RateQuota",
    "RateWindow",
    "SharedRateLimit",
    "SlidingWindow",
    "WindowQuota",
]
