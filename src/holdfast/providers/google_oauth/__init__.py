"""Google's token endpoint: service accounts with domain-wide delegation, and grants of people."""

from holdfast.providers.google_oauth.client import ServiceAccount
from holdfast.providers.google_oauth.types import OAuthClient, ServiceAccountKey, UserGrant
from holdfast.providers.google_oauth.user import UserGrants

__all__ = ["OAuthClient", "ServiceAccount", "ServiceAccountKey", "UserGrant", "UserGrants"]
