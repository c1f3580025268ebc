"""Token refresh: by one process at a time, and never over the result of a newer refresh.

A lease keeps processes from calling at once. It is not what makes it safe: a process that was paused past its
end still has the provider's answer, which may be the only good one. So an answer is written when nobody has
written another since the request (`generation`), and discarded otherwise; likewise a refusal.

When the process dies between the provider's answer and our commit, the previous refresh token is still
stored. A provider that keeps it valid (as Google does) or allows a grace period gives the next process a new
token; otherwise it answers `invalid_grant`, and the owner is asked to connect again.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import structlog

from holdfast.errors import NotFoundError, ReauthRequiredError, RetryLaterError
from holdfast.kit.connections.decision import apply_refresh, delay_retry, mark_refused
from holdfast.kit.connections.models import SEALED_TOKENS, Connection, ConnectionFields, ConnectionModels
from holdfast.kit.connections.port import Grant, OAuthProvider
from holdfast.kit.leases import Lease, Leases
from holdfast.kit.vault import Vault
from holdfast.model import schema_of
from holdfast.store import Store, Transaction, put

T = TypeVar("T")
log = structlog.get_logger("holdfast.connections")

# Longer than a provider's client may take with all its retries.
LEASE_S: Final = 60.0
WAIT_S: Final = 20.0
ATTEMPTS: Final = 10


class SealedTokens:
    """Seals and opens the tokens of one connection's row."""

    def __init__(self, vault: Vault, models: ConnectionModels) -> None:
        self._fields = {name: vault.field(models.connection, name) for name in SEALED_TOKENS}

    def open(self, connection: ConnectionFields, name: str) -> str:
        sealed: str = getattr(connection, name)
        return self._fields[name].open(sealed, connection.id).reveal() if sealed else ""

    def sealer(self, id: str) -> Callable[[str, str], str]:
        return lambda name, token: self._fields[name].seal(token, id) if token else ""


class Refresher:
    def __init__(
        self,
        store: Store,
        tokens: SealedTokens,
        *,
        models: ConnectionModels,
        provider: Callable[[str], OAuthProvider],
        lease_s: float,
    ) -> None:
        self._store, self._clock, self._tokens, self._provider = store, store.clock, tokens, provider
        self._lease_s, self._kind = lease_s, models.connection
        self._leases: dict[str, Leases] = {}
        self._owner = secrets.token_hex(6)

    async def get(self, id: str) -> ConnectionFields:
        stored = await self._store.get(self._kind, id)
        if stored is None:
            raise NotFoundError(f"no connection {id!r}")
        return stored.doc

    async def refresh(self, seen: ConnectionFields) -> ConnectionFields:
        """The connection after a refresh, by this process or by another since it was `seen`.

        `ReauthRequiredError` when the grant is gone, `RetryLaterError` when the provider was unavailable.
        """
        leases = self._leases.setdefault(seen.tenant_id, Leases(self._store.tenant(seen.tenant_id)))
        lease = await leases.acquire(
            self._lease_name(seen), ttl_s=self._lease_s, owner=self._owner, purpose="refresh", wait_s=WAIT_S
        )
        if lease is None:
            raise RetryLaterError("another process is still refreshing this token", after_s=1.0)
        try:
            current = await self.get(seen.id)
            if _state(current) != _state(seen):
                return current
            return await self._call_provider(current, lease)
        finally:
            # If the store is unreachable, the lease expires by itself.
            with contextlib.suppress(RetryLaterError):
                await leases.release(lease)

    def _lease_name(self, connection: ConnectionFields) -> str:
        prefix = "connection" if self._kind is Connection else schema_of(self._kind).path.names[0]
        return f"{prefix}-{connection.id}"

    async def _call_provider(self, connection: ConnectionFields, lease: Lease) -> ConnectionFields:
        provider, now = self._provider(connection.provider), self._clock.now()
        try:
            grant, used = await self._request_grant(provider, connection, lease)
        except ReauthRequiredError as fault:
            return await self._record_refusal(connection, fault)
        except RetryLaterError as fault:
            wait = partial(delay_retry, now=self._clock.now(), after_s=fault.after_s, reason=fault.message)
            await self._settle(connection, wait)
            raise
        seal = self._tokens.sealer(connection.id)
        return await self._settle(
            connection, partial(apply_refresh, grant=grant, used=used, now=now, seal=seal)
        )

    async def _record_refusal(
        self, connection: ConnectionFields, fault: ReauthRequiredError
    ) -> ConnectionFields:
        """A refusal counts unless somebody stored something newer since the request."""
        stored = await self._settle(connection, partial(mark_refused, reason=fault.message))
        if stored.generation != connection.generation:
            return stored
        log.warning("connection needs reauth", connection=stored.id, provider=stored.provider)
        raise fault

    async def _request_grant(
        self, provider: OAuthProvider, connection: ConnectionFields, lease: Lease
    ) -> tuple[Grant, str]:
        """A new grant, and the refresh token it came with."""
        current = self._tokens.open(connection, "refresh_token")
        former = self._tokens.open(connection, "former_refresh_token")
        if not current:
            raise ReauthRequiredError(f"the access of {connection.name or connection.account} has ended")
        if lease.remaining_s <= 0:
            raise RetryLaterError("the lease ran out before the provider was called", after_s=1.0)
        try:
            return await provider.refresh(current), current
        except ReauthRequiredError:
            if not former or former == current:
                raise
        return await provider.refresh(former), former

    async def _settle(
        self, requested: ConnectionFields, change: Callable[[ConnectionFields], ConnectionFields]
    ) -> ConnectionFields:
        """Apply the change unless somebody stored something newer since; return what is stored then."""

        async def act(tx: Transaction) -> ConnectionFields:
            stored = await tx.get(self._kind, requested.id)
            if stored is None:
                raise NotFoundError(f"the connection {requested.id!r} was deleted meanwhile")
            if stored.doc.generation != requested.generation or stored.doc.status == "revoked":
                return stored.doc
            new = change(stored.doc)
            tx.write(put(new))
            return new

        return await retry_store(self._clock.sleep, lambda: self._store.transact(act))


def _state(connection: ConnectionFields) -> tuple[object, ...]:
    """What changes when somebody has called the provider."""
    return connection.generation, connection.status, connection.retry_at


async def retry_store(sleep: Callable[[float], Awaitable[None]], act: Callable[[], Awaitable[T]]) -> T:
    """Retry a commit whose data exists nowhere else while the store is unavailable."""
    for attempt in range(1, ATTEMPTS):
        try:
            return await act()
        except RetryLaterError as fault:
            await sleep(min(5.0, fault.after_s * attempt))
    return await act()
