"""The inbox: messages are verified, stored once and processed with effects that are committed once."""

from holdfast.delivery_log import DeliveryLog, MissedDelivery
from holdfast.kit.inbox.inbox import AcceptedMessage, Inbox, Receipt
from holdfast.kit.inbox.models import InboxChunk, InboxItem, InboxQueue, InboxUpload
from holdfast.kit.inbox.reconciliation import Reconciliation
from holdfast.kit.inbox.source import Source
from holdfast.kit.inbox.verifiers import StandardWebhooksVerifier
from holdfast.kit.inbox.worker import Handler, InboxLimits, InboxWorker
from holdfast.webhook_verifier import MessageVerifier, Verified, Verifier

__all__ = [
    "AcceptedMessage",
    "DeliveryLog",
    "Handler",
    "Inbox",
    "InboxChunk",
    "InboxItem",
    "InboxLimits",
    "InboxQueue",
    "InboxUpload",
    "InboxWorker",
    "MessageVerifier",
    "MissedDelivery",
    "Receipt",
    "Reconciliation",
    "Source",
    "StandardWebhooksVerifier",
    "Verified",
    "Verifier",
]
