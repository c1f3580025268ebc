"""The channel of the declaring page, as a module."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from holdfast.model import Document, Index, Lifecycle, ProvidedId, Retention, document

EmailAddress = Annotated[str, Meta(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$", max_length=254)]
EpochMs = Annotated[int, Meta(ge=0)]


@document(
    "watchChannels/{channel_id}",
    id=ProvidedId(pattern=r"[A-Za-z0-9\-_+/=]{1,64}"),
    indexes=[
        Index("expiration"),
        Index("status"),
        Index("calendar_id"),
        Index("status", "expiration"),
        Index("calendar_id", "expiration"),
    ],
    lifecycle=Lifecycle(
        "status",
        initial=["active"],
        moves={"active": ["expired", "stopped"], "expired": ["active", "stopped"]},
    ),
    immutable=["registered_at"],
    retention=Retention("last_updated_at", after_s=30 * 86_400, when={"status": "expired"}),
)
class WatchChannel(Document, rename="camel"):
    """A Google Calendar push channel that delivers changes of one calendar."""

    channel_id: Annotated[str, Meta(description="Ours: calendar-sync-{address}-{epoch ms}.")]
    resource_id: Annotated[str, Meta(min_length=1, description="Google's; needed to stop the channel.")]
    calendar_id: Annotated[EmailAddress, Meta(description="Address of the watched calendar.")]
    expiration: Annotated[EpochMs, Meta(description="When the channel ends, ms since 1970.")]
    registered_at: Annotated[EpochMs, Meta(description="When it was first registered, ms since 1970.")]
    last_updated_at: Annotated[EpochMs, Meta(description="Last renewal or change of state, ms since 1970.")]
    status: Literal["active", "expired", "stopped"] = "active"
