"""Identity tokens of known issuers, as bearer tokens."""

from __future__ import annotations

from holdfast.http.authentication import Authenticated, Connection, bearer_of
from holdfast.kit.access.identities import Identities
from holdfast.kit.access.tokens import PREFIX


class OidcAuthenticator:
    """Bearer tokens of the form that identity tokens have."""

    def __init__(self, identities: Identities) -> None:
        self._identities = identities

    async def read(self, connection: Connection) -> Authenticated | None:
        token = bearer_of(connection.headers)
        if token.startswith(PREFIX) or token.count(".") != 2:
            return None
        return Authenticated(await self._identities.verify(token))
