"""Google's token endpoint: service accounts with domain-wide delegation."""

from holdfast.providers.google_oauth.client import ServiceAccount, ServiceAccountTokens
from holdfast.providers.google_oauth.types import TOKEN_URL, ServiceAccountKey

__all__ = ["TOKEN_URL", "ServiceAccount", "ServiceAccountKey", "ServiceAccountTokens"]
