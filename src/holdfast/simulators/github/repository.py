"""A simulated repository: its branches, issues, pull requests, comments, checks and rules."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec

from holdfast.simulators.github.comparison import conflicts
from holdfast.simulators.github.git_objects import FILE, GitObjects, Signature, SimulatedCommit, TreeFile
from holdfast.simulators.github.refusals import ApiRefusal, invalid


class SimulatedAccount(msgspec.Struct, frozen=True, kw_only=True):
    """A person, an organisation, or the App's bot."""

    id: int
    login: str
    type: Literal["User", "Organization", "Bot"] = "User"


class SimulatedComment(msgspec.Struct, kw_only=True):
    id: int
    number: int
    user: SimulatedAccount
    body: str
    created_at: datetime
    updated_at: datetime


class SimulatedReview(msgspec.Struct, kw_only=True):
    id: int
    user: SimulatedAccount
    body: str
    state: str
    commit: str
    comments: list[dict[str, object]]
    submitted_at: datetime


class SimulatedIssue(msgspec.Struct, kw_only=True):
    """An issue; a pull request has a `head` and a `base`, which are names of branches."""

    id: int
    number: int
    title: str
    body: str
    user: SimulatedAccount
    created_at: datetime
    updated_at: datetime
    closed_at: datetime | None = None
    state: Literal["open", "closed"] = "open"
    labels: list[str] = []
    head: str = ""
    base: str = ""
    draft: bool = False
    merged_at: datetime | None = None
    reviews: list[SimulatedReview] = []

    @property
    def is_pull(self) -> bool:
        return bool(self.head)


class SimulatedCheck(msgspec.Struct, kw_only=True):
    id: int
    name: str
    head_sha: str
    external_id: str
    status: str
    conclusion: str | None
    output: dict[str, object]
    started_at: datetime
    completed_at: datetime | None = None


class SimulatedRepository:
    """One repository; pull requests are between its own branches."""

    def __init__(
        self, id: int, name: str, *, owner: SimulatedAccount, private: bool, created_at: datetime
    ) -> None:
        self.id, self.name, self.owner, self.private, self.created_at = id, name, owner, private, created_at
        self.default_branch, self.next_number = "main", 1
        self.git = GitObjects()
        self.branches: dict[str, str] = {}
        self.issues: dict[int, SimulatedIssue] = {}
        self.comments: dict[int, SimulatedComment] = {}
        self.checks: dict[int, SimulatedCheck] = {}
        self.required_reviews: dict[str, int] = {}  # by protected branch

    @property
    def full_name(self) -> str:
        return f"{self.owner.login}/{self.name}"

    def resolve(self, name: str) -> str:
        """The commit of a branch or SHA."""
        sha = self.branches.get(name.removeprefix("refs/heads/"), name)
        return self.git.commit(sha).sha

    def push(
        self, branch: str, files: Mapping[str, str | None], *, message: str, by: Signature
    ) -> tuple[str, SimulatedCommit]:
        """SimulatedCommit files to a branch (None deletes one); return the commit before and the new one.

        A branch that does not exist begins at the default branch.
        """
        before = self.branches.get(branch, self.branches.get(self.default_branch, ""))
        tree = dict(self.git.files(before)) if before else {}
        for path, text in files.items():
            if text is None:
                tree.pop(path, None)
            else:
                tree[path] = TreeFile(FILE, self.git.add_blob(text.encode()))
        commit = self.git.add_commit(SimulatedCommit(
            tree=self.git.add_tree(tree), parents=(before,) if before else (), message=message, author=by,
            committer=by,
        ))  # fmt: skip
        self.branches[branch] = commit.sha
        return before, commit

    def move(self, branch: str, sha: str, *, force: bool) -> None:
        """Move a branch; only forward without `force`, and never a protected one by force."""
        if branch not in self.branches:
            raise ApiRefusal(422, "Reference does not exist")
        forward = self.branches[branch] in self.git.history(self.resolve(sha))
        if not forward and (not force or branch in self.required_reviews):
            raise ApiRefusal(422, "Update is not a fast forward")
        self.branches[branch] = sha

    def issue(self, number: int, *, pull: bool = False) -> SimulatedIssue:
        found = self.issues.get(number)
        if found is None or (pull and not found.is_pull):
            raise ApiRefusal(404)
        return found

    def check_pull(self, head: str, base: str) -> None:
        """Refuse a pull request that GitHub would refuse."""
        for field, branch in (("head", head), ("base", base)):
            if branch not in self.branches:
                raise invalid("PullRequest", field)
        if self.branches[head] in self.git.history(self.branches[base]):
            raise invalid("PullRequest", "head", "custom", f"No commits between {base} and {head}")
        if any(one.state == "open" and (one.head, one.base) == (head, base) for one in self.issues.values()):
            text = f"A pull request already exists for {self.owner.login}:{head}."
            raise invalid("PullRequest", "base", "custom", text)

    def conflicts(self, pull: SimulatedIssue) -> list[str]:
        """The files of a pull request that don't merge."""
        return conflicts(self.git, self.resolve(pull.base), self.resolve(pull.head))
