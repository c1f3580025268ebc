"""Documents of channels: the channels, and one watch per watched resource."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from holdfast.kit import NO_TENANT
from holdfast.model import ADMINS_READ, Claim, Document, Index, Lifecycle, ProvidedId, Retention, document

EpochMs = Annotated[int, Meta(ge=0)]
ChannelStatus = Literal["active", "expired", "stopped"]
WatchStatus = Literal["opening", "watched", "attention", "ending", "ended"]

KEPT_S: Final = 30 * 86_400
CHANNEL_ID: Final = ProvidedId(pattern=r"[A-Za-z0-9\-_+/=]{1,64}")
CHANNEL_INDEXES: Final = (
    Index("expiration"),
    Index("status"),
    Index("status", "expiration"),
    Index("watched_id", "expiration"),
)
CHANNEL_LIFE: Final = Lifecycle(
    "status", initial=["active"], moves={"active": ["expired", "stopped"], "expired": ["active", "stopped"]}
)
EXPIRED_KEPT: Final = Retention("last_updated_at", after_s=KEPT_S, when={"status": "expired"})


class ChannelFields(Document, rename="camel"):
    """The fields of a channel; declare a subclass for another collection name.

    `watched_id` may be stored under the provider's own word for the watched resource.

    Example:
        @document("watchChannels/{channel_id}", id=CHANNEL_ID, indexes=CHANNEL_INDEXES,
                  lifecycle=CHANNEL_LIFE, immutable=["registered_at"], retention=EXPIRED_KEPT)
        class WatchChannel(ChannelFields, rename="camel"):
            watched_id: str = msgspec.field(name="calendarId")
    """

    channel_id: str
    resource_id: Annotated[str, Meta(min_length=1)]
    watched_id: str
    expiration: EpochMs
    registered_at: EpochMs
    last_updated_at: EpochMs
    status: ChannelStatus = "active"


@document(
    "holdfast_channels/{channel_id}",
    id=CHANNEL_ID,
    tenant="tenant_id",
    indexes=(*CHANNEL_INDEXES, Index("status", "expiration", across="tenants")),
    lifecycle=CHANNEL_LIFE,
    immutable=["registered_at"],
    retention=EXPIRED_KEPT,
    access=ADMINS_READ,
)
class Channel(ChannelFields, rename="camel"):
    """A channel of the kit's own collection."""

    tenant_id: str = NO_TENANT


class OpenChannel(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A channel that is, or may be, open at the provider; after `ends_at` it can't be."""

    channel_id: str
    ends_at: datetime
    resource_id: str = ""
    tries: int = 0
    retry_at: datetime | None = None


@document(
    "holdfast_watches/{id}",
    tenant="tenant_id",
    indexes=[
        Index("renew_at"),
        Index("renew_at", across="tenants"),
        Index("name", "status"),
        Index("name", "-opened_at"),
        Index("name", "status", "renew_at"),
        Index("name", "wanted", "-failures"),
        Index("status", "key_id", across="tenants"),
    ],
    claim=Claim(due="due_at", fence="fence", owner="owner", lane="name"),
    lifecycle=Lifecycle(
        "status",
        initial=["opening", "watched", "ending"],
        moves={
            "opening": ["watched", "attention", "ending", "ended"],
            "watched": ["opening", "attention", "ending", "ended"],
            "attention": ["opening", "watched", "ending", "ended"],
            "ending": ["ended", "opening", "watched"],
            "ended": ["opening", "ending"],
        },
    ),
    immutable=["name", "watched_id"],
    retention=Retention("ended_at", after_s=KEPT_S),
    access=ADMINS_READ,
)
class Watch(Document, rename="camel"):
    """The intent to watch one resource, worked on by one process at a time.

    Its id is the prefix of all its channel ids. Each channel it may have at the provider is in `opening`
    (requested, not known to be open), `current` or `leaving` (to be stopped), so that a crash at any moment
    leaves none unknown. `key_id` is the key by which the current channel's token is signed; empty where that
    is not known.
    """

    id: str
    tenant_id: str = NO_TENANT
    name: str
    watched_id: str
    wanted: bool = True
    status: WatchStatus = "opening"
    opening: OpenChannel | None = None
    current: OpenChannel | None = None
    leaving: list[OpenChannel] = []
    resource_id: str = ""
    key_id: str = ""
    renew_at: datetime | None = None
    opened_at: datetime | None = None
    took_ms: int = 0
    openings: int = 0
    stamp_ms: int = 0
    failures: int = 0
    retry_at: datetime | None = None
    error: str = ""
    ended_at: datetime | None = None
    due_at: datetime | None = None
    fence: int = 0
    owner: str = ""
