"""Watch channels: opened, renewed with overlap, stopped and repaired by themselves."""

from holdfast.kit.channels.channels import Channels
from holdfast.kit.channels.decision import Life
from holdfast.kit.channels.models import (
    CHANNEL_ID,
    CHANNEL_INDEXES,
    CHANNEL_LIFE,
    EXPIRED_KEPT,
    Channel,
    ChannelFields,
    Held,
    Watch,
)
from holdfast.kit.channels.port import Opened, Provider
from holdfast.kit.channels.reconciler import Happening, Hook
from holdfast.kit.channels.report import Forced, Health, Listing, Renewal, Row

__all__ = [
    "CHANNEL_ID",
    "CHANNEL_INDEXES",
    "CHANNEL_LIFE",
    "EXPIRED_KEPT",
    "Channel",
    "ChannelFields",
    "Channels",
    "Forced",
    "Happening",
    "Health",
    "Held",
    "Hook",
    "Life",
    "Listing",
    "Opened",
    "Provider",
    "Renewal",
    "Row",
    "Watch",
]
