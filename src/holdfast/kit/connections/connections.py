"""The connections of a tenant, or of all: begun, finished, used, revoked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from holdfast.errors import (
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ReauthRequiredError,
    RetryLaterError,
)
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
    """Where to send the person, and the state that they bring back."""

    url: str
    state: str


class Connections:
    """Grants of outside accounts. A tenant's handle keeps to its own; any other crosses tenants.

    `lease_s` is for how long one process may ask a provider before another does: longer than the provider's
    client takes with all its repeats.

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
        self._under_way: dict[str, asyncio.Task[Connection]] = {}

    # -- connecting -------------------------------------------------------------------------------

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
        """Begin a sign-in that must be finished within ten minutes, once, where it was begun (`bound_to`)."""
        chosen = self._refresher.provider(provider)
        tenant = self._store.tenant_id or tenant_id or NO_TENANT
        asked = await self._consents.create(
            provider, tenant_id=tenant, scopes=scopes, redirect_uri=redirect_uri, bound_to=bound_to
        )
        url = chosen.authorize_url(
            state=asked.state, challenge=asked.challenge, redirect_uri=redirect_uri, scopes=scopes, hint=hint
        )
        return AuthorizationRequest(url, asked.state)

    async def finish(self, state: str, code: str = "", *, error: str = "", bound_to: str = "") -> Connection:
        """Turn what the person brought back into a connection, new or in place of the one with this account.

        `UnverifiedError` when the state is not good, `ForbiddenError` when they said no (`error`).
        """
        consent, verifier = await self._consents.redeem(state, bound_to=bound_to)
        if error or not code:
            raise ForbiddenError(f"{consent.provider} was not granted: {error[:100] or 'no code came back'}")
        provider = self._refresher.provider(consent.provider)
        grant = await provider.exchange(code, verifier=verifier.reveal(), redirect_uri=consent.redirect_uri)
        if not grant.account:
            raise InvalidError(f"{consent.provider} did not say whose account this is")
        # The code is spent: what it brought exists nowhere else until it is kept.
        return await retry_store(
            self._clock.sleep, lambda: self._store.transact(lambda tx: self._connect(tx, consent, grant))
        )

    async def _connect(self, tx: Transaction, consent: Consent, grant: Grant) -> Connection:
        id = connection_id(consent.tenant_id, consent.provider, grant.account)
        seal, now = self._tokens.sealer(id), self._clock.now()
        found = await tx.get(Connection, id)
        made = Connection(
            id=id, tenant_id=consent.tenant_id, provider=consent.provider, account=grant.account,
            name=grant.name, scopes=list(grant.scopes) or consent.scopes, asked=consent.scopes,
            access_token=seal("access_token", grant.access_token),
            refresh_token=seal("refresh_token", grant.refresh_token),
            expires_at=expiry_of(grant, now), connected_at=now,
        )  # fmt: skip
        connection = merge_grant(made, None if found is None else found.doc)
        tx.write(put(connection))
        return connection

    # -- using ------------------------------------------------------------------------------------

    async def get(self, id: str) -> Connection:
        """The connection as it is stored; `NotFoundError` where there is none."""
        return await self._refresher.get(id)

    def tokens(self, id: str) -> ConnectionTokens:
        """A token source for clients of the provider; keep it, for it remembers the token for a moment."""
        return ConnectionTokens(self, id)

    async def token(self, id: str, *, rejected: str = "") -> str:
        """An access token that lasts for minutes, other than `rejected`.

        `ReauthRequiredError` when the owner must connect again, `RetryLaterError` when nobody can say now.
        """
        connection = await self.get(id)
        for _ in range(REFRESHES_MAX):
            token = self._tokens.open(connection, "access_token")
            unwanted = token == rejected
            act = decide(connection, self._clock.now(), rejected=unwanted)
            if act == "refuse":
                raise ReauthRequiredError(f"{_label(connection)}: {connection.reason or connection.status}")
            if act == "use":
                return token
            try:
                if act == "wait":
                    raise self._later(connection)
                connection = await self._refreshed(connection)
            except RetryLaterError:
                if not unwanted and is_valid_for(connection, self._clock.now(), LAST_S):
                    return token
                raise
        raise RetryLaterError(f"{_label(connection)}: each new token was refused at once", after_s=60.0)

    def _later(self, connection: Connection) -> RetryLaterError:
        assert connection.retry_at is not None
        after_s = (connection.retry_at - self._clock.now()).total_seconds()
        return RetryLaterError(f"{_label(connection)}: {connection.reason}", after_s=max(0.0, after_s))

    async def _refreshed(self, seen: Connection) -> Connection:
        """One refresh for all who wait in this process."""
        task = self._under_way.get(seen.id)
        if task is None:
            task = self._under_way[seen.id] = asyncio.ensure_future(self._refresher.refresh(seen))
            task.add_done_callback(lambda ended: self._ended(seen.id, ended))
        # Whoever gives up waiting must not take the token from the others.
        return await asyncio.shield(task)

    def _ended(self, id: str, task: asyncio.Task[Connection]) -> None:
        del self._under_way[id]
        if not task.cancelled():
            # Looked at here, or a failure that everybody stopped waiting for would be reported as unseen.
            task.exception()

    # -- caring -----------------------------------------------------------------------------------

    async def check(self, id: str) -> Connection:
        """Ask the provider now whether the grant works; where it was to be told of an end, tell it."""
        connection = await self.get(id)
        if connection.status == "revoked":
            return await self.revoke(id)
        try:
            return await self._refreshed(connection)
        except ReauthRequiredError:
            return await self.get(id)

    async def revoke(self, id: str, *, reason: str = "") -> Connection:
        """End a grant, here first and then at the provider; run it again where that could not be told."""
        ended, _ = await self._store.transact(lambda tx: self.end(tx, id, reason=reason))
        return await self.notify_provider(ended)

    async def end(self, tx: Transaction, id: str, *, reason: str = "") -> tuple[Connection, bool]:
        """End a grant here, in the caller's transaction, and `tell` the provider after it.

        Gives the ended grant, and False where it had ended before.
        """
        found = await tx.get(Connection, id)
        if found is None:
            raise NotFoundError(f"no connection {id!r}")
        if found.doc.status == "revoked":
            return found.doc, False
        now = self._clock.now()
        ended = msgspec.structs.replace(
            found.doc, status="revoked", reason=reason, ended_at=now, retry_at=None
        )
        tx.write(put(ended))
        return ended, True

    async def notify_provider(self, ended: Connection) -> Connection:
        """Tell the provider of a grant that has ended here, and forget its tokens."""
        token = self._tokens.open(ended, "refresh_token") or self._tokens.open(ended, "access_token")
        if not token:
            return ended
        with contextlib.suppress(ReauthRequiredError):  # it is gone already
            await self._refresher.provider(ended.provider).revoke(token)
        return await self._store.transact(lambda tx: self._forget(tx, ended.id, ended.generation))

    async def _forget(self, tx: Transaction, id: str, generation: int) -> Connection:
        """The tokens of an ended grant, unless the account was connected anew meanwhile."""
        found = await tx.get(Connection, id)
        if found is None or found.doc.generation != generation or found.doc.status != "revoked":
            return await self.get(id)
        bare = msgspec.structs.replace(
            found.doc, access_token="", refresh_token="", former_refresh_token="", expires_at=None
        )
        tx.write(put(bare))
        return bare


class ConnectionTokens:
    """A token source: asks the store once a minute at most, and at once when a token was rejected."""

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
