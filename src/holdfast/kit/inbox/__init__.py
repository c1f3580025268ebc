"""What comes in from outside: verified, kept, deduplicated, then worked on with effects that land once."""

from holdfast.kit.inbox.inbox import Inbox, Receipt, Source
from holdfast.kit.inbox.models import InboxItem, InboxLane
from holdfast.kit.inbox.verifiers import (
    GithubVerifier,
    GoogleChannelVerifier,
    StandardWebhooksVerifier,
    TelegramVerifier,
    Verified,
    Verifier,
    channel_token,
)
from holdfast.kit.inbox.worker import Handler, InboxLimits, InboxWorker

__all__ = [
    "GithubVerifier",
    "GoogleChannelVerifier",
    "Handler",
    "Inbox",
    "InboxItem",
    "InboxLane",
    "InboxLimits",
    "InboxWorker",
    "Receipt",
    "Source",
    "StandardWebhooksVerifier",
    "TelegramVerifier",
    "Verified",
    "Verifier",
    "channel_token",
]
