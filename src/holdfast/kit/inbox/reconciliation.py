"""Reconciliation: what a provider could not deliver is asked for again.

    delivery log ──► missed since ──► not in the inbox ──► redeliver ──► the webhook, as any other message

It keeps no state: the inbox itself knows what has arrived, and a message that arrives twice is stored once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final

import msgspec
import structlog

from holdfast.delivery_log import DeliveryLog, MissedDelivery

log = structlog.get_logger("holdfast.inbox")

# As long as GitHub keeps its log; finished items are kept longer, so what has arrived is known.
LOOK_BACK_S: Final = 3 * 86_400
ATTEMPTS_MAX: Final = 5
REDELIVERIES_MAX: Final = 500


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """How many missed messages have arrived since, were asked for again, or failed too often to ask."""

    arrived: int = 0
    redelivered: int = 0
    given_up: int = 0


async def reconcile(
    delivery_log: DeliveryLog,
    *,
    since: datetime,
    missing: Callable[[Sequence[str]], Awaitable[set[str]]],
) -> Reconciliation:
    """Ask for each message of the log that is `missing`, unless it failed `ATTEMPTS_MAX` times."""
    attempts, newest = Counter[str](), dict[str, MissedDelivery]()
    async for one in delivery_log.missed(since):
        attempts[one.message_id] += 1
        newest.setdefault(one.message_id, one)
    absent = await missing(list(newest))
    wanted = [newest[id] for id in newest if id in absent and attempts[id] < ATTEMPTS_MAX]
    for one in wanted[:REDELIVERIES_MAX]:
        await delivery_log.redeliver(one)
    given_up = len(absent) - len(wanted)
    if given_up:
        log.warning("deliveries failed too often to be asked for again", count=given_up)
    return Reconciliation(
        arrived=len(newest) - len(absent), redelivered=min(len(wanted), REDELIVERIES_MAX), given_up=given_up
    )
