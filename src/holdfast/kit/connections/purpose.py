"""Purposes for which a service connects accounts, and what it stores in the commit of a connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from holdfast.kit.connections.models import CONNECTION_MODELS, ConnectionFields, ConnectionModels
from holdfast.store import Transaction, Write


class FinishedConsent(msgspec.Struct, frozen=True):
    """A new or renewed connection, and the payload that its consent was started with."""

    connection: ConnectionFields
    payload: Mapping[str, Any]


# Returns the service's own writes; it may read by the transaction, and raise to refuse the account.
ConsentHook: TypeAlias = Callable[[Transaction, FinishedConsent], Awaitable[Sequence[Write]]]


class ConsentPurpose(msgspec.Struct, frozen=True, kw_only=True):
    """What a service connects accounts for: the provider, the scopes, its own rows in the same commit.

    `for_operators` offers it on the console and the command line, which start it without a payload. `models`
    are those of the service's own connections, where it has some.

    Example: `ConsentPurpose(name="c4lendar", provider="google", scopes=[SCOPE], hook=store_account)`
    """

    name: str
    provider: str
    scopes: Sequence[str]
    title: str = ""
    hook: ConsentHook | None = None
    for_operators: bool = True
    models: ConnectionModels = CONNECTION_MODELS
