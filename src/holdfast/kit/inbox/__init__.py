"""What comes in from outside: verified, kept, deduplicated, then worked on with effects that land once."""

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
