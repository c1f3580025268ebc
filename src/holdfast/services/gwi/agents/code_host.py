"""A repository at GitHub as agents see it: topics, trees, diffs; and the writes of a run, each made once.

Every write can be repeated: commits are made of fixed data, so that repeating one makes the same; branches
have names of our own; comments carry a marker by which an earlier one is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from holdfast.errors import AlreadyExistsError, ConflictError, TooLargeError, VersionConflictError
from holdfast.providers.github import GithubClient
from holdfast.providers.github.types import GitAuthor, GitTreeChange, GitTreeEntry, PullRequest
from holdfast.services.gwi.domain.changes import ChangedPath, PreparedChange

BODY_CHARACTERS_MAX: Final = 20_000
COMMENT_CHARACTERS_MAX: Final = 60_000
AUTHOR: Final = "Git With Intent"
EMAIL: Final = "gwi@users.noreply.github.com"


class PullTopic(msgspec.Struct, kw_only=True, rename="camel"):
    """The two sides of a pull request."""

    head_ref: str
    head_sha: str
    base_ref: str
    base_sha: str


class Topic(msgspec.Struct, kw_only=True, rename="camel"):
    """The issue or pull request that a run is about."""

    number: int | None = None
    title: str = ""
    body: str = ""
    url: str = ""
    labels: list[str] = []
    pull: PullTopic | None = None


class CodeHost:
    """One repository, as one installation of the App.

    Example: `topic = await host.topic(7)`
    """

    def __init__(self, client: GithubClient, repo: str, *, default_branch: str) -> None:
        self._client, self.repo, self.default_branch = client, repo, default_branch

    # -- reads ----------------------------------------------------------------------------------

    async def topic(self, number: int) -> Topic:
        """The issue or pull request with this number."""
        issue = await self._client.get_issue(self.repo, number)
        pull = None
        if issue.pull_request is not None:
            pull = _sides(await self._client.get_pull(self.repo, number))
        return Topic(
            number=number, title=issue.title, body=(issue.body or "")[:BODY_CHARACTERS_MAX],
            url=issue.html_url, labels=[label.name for label in issue.labels], pull=pull,
        )  # fmt: skip

    async def tip(self, branch: str) -> str:
        """The newest commit of a branch."""
        ref = await self._client.get_ref(self.repo, branch)
        if ref is None:
            raise ConflictError(f"{self.repo} has no branch {branch!r}")
        return ref.object.sha

    async def merge_base(self, base: str, head: str) -> str:
        return (await self._client.compare(self.repo, base, head=head)).merge_base_commit.sha

    async def diff(self, base: str, head: str) -> str:
        """The changes from the merge base to the head, in git's format."""
        files = (await self._client.compare(self.repo, base, head=head)).files
        return "".join(
            f"diff --git a/{one.previous_filename or one.filename} b/{one.filename}\n"
            + ("deleted file mode 100644\n" if one.status == "removed" else "")
            + (one.patch + "\n" if one.patch else "")
            for one in files
        )

    async def tree(self, commit: str) -> dict[str, GitTreeEntry]:
        """Every file at a commit, by its path."""
        root = (await self._client.get_commit(self.repo, commit)).tree.sha
        tree = await self._client.get_tree(self.repo, root)
        if tree.truncated:
            raise TooLargeError(f"{self.repo} has more files than GitHub lists at once")
        return {entry.path: entry for entry in tree.tree if entry.type == "blob"}

    async def blob(self, sha: str) -> bytes:
        return await self._client.get_blob(self.repo, sha)

    # -- writes ---------------------------------------------------------------------------------

    async def commit(self, change: PreparedChange, *, at: datetime) -> str:
        """Make the change's commit, on no branch yet; return its sha."""
        base = (await self._client.get_commit(self.repo, change.parents[0])).tree.sha
        entries = [await self._entry(path) for path in change.paths]
        tree = await self._client.create_tree(self.repo, base_tree=base, changes=entries)
        author = GitAuthor(name=AUTHOR, email=EMAIL, date=at)
        made = await self._client.create_commit(
            self.repo, message=change.message, tree=tree.sha, parents=change.parents, author=author
        )
        return made.sha

    async def _entry(self, path: ChangedPath) -> GitTreeChange:
        sha = path.blob
        if path.action != "delete" and sha is None:
            sha = await self._client.create_blob(self.repo, content=(path.content or "").encode())
        return GitTreeChange(path=path.file, sha=None if path.action == "delete" else sha, mode=path.mode)

    async def create_branch(self, branch: str, sha: str, *, message: str) -> bool:
        """Create a branch at a commit; False where an earlier attempt did.

        An earlier run may have left a commit with the same message, on an older base: it is replaced.
        """
        try:
            await self._client.create_ref(self.repo, branch, sha=sha)
        except AlreadyExistsError:
            tip = await self.tip(branch)
            if tip == sha:
                return False
            if (await self._client.get_commit(self.repo, tip)).message.strip() != message.strip():
                raise ConflictError(
                    f"the branch {branch} has commits of others; delete it and start again"
                ) from None
            await self._client.update_ref(self.repo, branch, sha=sha, force=True)
        return True

    async def advance_branch(self, branch: str, sha: str) -> None:
        """Move a branch forward to a commit; ConflictError where somebody pushed meanwhile."""
        if await self.tip(branch) == sha:
            return
        try:
            await self._client.update_ref(self.repo, branch, sha=sha)
        except VersionConflictError:
            raise ConflictError(f"somebody pushed to {branch} meanwhile; start again") from None

    async def open_pull(self, change: PreparedChange, *, body: str) -> tuple[PullRequest, bool]:
        """Open a pull request for the change's branch, unless an earlier attempt did; whether it was new."""
        found = await self._client.find_pull(self.repo, change.branch)
        if found is not None:
            return found, False
        made = await self._client.create_pull(
            self.repo, title=change.title, head=change.branch, base=change.target, body=body
        )
        return made, True

    async def comment(self, number: int, body: str, *, key: str) -> str:
        """Comment on an issue or pull request once for each key; return the comment's address."""
        marker = f"<!-- gwi {key} -->"
        for one in await self._client.list_comments(self.repo, number):
            if marker in one.body:
                return one.html_url
        text = body[:COMMENT_CHARACTERS_MAX]
        return (await self._client.create_comment(self.repo, number, body=f"{text}\n\n{marker}")).html_url


def _sides(pull: PullRequest) -> PullTopic:
    return PullTopic(
        head_ref=pull.head.ref, head_sha=pull.head.sha, base_ref=pull.base.ref, base_sha=pull.base.sha
    )


def changed_paths(before: dict[str, GitTreeEntry], after: dict[str, GitTreeEntry]) -> Sequence[str]:
    """The paths whose files differ, sorted."""
    return sorted(
        path
        for path in before.keys() | after.keys()
        if _identity(before.get(path)) != _identity(after.get(path))
    )


def _identity(entry: GitTreeEntry | None) -> tuple[str, str] | None:
    return None if entry is None else (entry.sha, entry.mode)
