"""The connections of a tenant, or of all: start, finish, use, revoke."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from holdfast.errors import ForbiddenError, InvalidError, NotFoundError, ReauthRequiredError, RetryLaterError
from holdfast.kit import NO_TENANT
from holdfast.kit.connections.consents import Consents
from holdfast.kit.connections.decision import LAST_S, decide, expiry_of, is_valid_for, merge_grant
from holdfast.kit.connections.models import Connection, Consent, connection_id
from holdfast.kit.connections.port import Grant, OAuthProvider
from holdfast.kit.connections.token_refresh import LEASE_S, Refresher, SealedTokens, retry_store
from holdfast.kit.vault import Vault
from holdfast.store import Store, Transaction, put

MEMORY_S: Final = 60.0
REFRESHES_MAX: Final = 3


class AuthorizationRequest(msgspec.Struct, frozen=True):
    """The URL to send the person to, and the state they bring back."""

    url: str
    state: str


class Connections:
    """OAuth grants of outside accounts. A tenant's handle is limited to its own; any other crosses tenants.

    `lease_s` is how long one process may call a provider before another does: longer than the provider's
    client takes with all its retries.

    Example:
        connections = Connections(store, vault, {"google": UserGrants(session, client, clock=clock)})
        token = await connections.token(connection.id)
    """

    def __init__(
        self, store: Store, vault: Vault, providers: Mapping[str, OAuthProvider], *, lease_s: float = LEASE_S
    ) -> None:
        self._store = store if store.tenant_id else store.privileged()
        self._clock = store.clock
        self._tokens = SealedTokens(vault)
        self._consents = Consents(self._store, vault)
        self._refresher = Refresher(self._store, self._tokens, providers=providers, lease_s=lease_s)
        self._refreshes: dict[str, asyncio.Task[Connection]] = {}

    async def start(
        self,
        provider: str,
        *,
        scopes: Sequence[str],
        redirect_uri: str,
        tenant_id: str | None = None,
        hint: str = "",
        bound_to: str = "",
    ) -> AuthorizationRequest:
        """Start a sign-in, to be finished once, within ten minutes, in the same browser (`bound_to`)."""
        oauth_provider = self._refresher.provider(provider)
        tenant = self._store.tenant_id or tenant_id or NO_TENANT
        consent = await self._consents.create(
            provider, tenant_id=tenant, scopes=scopes, redirect_uri=redirect_uri, bound_to=bound_to
        )
        url = oauth_provider.authorize_url(
            state=consent.state,
            challenge=consent.challenge,
            redirect_uri=redirect_uri,
            scopes=scopes,
            hint=hint,
        )
        return AuthorizationRequest(url, consent.state)

    async def finish(self, state: str, code: str = "", *, error: str = "", bound_to: str = "") -> Connection:
        """Turn the provider's callback into a connection, new or in place of the one with this account.

        `UnverifiedError` for an invalid state, `ForbiddenError` when the person declined (`error`).
        """
        consent, verifier = await self._consents.redeem(state, bound_to=bound_to)
        if error or not code:
            raise ForbiddenError(f"{consent.provider} was not granted: {error[:100] or 'no code came back'}")
        provider = self._refresher.provider(consent.provider)
        grant = await provider.exchange(code, verifier=verifier.reveal(), redirect_uri=consent.redirect_uri)
        if not grant.account:
            raise InvalidError(f"{consent.provider} did not identify the account")
        # The code is spent: the grant exists nowhere else until it is stored.
        return await retry_store(
            self._clock.sleep, lambda: self._store.transact(lambda tx: self._connect(tx, consent, grant))
        )

    async def _connect(self, tx: Transaction, consent: Consent, grant: Grant) -> Connection:
        id = connection_id(consent.tenant_id, consent.provider, grant.account)
        seal, now = self._tokens.sealer(id), self._clock.now()
        stored = await tx.get(Connection, id)
        granted = Connection(
            id=id, tenant_id=consent.tenant_id, provider=consent.provider, account=grant.account,
            name=grant.name, scopes=list(grant.scopes) or consent.scopes, asked=consent.scopes,
            access_token=seal("access_token", grant.access_token),
            refresh_token=seal("refresh_token", grant.refresh_token),
            expires_at=expiry_of(grant, now), connected_at=now,
        )  # fmt: skip
        connection = merge_grant(granted, None if stored is None else stored.doc)
        tx.write(put(connection))
        return connection

    async def get(self, id: str) -> Connection:
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

    def _retry_later(self, connection: Connection) -> RetryLaterError:
        assert connection.retry_at is not None
        after_s = (connection.retry_at - self._clock.now()).total_seconds()
        return RetryLaterError(f"{_label(connection)}: {connection.reason}", after_s=max(0.0, after_s))

    async def _refresh(self, connection: Connection) -> Connection:
        """One refresh for all waiters in this process."""
        task = self._refreshes.get(connection.id)
        if task is None:
            task = self._refreshes[connection.id] = asyncio.ensure_future(self._refresher.refresh(connection))
            task.add_done_callback(lambda ended: self._refresh_ended(connection.id, ended))
        # A waiter that is cancelled must not cancel the refresh of the others.
        return await asyncio.shield(task)

    def _refresh_ended(self, id: str, task: asyncio.Task[Connection]) -> None:
        del self._refreshes[id]
        if not task.cancelled():
            # Retrieved here, or asyncio would report a failure that nobody waited for.
            task.exception()

    async def check(self, id: str) -> Connection:
        """Ask the provider now whether the grant works; complete a pending revocation."""
        connection = await self.get(id)
        if connection.status == "revoked":
            return await self.revoke(id)
        try:
            return await self._refresh(connection)
        except ReauthRequiredError:
            return await self.get(id)

    async def revoke(self, id: str, *, reason: str = "") -> Connection:
        """End a grant, here first and then at the provider; call it again if the provider was unavailable."""
        ended, _ = await self._store.transact(lambda tx: self.end(tx, id, reason=reason))
        return await self.notify_provider(ended)

    async def end(self, tx: Transaction, id: str, *, reason: str = "") -> tuple[Connection, bool]:
        """End a grant here, in the caller's transaction; call `notify_provider` after it.

        Returns the ended grant, and False where it had ended before.
        """
        stored = await tx.get(Connection, id)
        if stored is None:
            raise NotFoundError(f"no connection {id!r}")
        if stored.doc.status == "revoked":
            return stored.doc, False
        now = self._clock.now()
        ended = msgspec.structs.replace(
            stored.doc, status="revoked", reason=reason, ended_at=now, retry_at=None
        )
        tx.write(put(ended))
        return ended, True

    async def notify_provider(self, ended: Connection) -> Connection:
        """Revoke an ended grant at the provider, and delete its tokens."""
        token = self._tokens.open(ended, "refresh_token") or self._tokens.open(ended, "access_token")
        if not token:
            return ended
        with contextlib.suppress(ReauthRequiredError):  # it is gone already
            await self._refresher.provider(ended.provider).revoke(token)
        return await self._store.transact(lambda tx: self._delete_tokens(tx, ended.id, ended.generation))

    async def _delete_tokens(self, tx: Transaction, id: str, generation: int) -> Connection:
        """Delete the tokens of an ended grant, unless the account was connected again meanwhile."""
        stored = await tx.get(Connection, id)
        if stored is None or stored.doc.generation != generation or stored.doc.status != "revoked":
            return await self.get(id)
        cleared = msgspec.structs.replace(
            stored.doc, access_token="", refresh_token="", former_refresh_token="", expires_at=None
        )
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


def _label(connection: Connection) -> str:
    return f"the {connection.provider} account {connection.name or connection.account}"
