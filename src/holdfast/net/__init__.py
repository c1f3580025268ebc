"""Outgoing HTTP: a one-method port, its HTTP/1.1 client with connection pools, and the SSRF guard.

sender = RawSender(AddressGuard())
response = await sender.send(OutgoingRequest("POST", url, headers, body, 5.0, 65_536))
"""

from holdfast.net.address_guard import AddressGuard, PortPolicy, Resolver
from holdfast.net.connection_shares import ConnectionShares
from holdfast.net.pool import PoolLimits
from holdfast.net.port import (
    Exchange,
    OutgoingRequest,
    ReceiverResponse,
    Sender,
    SendFailure,
    SendResult,
)
from holdfast.net.retry_after import retry_after_s
from holdfast.net.sender import RawSender
from holdfast.net.session import HttpSession, LazySession
from holdfast.net.url import read_url

__all__ = [
    "AddressGuard",
    "ConnectionShares",
    "Exchange",
    "HttpSession",
    "LazySession",
    "OutgoingRequest",
    "PoolLimits",
    "PortPolicy",
    "RawSender",
    "ReceiverResponse",
    "Resolver",
    "SendFailure",
    "SendResult",
    "Sender",
    "read_url",
    "retry_after_s",
]
