"""Watch channels: opened, renewed with overlap, stopped and repaired."""

from holdfast.kit.channels.channels import Channels
from holdfast.kit.channels.decision import ChannelPolicy
from holdfast.kit.channels.models import (
    CHANNEL_ID,
    CHANNEL_INDEXES,
    CHANNEL_LIFE,
    EXPIRED_KEPT,
    Channel,
    ChannelFields,
    OpenChannel,
    Watch,
)
from holdfast.kit.channels.port import ChannelProvider, Opened
from holdfast.kit.channels.reconciler import ChannelTransition, Hook
from holdfast.kit.channels.report import ChannelHealth, ChannelReportRow, Forced, Listing, Renewal

__all__ = [
    "CHANNEL_ID",
    "CHANNEL_INDEXES",
    "CHANNEL_LIFE",
    "EXPIRED_KEPT",
    "Channel",
    "ChannelFields",
    "ChannelHealth",
    "ChannelPolicy",
    "ChannelProvider",
    "ChannelReportRow",
    "ChannelTransition",
    "Channels",
    "Forced",
    "Hook",
    "Listing",
    "OpenChannel",
    "Opened",
    "Renewal",
    "Watch",
]
