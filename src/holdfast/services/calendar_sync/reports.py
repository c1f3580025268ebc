"""Responses of the service's routes and commands, and its status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec

from holdfast.kit.channels import ChannelHealth, ChannelReportRow, Renewal
from holdfast.plural import plural
from holdfast.projection import project
from holdfast.service import Health, HealthStatus
from holdfast.services.calendar_sync.models import MappingReload

STALE_S: Final = 3_600.0
NAMED_MAX: Final = 10
ChannelFilter = Literal["active", "expired", "stopped", "all"]


class _Response(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class MappingsResponse(_Response, frozen=True):
    count: int
    loaded_at: datetime | None
    age_seconds: float | None
    failed_reloads: int
    bad_rows: int


class PublicHealthResponse(_Response, frozen=True):
    """`GET /health` for strangers."""

    status: HealthStatus


class HealthResponse(PublicHealthResponse, frozen=True):
    """`GET /health`: counts and times, and nobody's address."""

    in_use: bool
    mappings: MappingsResponse
    channels: dict[str, int]
    calendars: dict[str, int]
    needs_attention: int
    last_renewal_at: datetime | None
    next_renewal_at: datetime | None
    last_sync_at: datetime | None


class RenewedResponse(_Response, frozen=True):
    channel_id: str
    calendar_id: str
    old_expiration: int
    new_expiration: int | None
    new_channel_id: str
    duration: int


class SkippedResponse(_Response, frozen=True, kw_only=False):
    channel_id: str
    calendar_id: str
    reason: str


class FailedResponse(_Response, frozen=True, kw_only=False):
    channel_id: str
    calendar_id: str
    error: str
    retry_after: float | None


class RenewalResponse(_Response, frozen=True):
    """What a renewal did, or in a dry run would do; `duration` is in milliseconds."""

    renewed: list[RenewedResponse]
    skipped: list[SkippedResponse]
    failed: list[FailedResponse]
    summary: dict[str, int]
    dry_run: bool


class ForcedResponse(_Response, frozen=True):
    registered: int
    stopped: int
    failed: int
    errors: dict[str, str]


class StoppedResponse(_Response, frozen=True):
    """A channel that was let go, and what watches its calendar now; empty when nothing does."""

    channel_id: str
    calendar_id: str
    stopped: bool
    replaced_by: str


class ChannelResponse(_Response, frozen=True):
    channel_id: str
    calendar_id: str
    status: str
    expiration: int
    registered_at: int
    expires_in: str
    warning: bool


class StatusResponse(_Response, frozen=True):
    channels: list[ChannelResponse]
    cursor: str | None
    summary: dict[str, int]
    health: HealthResponse


def channel_response(row: ChannelReportRow) -> ChannelResponse:
    return project(row, ChannelResponse, calendar_id=row.watched_id)


def renewal_response(renewal: Renewal) -> RenewalResponse:
    counts = {"renewed": len(renewal.renewed), "skipped": len(renewal.skipped), "failed": len(renewal.failed)}
    return RenewalResponse(
        renewed=[
            project(
                one, RenewedResponse, calendar_id=one.watched_id, new_expiration=one.new_expiration or None,
                duration=one.took_ms,
            )
            for one in renewal.renewed
        ],
        skipped=[SkippedResponse(one.channel_id, one.watched_id, one.reason) for one in renewal.skipped],
        failed=[
            FailedResponse(one.channel_id, one.watched_id, one.error, one.retry_after_s)
            for one in renewal.failed
        ],
        summary={"total": sum(counts.values()), **counts}, dry_run=renewal.dry_run,
    )  # fmt: skip


class StatusReport(msgspec.Struct, frozen=True, kw_only=True):
    """The state of mappings, channels and syncs at one moment."""

    in_use: bool
    reload: MappingReload
    channels: ChannelHealth
    by_status: Mapping[str, int]
    by_sync_status: Mapping[str, int]
    # How many calendars, or their channels, wait for credentials; `without_access` names the first of them.
    needs_attention: int
    without_access: Sequence[str]
    last_sync_at: datetime | None
    now: datetime

    @property
    def age_s(self) -> float | None:
        loaded = self.reload.loaded_at
        return None if loaded is None else (self.now - loaded).total_seconds()

    def reasons(self) -> list[str]:
        """Why the status is not ok."""
        reasons: list[str] = []
        if self.reload.error:
            reasons.append(f"mappings could not be reloaded: {self.reload.error}")
        elif self.age_s is None or self.age_s > STALE_S:
            reasons.append("mappings have not been read for long")
        if self.reload.bad_rows:
            rows = ", ".join(str(bad.row) for bad in self.reload.bad_rows[:10])
            reasons.append(f"mappings have rows that can't be used: {rows}")
        if self.needs_attention:
            names = ", ".join(self.without_access[:NAMED_MAX])
            more = self.needs_attention - len(self.without_access[:NAMED_MAX])
            others = f" and {plural(more, 'other')}" if more > 0 else ""
            reasons.append(f"needs attention, credentials are gone: {names}{others}")
        counts = (
            (self.channels.watches.get("opening", 0), "channel is being opened", "channels are being opened"),
            (self.channels.failing, "channel could not be opened", "channels could not be opened"),
            (self.channels.overdue, "channel is past its end", "channels are past their end"),
            (self.by_sync_status["failing"], "calendar could not be synced", "calendars could not be synced"),
        )
        return reasons + [plural(count, one, several) for count, one, several in counts if count]

    def status(self) -> HealthStatus:
        if not self.in_use:
            return "ok"
        if self.reload.mappings and not self.channels.live:
            return "critical"
        return "degraded" if self.reasons() else "ok"

    def health(self) -> Health:
        reasons = tuple(self.reasons()) if self.in_use else ()
        if self.status() == "critical":
            reasons = ("no channel is live", *reasons)
        return Health(self.status(), reasons, msgspec.to_builtins(self.response()))

    def response(self) -> HealthResponse:
        return HealthResponse(
            status=self.status(), in_use=self.in_use, channels=dict(self.by_status),
            calendars=dict(self.by_sync_status), needs_attention=self.needs_attention,
            last_renewal_at=self.channels.last_opened_at, next_renewal_at=self.channels.next_renewal_at,
            last_sync_at=self.last_sync_at,
            mappings=MappingsResponse(
                count=self.reload.mappings, loaded_at=self.reload.loaded_at, age_seconds=self.age_s,
                failed_reloads=self.reload.failures, bad_rows=len(self.reload.bad_rows),
            ),
        )  # fmt: skip
