"""GitHub: an App and its installations, the REST API they use, webhooks and their delivery log."""

from holdfast.providers.github.app import GithubApp
from holdfast.providers.github.client import GITHUB_URL, GithubClient, decode_content
from holdfast.providers.github.delivery_log import GithubDeliveryLog
from holdfast.providers.github.types import (
    AppInstallation,
    BranchProtection,
    ChangedFile,
    CheckOutput,
    CheckRun,
    CommitComparison,
    FileContent,
    GitAuthor,
    GitCommit,
    GithubAccount,
    GithubRepository,
    GitRef,
    GitTree,
    GitTreeChange,
    GitTreeEntry,
    Issue,
    IssueComment,
    PullRequest,
    PullReview,
    ReviewComment,
)
from holdfast.providers.github.verifier import GithubVerifier

__all__ = [
    "GITHUB_URL",
    "AppInstallation",
    "BranchProtection",
    "ChangedFile",
    "CheckOutput",
    "CheckRun",
    "CommitComparison",
    "FileContent",
    "GitAuthor",
    "GitCommit",
    "GitRef",
    "GitTree",
    "GitTreeChange",
    "GitTreeEntry",
    "GithubAccount",
    "GithubApp",
    "GithubClient",
    "GithubDeliveryLog",
    "GithubRepository",
    "GithubVerifier",
    "Issue",
    "IssueComment",
    "PullRequest",
    "PullReview",
    "ReviewComment",
    "decode_content",
]
