"""GitHub webhooks."""

from holdfast.providers.github.delivery_log import GithubDeliveryLog
from holdfast.providers.github.verifier import GithubVerifier

__all__ = ["GithubDeliveryLog", "GithubVerifier"]
