"""Slots of a cron expression in a time zone, without a store.

A slot is an instant. Local times that a clock change skips run when the skipped hour is over; local times
that it repeats run once.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

from holdfast.errors import WrongTypeError

Missed = Literal["skip", "once", "all"]
MISSED_MAX: Final = 100


def check_cron(cron: str, zone: str) -> None:
    """Refuse an invalid expression or time zone."""
    try:
        CronSim(cron, datetime(2000, 1, 1, tzinfo=_zone(zone)))
    except CronSimError as fault:
        raise WrongTypeError(f"{cron!r} is not a cron expression: {fault}", "cron") from None


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise WrongTypeError(
            f"{name!r} is not a time zone; use names such as Europe/Berlin", "zone"
        ) from None


def slots_after(cron: str, zone: str, after: datetime) -> Iterator[datetime]:
    """The slots strictly after an instant, in order, as UTC."""
    return (slot.astimezone(UTC) for slot in CronSim(cron, after.astimezone(_zone(zone))))


def next_slot(cron: str, zone: str, after: datetime) -> datetime | None:
    """The first slot after an instant; None for an expression without any."""
    return next(slots_after(cron, zone, after), None)


def last_slot(cron: str, zone: str, until: datetime) -> datetime:
    """The latest slot that is not after an instant."""
    local = until.astimezone(_zone(zone)) + timedelta(minutes=1)
    past = (slot.astimezone(UTC) for slot in CronSim(cron, local, reverse=True))
    return next(slot for slot in past if slot <= until)


class Turn(msgspec.Struct, frozen=True):
    """The decision for a due schedule: the slot to run (or None), the missed ones, and the next."""

    run: datetime | None
    missed: tuple[datetime, ...]
    next: datetime | None


def decide_turn(
    cron: str, zone: str, *, slot: datetime, now: datetime, missed: Missed, grace_s: float
) -> Turn:
    """Decide what to do with a due slot, late or not. Pure.

    `all` runs every slot; `once` runs the latest due slot and marks the others missed; `skip` runs a slot
    only within `grace_s` of its time. At most `MISSED_MAX` missed ones are recorded.
    """
    if missed == "all":
        return Turn(slot, (), next_slot(cron, zone, slot))
    latest = max(slot, last_slot(cron, zone, now))
    between = takewhile(lambda s: s < latest, slots_after(cron, zone, slot))
    skipped = () if latest == slot else (slot, *islice(between, MISSED_MAX - 1))
    following = next_slot(cron, zone, max(latest, now))
    if missed == "skip" and (now - latest).total_seconds() > grace_s:
        return Turn(None, (*skipped, latest), following)
    return Turn(latest, skipped, following)
