"""What GitHub's REST API answers, as far as it is used here; unknown fields are ignored."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

ChangeStatus = Literal["added", "removed", "modified", "renamed", "copied", "changed", "unchanged"]
CheckConclusion = Literal["success", "failure", "neutral", "cancelled", "skipped", "timed_out"]
CheckStatus = Literal["queued", "in_progress", "completed"]
ReviewEvent = Literal["COMMENT", "APPROVE", "REQUEST_CHANGES"]


class GithubRefusal(msgspec.Struct, frozen=True):
    """The body of a refusal; `errors` name fields, or are plain texts."""

    message: str = ""
    errors: list[msgspec.Raw] = []


class GithubAccount(msgspec.Struct, frozen=True, kw_only=True):
    """A person or an organisation."""

    id: int
    login: str
    type: str = "User"


class GithubRepository(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    full_name: str
    private: bool = False
    default_branch: str = "main"
    html_url: str = ""


class AppDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The App as GitHub knows it."""

    id: int
    slug: str
    name: str = ""


class AppInstallation(msgspec.Struct, frozen=True, kw_only=True):
    """An installation of the App, in an account."""

    id: int
    account: GithubAccount
    permissions: dict[str, str] = {}
    events: list[str] = []
    suspended_at: datetime | None = None
    created_at: datetime | None = None


class InstallationToken(msgspec.Struct, frozen=True):
    """A token of an installation; its repr hides it."""

    token: str
    expires_at: datetime

    def __repr__(self) -> str:
        return f"InstallationToken(expires_at={self.expires_at.isoformat()})"


class IssueLabel(msgspec.Struct, frozen=True):
    name: str = ""


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """An issue; one with `pull_request` is a pull request."""

    number: int
    title: str
    state: str
    html_url: str = ""
    body: str | None = None
    labels: list[IssueLabel] = []
    user: GithubAccount | None = None
    pull_request: Any = None


class IssueComment(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    body: str = ""
    html_url: str = ""
    user: GithubAccount | None = None


class PullBranch(msgspec.Struct, frozen=True, kw_only=True):
    """A side of a pull request; `repo` is None where the fork was deleted."""

    ref: str
    sha: str
    repo: GithubRepository | None = None


class PullRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A pull request; `mergeable` is None until GitHub has computed it, and in lists."""

    number: int
    title: str
    state: str
    head: PullBranch
    base: PullBranch
    html_url: str = ""
    body: str | None = None
    draft: bool = False
    merged: bool = False
    mergeable: bool | None = None
    mergeable_state: str = "unknown"
    labels: list[IssueLabel] = []
    user: GithubAccount | None = None
    additions: int = 0
    deletions: int = 0


class ChangedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a pull request or a comparison; `patch` is missing for binary and very large ones."""

    filename: str
    status: ChangeStatus
    sha: str | None = None
    additions: int = 0
    deletions: int = 0
    patch: str = ""
    previous_filename: str = ""


class PullReview(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    state: str
    html_url: str = ""


class ReviewComment(msgspec.Struct, frozen=True, kw_only=True):
    """A comment on one line of a file's new side."""

    path: str
    line: int
    body: str
    side: Literal["LEFT", "RIGHT"] = "RIGHT"


class GitObject(msgspec.Struct, frozen=True, kw_only=True):
    sha: str
    type: str = "commit"


class GitRef(msgspec.Struct, frozen=True, kw_only=True):
    """A reference by its full name: `refs/heads/main`."""

    ref: str
    object: GitObject


class GitBlob(msgspec.Struct, frozen=True, kw_only=True):
    sha: str
    content: str = ""
    encoding: str = "base64"
    size: int = 0


class GitTreeEntry(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    sha: str
    mode: str = "100644"
    type: str = "blob"
    size: int = 0


class GitTree(msgspec.Struct, frozen=True, kw_only=True):
    sha: str
    tree: list[GitTreeEntry] = []
    truncated: bool = False


class GitTreeChange(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a new tree: a blob by its `sha`, or None to delete the path."""

    path: str
    sha: str | None
    mode: str = "100644"
    type: str = "blob"


class GitAuthor(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    email: str
    date: datetime


class GitSha(msgspec.Struct, frozen=True):
    sha: str


class GitCommit(msgspec.Struct, frozen=True, kw_only=True):
    sha: str
    tree: GitSha
    message: str = ""
    parents: list[GitSha] = []


class FileContent(msgspec.Struct, frozen=True, kw_only=True):
    """A file by its path; empty `content` with encoding `none` above 1 MB: read its blob."""

    path: str
    sha: str
    content: str = ""
    encoding: str = "base64"
    size: int = 0


class CommitComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The commits and files between a base and a head."""

    status: str
    ahead_by: int
    merge_base_commit: GitSha
    files: list[ChangedFile] = []


class CheckOutput(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    summary: str
    text: str = ""


class CheckRun(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    head_sha: str
    status: str
    conclusion: str | None = None
    external_id: str = ""
    html_url: str | None = None


class RequiredReviews(msgspec.Struct, frozen=True, kw_only=True):
    required_approving_review_count: int = 0


class BranchProtection(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of a protected branch."""

    required_pull_request_reviews: RequiredReviews | None = None
