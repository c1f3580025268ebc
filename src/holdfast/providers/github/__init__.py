"""GitHub: an App and its installations, the REST API they use, webhooks and their delivery log."""

from holdfast.providers.github.app import GithubApp
from holdfast.providers.github.client import GITHUB_URL, GithubClient
from holdfast.providers.github.delivery_log import GithubDeliveryLog
from holdfast.providers.github.types import CheckOutput, GitAuthor, GitTreeChange, ReviewComment
from holdfast.providers.github.verifier import GithubVerifier

__all__ = [
    "GITHUB_URL",
    "CheckOutput",
    "GitAuthor",
    "GitTreeChange",
    "GithubApp",
    "GithubClient",
    "GithubDeliveryLog",
    "GithubVerifier",
    "ReviewComment",
]
