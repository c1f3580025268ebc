"""GitHub webhooks."""

from holdfast.providers.github.verifier import GithubVerifier

__all__ = ["GithubVerifier"]
