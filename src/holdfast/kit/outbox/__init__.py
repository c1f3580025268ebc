"""The outbox: events out, each to each endpoint at least once, under one id, with one recorded state.

    caller's commit ──► delivery (one per event and endpoint) ──► dispatcher ──► receiver
                                      │                               │
                                    ledger ◄── attempts, state ───────┘

`Outbox` puts events out, in the caller's own commit; `Dispatcher` delivers them; `Ledger` shows and replays
them; `Endpoints` pauses, resumes, disables and enables where they go. The sender is a port.
"""

from holdfast.kit.outbox.deliveries import Ledger, Report, Selection
from holdfast.kit.outbox.dispatcher import Dispatcher, DispatcherStatus
from holdfast.kit.outbox.endpoint_admin import Endpoints
from holdfast.kit.outbox.endpoint_secrets import EndpointSecrets
from holdfast.kit.outbox.models import (
    KINDS,
    Attempt,
    Breaker,
    DeadLetter,
    Delivery,
    Endpoint,
    EndpointNotice,
    EndpointSecret,
    FifoLane,
    Kinds,
    Rate,
    delivery_id,
)
from holdfast.kit.outbox.outbox import Event, Outbox
from holdfast.kit.outbox.retry_policy import DOUBLING_WAITS_S, LONG_WAITS_S, Retry
from holdfast.kit.outbox.signing import Signer, Verifier, new_key_pair, new_secret
from holdfast.net.address_guard import AddressGuard
from holdfast.net.port import Answer, Outgoing, Sender, SendFailure, Sign
from holdfast.net.sender import RawSender

__all__ = [
    "DOUBLING_WAITS_S",
    "KINDS",
    "LONG_WAITS_S",
    "AddressGuard",
    "Answer",
    "Attempt",
    "Breaker",
    "DeadLetter",
    "Delivery",
    "Dispatcher",
    "DispatcherStatus",
    "Endpoint",
    "EndpointNotice",
    "EndpointSecret",
    "EndpointSecrets",
    "Endpoints",
    "Event",
    "FifoLane",
    "Kinds",
    "Ledger",
    "Outbox",
    "Outgoing",
    "Rate",
    "RawSender",
    "Report",
    "Retry",
    "Selection",
    "SendFailure",
    "Sender",
    "Sign",
    "Signer",
    "Verifier",
    "delivery_id",
    "new_key_pair",
    "new_secret",
]
