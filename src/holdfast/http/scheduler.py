"""Cron headers of platforms: believed only from trusted hops, on routes that are for a scheduler.

App Engine and Cloud Scheduler send `X-Appengine-Cron` and `X-CloudScheduler`. Anybody can write such a
header, so it counts where every hop it came by, the first included, is in the setting `proxies`.
"""

from __future__ import annotations

from typing import Final

from holdfast.http.authentication import Authenticated, Connection
from holdfast.model.access import Caller

HEADERS: Final = ("x-appengine-cron", "x-cloudscheduler")
_SCHEDULER: Final = Caller(user_id="scheduler", service=True)


class SchedulerAuthenticator:
    """A platform's scheduler, as a service account."""

    async def read(self, connection: Connection) -> Authenticated | None:
        if not connection.route_handler.opt.get("scheduler") or "authorization" in connection.headers:
            return None
        says_so = any(connection.headers.get(name, "").lower() == "true" for name in HEADERS)
        trusted = connection.scope["state"]["trusted_hops"]
        return Authenticated(_SCHEDULER) if says_so and trusted else None
