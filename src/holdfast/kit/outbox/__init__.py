"""The outbox: each event reaches each endpoint at least once, under one id, with one recorded state.

    caller's commit ──► delivery (one per event and endpoint) ──► dispatcher ──► receiver
                                      │                               │
                                 Deliveries ◄── attempts, state ──────┘

`Outbox` commits events with the caller's writes; `Dispatcher` delivers them; `Deliveries` reads and replays
them; `Endpoints` pauses, resumes, disables and enables their receivers. The sender is `holdfast.net`'s port.
"""

from holdfast.kit.outbox.deliveries import Deliveries, Report, Selection
from holdfast.kit.outbox.dispatcher import Dispatcher, DispatcherStatus
from holdfast.kit.outbox.endpoint_admin import Endpoints
from holdfast.kit.outbox.endpoint_secrets import EndpointSecrets
from holdfast.kit.outbox.models import (
    DEAD_LETTER_INDEXES,
    DELIVERY_CLAIM,
    DELIVERY_INDEXES,
    ENDPOINT_INDEXES,
    NOTICE_INDEXES,
    OUTBOX_MODELS,
    Attempt,
    BreakerPolicy,
    DeadLetter,
    Delivery,
    Endpoint,
    EndpointNotice,
    EndpointSecret,
    FifoLane,
    OutboxModels,
    Rate,
    delivery_id,
)
from holdfast.kit.outbox.outbox import Event, Outbox
from holdfast.kit.outbox.retry_policy import DOUBLING_WAITS_S, LONG_WAITS_S, RetryPolicy
from holdfast.kit.outbox.signing import Sign, SignatureVerifier, WebhookSigner, new_key_pair, new_secret

__all__ = [
    "DEAD_LETTER_INDEXES",
    "DELIVERY_CLAIM",
    "DELIVERY_INDEXES",
    "DOUBLING_WAITS_S",
    "ENDPOINT_INDEXES",
    "LONG_WAITS_S",
    "NOTICE_INDEXES",
    "OUTBOX_MODELS",
    "Attempt",
    "BreakerPolicy",
    "DeadLetter",
    "Deliveries",
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
    "Outbox",
    "OutboxModels",
    "Rate",
    "Report",
    "RetryPolicy",
    "Selection",
    "Sign",
    "SignatureVerifier",
    "WebhookSigner",
    "delivery_id",
    "new_key_pair",
    "new_secret",
]
