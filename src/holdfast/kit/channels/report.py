"""Reports on channels for people: rows with the time left, renewal results, and health."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec

from holdfast.kit.channels.ids import format_duration
from holdfast.kit.channels.models import ChannelFields, ChannelStatus, Watch
from holdfast.kit.channels.reconciler import epoch_ms
from holdfast.projection import project
from holdfast.store import Query, Store

PROBLEMS_MAX: Final = 50


class ChannelReportRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One channel with the time left to it; `warning` when that is short."""

    channel_id: str
    watched_id: str
    status: ChannelStatus
    expiration: int
    registered_at: int
    expires_in: str
    warning: bool


class Listing(msgspec.Struct, frozen=True):
    """Some rows, soonest expiry first, and the cursor of the next page."""

    rows: list[ChannelReportRow]
    cursor: str | None


class Renewed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A channel and its replacement; in a dry run, one that would be renewed."""

    channel_id: str
    watched_id: str
    old_expiration: int
    new_channel_id: str = ""
    new_expiration: int = 0
    took_ms: int = 0


class Skipped(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    channel_id: str
    watched_id: str
    reason: str


class NotRenewed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    channel_id: str
    watched_id: str
    error: str
    retry_after_s: float | None


class Renewal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a renewal, or of its dry run."""

    renewed: list[Renewed] = []
    skipped: list[Skipped] = []
    failed: list[NotRenewed] = []
    dry_run: bool = False


class Forced(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a forced registration, partial failures included."""

    opened: int
    stopped: int
    failed: int
    errors: dict[str, str] = {}


class ChannelProblem(msgspec.Struct, frozen=True, rename="camel"):
    watched_id: str
    error: str


class ChannelHealth(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Health of channels: `critical` when something should be watched and no channel is open."""

    verdict: Literal["ok", "degraded", "critical"]
    live: int
    watches: dict[str, int]
    failing: int
    overdue: int
    attention: list[ChannelProblem]
    soonest_expiration: int | None
    last_opened_at: datetime | None
    next_renewal_at: datetime | None
    last_turn_at: datetime | None
    last_error: str


def row(channel: ChannelFields, *, now_ms: int, warn_s: float) -> ChannelReportRow:
    left_s = (channel.expiration - now_ms) / 1000 if channel.status == "active" else 0.0
    warning = channel.status == "active" and left_s < warn_s
    return project(channel, ChannelReportRow, expires_in=format_duration(left_s), warning=warning)


def renewal_outcome(
    channel: ChannelFields, after: Watch | None, now: datetime
) -> Renewed | Skipped | NotRenewed:
    id, watched_id = channel.channel_id, channel.watched_id
    if after is None or not after.wanted:
        return Skipped(channel_id=id, watched_id=watched_id, reason="no longer wanted")
    if after.current is not None and after.current.channel_id != id:
        return Renewed(
            channel_id=id, watched_id=watched_id, old_expiration=channel.expiration,
            new_channel_id=after.current.channel_id, new_expiration=epoch_ms(after.current.ends_at),
            took_ms=after.took_ms,
        )  # fmt: skip
    if after.status == "attention" or after.failures:
        wait_s = None if after.retry_at is None else max(0.0, (after.retry_at - now).total_seconds())
        return NotRenewed(channel_id=id, watched_id=watched_id, error=after.error, retry_after_s=wait_s)
    return Skipped(channel_id=id, watched_id=watched_id, reason="another process is renewing it")


def summarize_renewal(outcomes: Sequence[Renewed | Skipped | NotRenewed], *, dry_run: bool) -> Renewal:
    return Renewal(
        renewed=[one for one in outcomes if isinstance(one, Renewed)],
        skipped=[one for one in outcomes if isinstance(one, Skipped)],
        failed=[one for one in outcomes if isinstance(one, NotRenewed)],
        dry_run=dry_run,
    )


async def channel_health(
    store: Store, kind: type[ChannelFields], *, name: str, last_turn_at: datetime | None, last_error: str
) -> ChannelHealth:
    """Health from a few indexed queries, whatever the number of channels."""
    now_ms = epoch_ms(store.clock.now())
    watches_query = Query(Watch).where("name", "==", name)
    states = ("opening", "watched", "attention", "ending")
    watches = {state: await store.count(watches_query.where("status", "==", state)) for state in states}
    active = Query(kind).where("status", "==", "active")
    live = await store.count(active.where("expiration", ">", now_ms))
    next_to_expire = (await store.query(active.order_by("expiration").limit(1))).docs
    problems = await store.query(watches_query.where("status", "==", "attention").limit(PROBLEMS_MAX))
    last_opened = (await store.query(watches_query.order_by("-opened_at").limit(1))).docs
    next_to_renew = (
        await store.query(watches_query.where("status", "==", "watched").order_by("renew_at").limit(1))
    ).docs
    failing = await store.count(watches_query.where("wanted", "==", True).where("failures", ">", 0))
    overdue = await store.count(active.where("expiration", "<=", now_ms))
    wanted = watches["opening"] + watches["watched"] + watches["attention"]
    faults = watches["opening"] + watches["attention"] + failing + overdue
    return ChannelHealth(
        verdict="critical" if wanted and not live else "degraded" if faults else "ok",
        live=live, watches=watches, failing=failing, overdue=overdue,
        attention=[ChannelProblem(watch.watched_id, watch.error) for watch in problems.docs],
        soonest_expiration=next_to_expire[0].expiration if next_to_expire else None,
        last_opened_at=last_opened[0].opened_at if last_opened else None,
        next_renewal_at=next_to_renew[0].renew_at if next_to_renew else None,
        last_turn_at=last_turn_at, last_error=last_error,
    )  # fmt: skip
