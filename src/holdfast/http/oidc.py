"""Identity tokens of known issuers, as bearer tokens."""

from __future__ import annotations

from holdfast.http.authentication import Authenticated, Connection, bearer_of
from holdfast.kit.access.oidc import Oidc
from holdfast.kit.access.tokens import PREFIX


class OidcAuthenticator:
    """Bearer tokens of the form that identity tokens have."""

    def __init__(self, oidc: Oidc) -> None:
        self._oidc = oidc

    async def read(self, connection: Connection) -> Authenticated | None:
        token = bearer_of(connection.headers)
        if token.startswith(PREFIX) or token.count(".") != 2:
            return None
        return Authenticated(await self._oidc.verify(token))
