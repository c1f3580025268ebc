"""The inbox: messages are verified, stored once and processed with effects that are committed once."""

from holdfast.kit.inbox.inbox import Inbox, Receipt, Source
from holdfast.kit.inbox.models import InboxItem, InboxLane
from holdfast.kit.inbox.verifiers import StandardWebhooksVerifier
from holdfast.kit.inbox.worker import Handler, InboxLimits, InboxWorker
from holdfast.webhook_verifier import Verified, Verifier

__all__ = [
    "Handler",
    "Inbox",
    "InboxItem",
    "InboxLane",
    "InboxLimits",
    "InboxWorker",
    "Receipt",
    "Source",
    "StandardWebhooksVerifier",
    "Verified",
    "Verifier",
]
