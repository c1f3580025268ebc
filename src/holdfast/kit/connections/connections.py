"""The connections of a tenant, or of all: sign-in, use, end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast.errors import NotFoundError, ReauthRequiredError, RetryLaterError
from holdfast.kit.connections.decision import LAST_S, decide, is_valid_for, without_tokens
from holdfast.kit.connections.models import CONNECTION_MODELS, ConnectionFields, ConnectionModels
from holdfast.kit.connections.port import OAuthProvider
from holdfast.kit.connections.purpose import ConsentPurpose
from holdfast.kit.connections.sign_in import SignIns
from holdfast.kit.connections.token_refresh import LEASE_S, Refresher
from holdfast.kit.vault import Vault
from holdfast.store import Store, Transaction, put

MEMORY_S: Final = 60.0
REFRESHES_MAX: Final = 3


class Connections(SignIns):
    """OAuth grants of outside accounts. A tenant's handle is limited to its own; any other crosses tenants.

    `lease_s` is how long one process may call a provider before another does: longer than the provider's
    client takes with all its retries.

    Example:
        connections = Connections(store, vault, {"google": UserGrants(session, client, clock=clock)})
        token = await connections.token(connection.id)
    """

    def __init__(
        self,
        store: Store,
        vault: Vault,
        providers: Mapping[str, OAuthProvider],
        *,
        purposes: Mapping[str, ConsentPurpose] | None = None,
        lease_s: float = LEASE_S,
        models: ConnectionModels = CONNECTION_MODELS,
    ) -> None:
        super().__init__(store, vault, providers, purposes=purposes, models=models)
        self._refresher = Refresher(
            self._store, self._tokens, models=models, provider=self._provider, lease_s=lease_s
        )
        self._lease_s, self._others = lease_s, {models: self}
        self._refreshes: dict[str, asyncio.Task[ConnectionFields]] = {}

    @property
    def kind(self) -> type[ConnectionFields]:
        """The document class of these connections."""
        return self._models.connection

    def of(self, models: ConnectionModels) -> Connections:
        """The connections in the collection of these models; one object for each in this process.

        Example: `tokens = context.connections.of(GOOGLE).tokens(connection.id)`
        """
        if models not in self._others:
            other = Connections(
                self._store, self._vault, self._providers, purposes=self._purposes, lease_s=self._lease_s,
                models=models,
            )  # fmt: skip
            self._others[models], other._others = other, self._others
        return self._others[models]

    async def get(self, id: str) -> ConnectionFields:
        """The stored connection; `NotFoundError` where there is none."""
        return await self._refresher.get(id)

    def tokens(self, id: str) -> ConnectionTokens:
        """A token source for clients of the provider; keep it, because it caches the token for a minute."""
        return ConnectionTokens(self, id)

    async def token(self, id: str, *, rejected: str = "") -> str:
        """An access token that is valid for minutes, other than `rejected`.

        `ReauthRequiredError` when the owner must connect again, `RetryLaterError` when the provider is
        unavailable.
        """
        connection = await self.get(id)
        for _ in range(REFRESHES_MAX):
            token = self._tokens.open(connection, "access_token")
            is_rejected = token == rejected
            act = decide(connection, self._clock.now(), rejected=is_rejected)
            if act == "refuse":
                raise ReauthRequiredError(f"{_label(connection)}: {connection.reason or connection.status}")
            if act == "use":
                return token
            try:
                if act == "wait":
                    raise self._retry_later(connection)
                connection = await self._refresh(connection)
            except RetryLaterError:
                if not is_rejected and is_valid_for(connection, self._clock.now(), LAST_S):
                    return token
                raise
        raise RetryLaterError(f"{_label(connection)}: each new token was rejected", after_s=60.0)

    def _retry_later(self, connection: ConnectionFields) -> RetryLaterError:
        assert connection.retry_at is not None
        after_s = (connection.retry_at - self._clock.now()).total_seconds()
        return RetryLaterError(f"{_label(connection)}: {connection.reason}", after_s=max(0.0, after_s))

    async def _refresh(self, connection: ConnectionFields) -> ConnectionFields:
        """One refresh for all waiters in this process."""
        task = self._refreshes.get(connection.id)
        if task is None:
            task = self._refreshes[connection.id] = asyncio.ensure_future(self._refresher.refresh(connection))
            task.add_done_callback(lambda ended: self._refresh_ended(connection.id, ended))
        # A waiter that is cancelled must not cancel the refresh of the others.
        return await asyncio.shield(task)

    def _refresh_ended(self, id: str, task: asyncio.Task[ConnectionFields]) -> None:
        del self._refreshes[id]
        if not task.cancelled():
            # Retrieved here, or asyncio would report a failure that nobody waited for.
            task.exception()

    async def check(self, id: str) -> ConnectionFields:
        """Ask the provider now whether the grant works; complete a pending revocation."""
        connection = await self.get(id)
        if connection.status == "revoked":
            return await self.revoke(id)
        try:
            return await self._refresh(connection)
        except ReauthRequiredError:
            return await self.get(id)

    async def revoke(self, id: str, *, reason: str = "", at_provider: bool = True) -> ConnectionFields:
        """End a grant, here first and then at the provider; call it again if the provider was unavailable.

        Without `at_provider` it is ended here alone, and its tokens are deleted in the same commit.
        """
        ended, _ = await self._store.transact(
            lambda tx: self.end(tx, id, reason=reason, at_provider=at_provider)
        )
        return await self.notify_provider(ended)

    async def end(
        self, tx: Transaction, id: str, *, reason: str = "", at_provider: bool = True
    ) -> tuple[ConnectionFields, bool]:
        """End a grant here, in the caller's transaction; call `notify_provider` after it.

        Returns the ended grant, and False where it had ended before.
        """
        stored = await tx.get(self._models.connection, id)
        if stored is None:
            raise NotFoundError(f"no connection {id!r}")
        if stored.doc.status == "revoked":
            return stored.doc, False
        now = self._clock.now()
        ended = msgspec.structs.replace(
            stored.doc, status="revoked", reason=reason, ended_at=now, retry_at=None
        )
        ended = ended if at_provider else without_tokens(ended)
        tx.write(put(ended))
        return ended, True

    async def notify_provider(self, ended: ConnectionFields) -> ConnectionFields:
        """Revoke an ended grant at the provider, and delete its tokens.

        Where another tenant has a connection with the same account, the tokens are only deleted: providers
        revoke all that the account has granted. A tenant's own handle can't know of others, and tells.
        """
        token = self._tokens.open(ended, "refresh_token") or self._tokens.open(ended, "access_token")
        if not token:
            return ended
        # After the end is committed: of tenants that end at once, the last one sees no other.
        if not await self.is_connected(ended.provider, ended.account):
            with contextlib.suppress(ReauthRequiredError):  # it is gone already
                await self._provider(ended.provider).revoke(token)
        return await self._store.transact(lambda tx: self._delete_tokens(tx, ended.id, ended.generation))

    async def _delete_tokens(self, tx: Transaction, id: str, generation: int) -> ConnectionFields:
        """Delete the tokens of an ended grant, unless the account was connected again meanwhile."""
        stored = await tx.get(self._models.connection, id)
        if stored is None or stored.doc.generation != generation or stored.doc.status != "revoked":
            return await self.get(id)
        cleared = without_tokens(stored.doc)
        tx.write(put(cleared))
        return cleared


class ConnectionTokens:
    """A token source: reads the store once a minute at most, and at once when a token was rejected."""

    def __init__(self, connections: Connections, id: str) -> None:
        self._connections, self._id = connections, id
        self._token = ""
        self._asked_s = 0.0

    async def __call__(self, *, rejected: str = "") -> str:
        now_s = self._connections._clock.monotonic()
        if not self._token or self._token == rejected or now_s - self._asked_s >= MEMORY_S:
            self._token = await self._connections.token(self._id, rejected=rejected)
            self._asked_s = now_s
        return self._token


def _label(connection: ConnectionFields) -> str:
    return f"the {connection.provider} account {connection.name or connection.account}"
