"""Sign-ins: the way of a person to a provider and back, and the connection that it makes."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.errors import (
    ConfigError,
    ForbiddenError,
    HoldfastError,
    InvalidError,
    RetryLaterError,
    WrongTenantError,
)
from holdfast.kit import NO_TENANT
from holdfast.kit.connections.consents import ConsentRequest, Consents, StartLink
from holdfast.kit.connections.decision import expiry_of, merge_grant
from holdfast.kit.connections.models import ConnectionFields, ConnectionModels, Consent
from holdfast.kit.connections.port import Grant, OAuthProvider
from holdfast.kit.connections.purpose import ConsentPurpose, FinishedConsent
from holdfast.kit.connections.token_refresh import SealedTokens, retry_store
from holdfast.kit.vault import Vault
from holdfast.store import Query, Store, Transaction, put


class AuthorizationRequest(msgspec.Struct, frozen=True):
    """The URL to send the person to, and the state they bring back."""

    url: str
    state: str


class GrantedConsent(msgspec.Struct, frozen=True):
    """A consent that the provider has granted, before it is stored as a connection."""

    consent: Consent
    grant: Grant


class SignIns:
    """The part of `Connections` that makes them: start, or open a link; then finish."""

    def __init__(
        self,
        store: Store,
        vault: Vault,
        providers: Mapping[str, OAuthProvider],
        *,
        purposes: Mapping[str, ConsentPurpose] | None,
        models: ConnectionModels,
    ) -> None:
        self._store = store if store.tenant_id else store.privileged()
        self._clock = store.clock
        self._vault, self._models, self._tokens = vault, models, SealedTokens(vault, models)
        self._consents = Consents(self._store, vault)
        # As they are given, not copied: a runtime fills them after its services are built.
        self._providers, self._purposes = providers, {} if purposes is None else purposes

    async def start(
        self,
        provider: str,
        *,
        scopes: Sequence[str],
        redirect_uri: str,
        tenant_id: str | None = None,
        hint: str = "",
        bound_to: str = "",
        payload: Mapping[str, Any] | None = None,
    ) -> AuthorizationRequest:
        """Start a sign-in, to be finished once, within ten minutes, in the same browser (`bound_to`)."""
        self._provider(provider)
        asked = self._consent(
            provider, scopes=scopes, redirect_uri=redirect_uri, tenant_id=tenant_id, hint=hint,
            payload=payload,
        )  # fmt: skip
        return self._authorization(await self._consents.start(asked, bound_to=bound_to))

    def link(
        self,
        purpose: str,
        *,
        redirect_uri: str,
        tenant_id: str | None = None,
        payload: Mapping[str, Any] | None = None,
        hint: str = "",
        return_path: str = "",
    ) -> StartLink:
        """Prepare a link that starts a sign-in: for one use within ten minutes, with what it is bound to.

        Example: `link = connections.link("c4lendar", tenant_id=chat, payload={"chat": chat, "user": user},
        redirect_uri=uri)`, then commit `link.write` and send the token to that user.
        """
        declared = self._purpose(purpose)
        return self._consents.link(self._consent(
            declared.provider, scopes=declared.scopes, redirect_uri=redirect_uri, tenant_id=tenant_id,
            hint=hint, payload=payload, purpose=purpose, return_path=return_path,
        ))  # fmt: skip

    async def open_link(self, token: str, *, bound_to: str) -> AuthorizationRequest:
        """Open a start link in a browser (`bound_to`), which must bring the callback.

        `UnverifiedError` for a link that was opened before, has expired or never existed.
        """
        return self._authorization(await self._consents.open(token, bound_to=bound_to))

    def _consent(
        self, provider: str, *, tenant_id: str | None, scopes: Sequence[str],
        payload: Mapping[str, Any] | None, **fields: Any,
    ) -> Consent:  # fmt: skip
        now = self._clock.now()
        return Consent(
            id="0" * 64, tenant_id=self._store.tenant_id or tenant_id or NO_TENANT, provider=provider,
            scopes=list(scopes), payload=dict(payload or {}), created_at=now, expires_at=now, **fields,
        )  # fmt: skip

    def _authorization(self, request: ConsentRequest) -> AuthorizationRequest:
        consent = request.consent
        url = self._provider(consent.provider).authorize_url(
            state=request.state, challenge=request.challenge, redirect_uri=consent.redirect_uri,
            scopes=consent.scopes, hint=consent.hint,
        )  # fmt: skip
        return AuthorizationRequest(url, request.state)

    async def finish(
        self, state: str, code: str = "", *, error: str = "", bound_to: str = ""
    ) -> ConnectionFields:
        """Turn the provider's callback into a connection, new or in place of the one with this account.

        `UnverifiedError` for an invalid state, `ForbiddenError` when the person declined (`error`).
        """
        granted = await self.exchange(state, code, error=error, bound_to=bound_to)
        return await self.store_grant(
            granted, lambda: self._store.transact(lambda tx: self.connect(tx, granted))
        )

    async def exchange(
        self, state: str, code: str = "", *, error: str = "", bound_to: str = ""
    ) -> GrantedConsent:
        """Redeem the state and exchange the code; then `connect`, which stores it, by `store_grant`."""
        consent, verifier = await self._consents.redeem(state, bound_to=bound_to)
        if error or not code:
            raise ForbiddenError(f"{consent.provider} was not granted: {error[:100] or 'no code came back'}")
        if consent.purpose:
            self._purpose(consent.purpose)
        provider = self._provider(consent.provider)
        grant = await provider.exchange(code, verifier=verifier.reveal(), redirect_uri=consent.redirect_uri)
        if not grant.account:
            raise InvalidError(f"{consent.provider} did not identify the account")
        return GrantedConsent(consent, grant)

    async def store_grant(
        self, granted: GrantedConsent, commit: Callable[[], Awaitable[ConnectionFields]]
    ) -> ConnectionFields:
        """Run a commit of `connect`, and again while the store is unavailable.

        The code is spent: the grant exists nowhere else until it is stored. One that is refused for good is
        given back to the provider.
        """
        try:
            return await retry_store(self._clock.sleep, commit)
        except RetryLaterError:
            raise  # it may be stored all the same
        except HoldfastError:
            await self._give_back(granted)
            raise

    async def _give_back(self, granted: GrantedConsent) -> None:
        provider, grant = granted.consent.provider, granted.grant
        with contextlib.suppress(HoldfastError):
            # A tenant's handle can't know whether that would end another tenant's grant too.
            if not self._store.tenant_id and not await self.is_connected(provider, grant.account):
                await self._provider(provider).revoke(grant.refresh_token or grant.access_token)

    async def connect(self, tx: Transaction, granted: GrantedConsent) -> ConnectionFields:
        """Store a granted consent, and the rows of the service that wants it, in the caller's commit."""
        consent, grant = granted.consent, granted.grant
        models = self.models_of(consent)
        id = models.id_of(consent.tenant_id, consent.provider, grant.account)
        seal, now = SealedTokens(self._vault, models).sealer(id), self._clock.now()
        stored = await tx.get(models.connection, id)
        new = models.connection(
            id=id, tenant_id=consent.tenant_id, provider=consent.provider, account=grant.account,
            name=grant.name, scopes=list(grant.scopes) or consent.scopes, asked=consent.scopes,
            access_token=seal("access_token", grant.access_token),
            refresh_token=seal("refresh_token", grant.refresh_token),
            expires_at=expiry_of(grant, now), connected_at=now, purpose=consent.purpose,
            payload=consent.payload,
        )  # fmt: skip
        connection = merge_grant(new, None if stored is None else stored.doc)
        tx.write(put(connection))
        hook = self._purpose(consent.purpose).hook if consent.purpose else None
        if hook is not None:
            tx.write(*await hook(tx, FinishedConsent(connection, consent.payload)))
        return connection

    async def by_account(self, provider: str, account: str) -> list[ConnectionFields]:
        """The connections of one account in all tenants, ended ones too; no tenant's handle can ask."""
        if self._store.tenant_id:
            raise WrongTenantError("only a handle that crosses tenants can look up an account in all of them")
        return await self._of_account(self._models, provider, account)

    async def _of_account(
        self, models: ConnectionModels, provider: str, account: str
    ) -> list[ConnectionFields]:
        query = Query(models.connection).where("provider", "==", provider).where("account", "==", account)
        return [found.doc async for found in self._store.scan(query)]

    async def is_connected(self, provider: str, account: str) -> bool:
        """Whether any tenant has a connection with this account; a tenant's handle sees none."""
        if self._store.tenant_id:
            return False
        everywhere = {self._models, *(purpose.models for purpose in self._purposes.values())}
        found = [await self._of_account(models, provider, account) for models in everywhere]
        return any(one.status != "revoked" for some in found for one in some)

    def models_of(self, consent: Consent) -> ConnectionModels:
        """The models in whose collection the connection of a consent is stored: those of its purpose."""
        return self._purpose(consent.purpose).models if consent.purpose else self._models

    def _purpose(self, name: str) -> ConsentPurpose:
        if name not in self._purposes:
            raise ConfigError(f"no service here connects accounts for {name!r}")
        return self._purposes[name]

    def _provider(self, name: str) -> OAuthProvider:
        if name not in self._providers:
            raise ConfigError(f"no service here connects accounts of {name!r}")
        return self._providers[name]
