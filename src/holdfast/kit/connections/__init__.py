"""Connections: OAuth grants of outside accounts to a tenant, stored sealed and refreshed.

    start ──► the person consents at the provider ──► finish ──► connected ◄──► needs_reauth
                                                                     │               │
    token (refreshed early, by one process at a time) ◄──────────────┘               ▼
                                                                                  revoked

    url = (await connections.start("google", scopes=[SCOPE], redirect_uri=back, tenant_id="acme")).url
    connection = await connections.finish(state, code)
    calendar = GoogleCalendar(session, connections.tokens(connection.id), clock=clock)

Any provider that implements `OAuthProvider` will do. The vault seals tokens, each for its row.
"""

from holdfast.kit.connections.connections import Connections, ConnectionTokens
from holdfast.kit.connections.consents import StartLink
from holdfast.kit.connections.models import (
    CONNECTION_INDEXES,
    CONNECTION_LIFE,
    CONNECTION_MODELS,
    Connection,
    ConnectionFields,
    ConnectionModels,
    Consent,
    connection_id,
)
from holdfast.kit.connections.port import Grant, OAuthProvider
from holdfast.kit.connections.purpose import ConsentHook, ConsentPurpose, FinishedConsent
from holdfast.kit.connections.sign_in import AuthorizationRequest, GrantedConsent

__all__ = [
    "CONNECTION_INDEXES",
    "CONNECTION_LIFE",
    "CONNECTION_MODELS",
    "AuthorizationRequest",
    "Connection",
    "ConnectionFields",
    "ConnectionModels",
    "ConnectionTokens",
    "Connections",
    "Consent",
    "ConsentHook",
    "ConsentPurpose",
    "FinishedConsent",
    "Grant",
    "GrantedConsent",
    "OAuthProvider",
    "StartLink",
    "connection_id",
]
