"""Refreshing a token: by one process at a time, and never over what a newer refresh brought.

A lease keeps processes from asking at once. It is not what makes it safe: whoever was paused past its end
still has the provider's answer in hand, which may be the only good one. So an answer is written when nobody
has written another since the question (`generation`), and thrown away otherwise; likewise a refusal.

What if the process dies between the provider's answer and our commit? The refresh token of before is still
stored. A provider that keeps it good (as Google does) or allows a grace gives the next process a new token;
one that has ended it answers `invalid_grant`, and the owner is asked to connect again.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, TypeVar

import structlog

from holdfast.errors import (
    ConfigError,
    NotFoundError,
    ReauthRequiredError,
    RetryLaterError,
)
from holdfast.kit.connections.decision import apply_refresh, delay_retry, mark_refused
from holdfast.kit.connections.models import SEALED_TOKENS, Connection
from holdfast.kit.connections.port import Grant, OAuthProvider
from holdfast.kit.leases import Lease, Leases
from holdfast.kit.vault import Vault
from holdfast.store import Store, Transaction, put

T = TypeVar("T")
log = structlog.get_logger("holdfast.connections")

# Longer than a provider's client may take with all its repeats.
LEASE_S: Final = 60.0
WAIT_S: Final = 20.0
KEEP_TRIES: Final = 10


class SealedTokens:
    """Seals and opens the tokens of one connection's row."""

    def __init__(self, vault: Vault) -> None:
        self._fields = {name: vault.field(Connection, name) for name in SEALED_TOKENS}

    def open(self, connection: Connection, name: str) -> str:
        sealed: str = getattr(connection, name)
        return self._fields[name].open(sealed, connection.id).reveal() if sealed else ""

    def sealer(self, id: str) -> Callable[[str, str], str]:
        return lambda name, token: self._fields[name].seal(token, id) if token else ""


class Refresher:
    """Brings one connection a new token."""

    def __init__(
        self, store: Store, tokens: SealedTokens, *, providers: Mapping[str, OAuthProvider], lease_s: float
    ) -> None:
        self._store, self._clock, self._tokens, self._providers = store, store.clock, tokens, providers
        self._lease_s = lease_s
        self._leases: dict[str, Leases] = {}
        self._owner = secrets.token_hex(6)

    def provider(self, name: str) -> OAuthProvider:
        if name not in self._providers:
            raise ConfigError(f"no service here connects accounts of {name!r}")
        return self._providers[name]

    async def get(self, id: str) -> Connection:
        found = await self._store.get(Connection, id)
        if found is None:
            raise NotFoundError(f"no connection {id!r}")
        return found.doc

    async def refresh(self, seen: Connection) -> Connection:
        """The connection after a refresh, be it by this process or by another since it was `seen`.

        Raises `ReauthRequiredError` when the grant is gone, `RetryLaterError` when nobody could say.
        """
        leases = self._leases.setdefault(seen.tenant_id, Leases(self._store.tenant(seen.tenant_id)))
        lease = await leases.acquire(
            f"connection-{seen.id}", ttl_s=self._lease_s, owner=self._owner, purpose="refresh", wait_s=WAIT_S
        )
        if lease is None:
            raise RetryLaterError("another process has been refreshing this token for long", after_s=1.0)
        try:
            current = await self.get(seen.id)
            if _state(current) != _state(seen):
                return current
            return await self._ask(current, lease)
        finally:
            # Unreachable now means that it runs out by itself.
            with contextlib.suppress(RetryLaterError):
                await leases.release(lease)

    async def _ask(self, connection: Connection, lease: Lease) -> Connection:
        provider, now = self.provider(connection.provider), self._clock.now()
        try:
            grant, used = await self._granted(provider, connection, lease)
        except ReauthRequiredError as fault:
            return await self._refused(connection, fault)
        except RetryLaterError as fault:
            wait = partial(delay_retry, now=self._clock.now(), after_s=fault.after_s, reason=fault.message)
            await self._settle(connection, wait)
            raise
        seal = self._tokens.sealer(connection.id)
        return await self._settle(
            connection, partial(apply_refresh, grant=grant, used=used, now=now, seal=seal)
        )

    async def _refused(self, connection: Connection, fault: ReauthRequiredError) -> Connection:
        """A refusal counts unless somebody brought something newer since the question."""
        kept = await self._settle(connection, partial(mark_refused, reason=fault.message))
        if kept.generation != connection.generation:
            return kept
        log.warning("connection needs reauth", connection=kept.id, provider=kept.provider)
        raise fault

    async def _granted(
        self, provider: OAuthProvider, connection: Connection, lease: Lease
    ) -> tuple[Grant, str]:
        """A new grant, and the refresh token that brought it."""
        current = self._tokens.open(connection, "refresh_token")
        former = self._tokens.open(connection, "former_refresh_token")
        if not current:
            raise ReauthRequiredError(f"the access of {connection.name or connection.account} has ended")
        if lease.remaining_s <= 0:
            raise RetryLaterError("it took too long to come to asking", after_s=1.0)
        try:
            return await provider.refresh(current), current
        except ReauthRequiredError:
            if not former or former == current:
                raise
        return await provider.refresh(former), former

    async def _settle(self, asked: Connection, change: Callable[[Connection], Connection]) -> Connection:
        """Make the change unless somebody brought something newer since; gives what is stored then."""

        async def act(tx: Transaction) -> Connection:
            found = await tx.get(Connection, asked.id)
            if found is None:
                raise NotFoundError(f"the connection {asked.id!r} was removed meanwhile")
            if found.doc.generation != asked.generation or found.doc.status == "revoked":
                return found.doc
            new = change(found.doc)
            tx.write(put(new))
            return new

        return await retry_store(self._clock.sleep, lambda: self._store.transact(act))


def _state(connection: Connection) -> tuple[object, ...]:
    """What tells whether somebody has asked the provider since."""
    return connection.generation, connection.status, connection.retry_at


async def retry_store(sleep: Callable[[float], Awaitable[None]], act: Callable[[], Awaitable[T]]) -> T:
    """Do what must not be lost for a store that is away for a moment; it looks before it writes again."""
    for attempt in range(1, KEEP_TRIES):
        try:
            return await act()
        except RetryLaterError as fault:
            await sleep(min(5.0, fault.after_s * attempt))
    return await act()
