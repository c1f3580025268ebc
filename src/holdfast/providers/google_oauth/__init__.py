"""Google's token endpoint: service accounts with domain-wide delegation, and grants of people."""

from holdfast.providers.google_oauth.client import ServiceAccount
from holdfast.providers.google_oauth.types import TOKEN_URL, OAuthClient, ServiceAccountKey, UserGrant
from holdfast.providers.google_oauth.user import UserGrants

__all__ = [
    "TOKEN_URL",
    "OAuthClient",
    "ServiceAccount",
    "ServiceAccountKey",
    "UserGrant",
    "UserGrants",
]
