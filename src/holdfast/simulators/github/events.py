"""What people and the App do on the simulated GitHub, with the webhook event of each act."""

from __future__ import annotations

from typing import Any

from holdfast.simulators.github.deliveries import HookEvent, encode_event
from holdfast.simulators.github.git_resources import Json
from holdfast.simulators.github.repository import (
    SimulatedAccount,
    SimulatedComment,
    SimulatedIssue,
    SimulatedRepository,
)
from holdfast.simulators.github.resources import Resources
from holdfast.simulators.github.state import GithubState, SimulatedInstallation


class GithubEvents:
    """Changes repositories and installations, and sends what the App hears of it."""

    def __init__(self, state: GithubState) -> None:
        self._state, self._show = state, Resources(state)

    # -- installations --------------------------------------------------------------------------

    def install(
        self, account: SimulatedAccount, sender: SimulatedAccount, repositories: set[int] | None
    ) -> SimulatedInstallation:
        """Install the App in an account, for all or for some of its repositories."""
        installation = SimulatedInstallation(
            id=self._state.next_id(), account=account, sender=sender, repositories=repositories,
            created_at=self._state.clock.now(),
        )  # fmt: skip
        self._state.installations[installation.id] = installation
        self._installation("created", installation, repositories=self._names(installation))
        return installation

    def uninstall(self, installation: SimulatedInstallation) -> None:
        names = self._names(installation)
        del self._state.installations[installation.id]
        self._installation("deleted", installation, repositories=names)

    def suspend(self, installation: SimulatedInstallation, *, suspended: bool) -> None:
        """Suspend an installation, or end that."""
        installation.suspended_at = self._state.clock.now() if suspended else None
        self._installation("suspend" if suspended else "unsuspend", installation)

    def select(self, installation: SimulatedInstallation, repositories: set[int]) -> None:
        """Let an installation reach these repositories only."""
        before = {one.id for one in self._state.repositories_of(installation)}
        installation.repositories = repositories
        for action, ids in (("added", repositories - before), ("removed", before - repositories)):
            if ids:
                named = [self._show.repository_name(self._state.repositories[id]) for id in sorted(ids)]
                changes: Json = {"repositories_added": [], "repositories_removed": []}
                changes[f"repositories_{action}"] = named
                self._send(
                    "installation_repositories", installation, action=action, requester=None,
                    installation=self._show.installation(installation), repository_selection="selected",
                    sender=self._show.account(installation.sender), **changes,
                )  # fmt: skip

    def _names(self, installation: SimulatedInstallation) -> list[Json]:
        return [self._show.repository_name(one) for one in self._state.repositories_of(installation)]

    def _installation(self, action: str, installation: SimulatedInstallation, **fields: Any) -> None:
        self._send(
            "installation", installation, action=action, installation=self._show.installation(installation),
            sender=self._show.account(installation.sender), **fields,
        )  # fmt: skip

    # -- issues and pull requests ---------------------------------------------------------------

    def open_issue(
        self, repo: SimulatedRepository, user: SimulatedAccount, *, title: str, body: str, labels: list[str]
    ) -> SimulatedIssue:
        issue = self._state.add_issue(repo, user, title=title, body=body, labels=labels)
        self._issue("opened", repo, issue, user)
        return issue

    def open_pull(
        self, repo: SimulatedRepository, user: SimulatedAccount, *, title: str, body: str, head: str,
        base: str, draft: bool = False, labels: list[str] | None = None,
    ) -> SimulatedIssue:  # fmt: skip
        repo.check_pull(head, base)
        pull = self._state.add_issue(
            repo, user, title=title, body=body, head=head, base=base, draft=draft, labels=labels or []
        )
        self._issue("opened", repo, pull, user)
        return pull

    def label(
        self, repo: SimulatedRepository, issue: SimulatedIssue, user: SimulatedAccount, name: str
    ) -> None:
        """Put a label on an issue or pull request, once."""
        if name not in issue.labels:
            issue.labels = [*issue.labels, name]
            self._issue("labeled", repo, issue, user, label=self._show.label(repo, name))

    def edit(
        self, repo: SimulatedRepository, issue: SimulatedIssue, user: SimulatedAccount, title: str
    ) -> None:
        """Give an issue or pull request another title."""
        changes = {"title": {"from": issue.title}}
        issue.title = title
        self._issue("edited", repo, issue, user, changes=changes)

    def close(
        self, repo: SimulatedRepository, issue: SimulatedIssue, user: SimulatedAccount, *, merge: bool = False
    ) -> None:
        """Close an issue or pull request; a merged one moves its base."""
        issue.state, issue.closed_at = "closed", self._state.clock.now()
        if merge and issue.is_pull:
            issue.merged_at = issue.closed_at
            repo.branches[issue.base] = repo.branches[issue.head]
        self._issue("closed", repo, issue, user)

    def comment(
        self, repo: SimulatedRepository, issue: SimulatedIssue, user: SimulatedAccount, body: str
    ) -> SimulatedComment:
        now = self._state.clock.now()
        comment = SimulatedComment(
            id=self._state.next_id(), number=issue.number, user=user, body=body, created_at=now,
            updated_at=now,
        )  # fmt: skip
        repo.comments[comment.id] = comment
        self._in_repository(
            "issue_comment", repo, user, action="created", issue=self._show.issue(repo, issue),
            comment=self._show.comment(repo, comment),
        )  # fmt: skip
        return comment

    def announce_push(
        self, repo: SimulatedRepository, branch: str, user: SimulatedAccount, before: str = ""
    ) -> None:
        """Tell of a branch that has moved, and of the pull requests from it."""
        after = repo.branches[branch]
        commit = repo.git.commit(after)
        shown = {
            "id": after, "tree_id": commit.tree, "distinct": True, "message": commit.message,
            "timestamp": commit.author.date, "url": f"{self._state.url}/{repo.full_name}/commit/{after}",
            "author": {"name": commit.author.name, "email": commit.author.email},
            "committer": {"name": commit.committer.name, "email": commit.committer.email},
            "added": [], "removed": [], "modified": [],
        }  # fmt: skip
        before = before or next(iter(commit.parents), "0" * 40)
        self._in_repository(
            "push", repo, user, ref=f"refs/heads/{branch}", before=before, after=after, created=False,
            deleted=False, forced=False, base_ref=None, commits=[shown], head_commit=shown,
            compare=f"{self._state.url}/{repo.full_name}/compare/{before[:12]}...{after[:12]}",
            pusher={"name": user.login, "email": commit.author.email},
        )  # fmt: skip
        for pull in list(repo.issues.values()):
            if pull.head == branch and pull.state == "open":
                self._issue("synchronize", repo, pull, user, before=before, after=after)

    def _issue(
        self, action: str, repo: SimulatedRepository, issue: SimulatedIssue, user: SimulatedAccount,
        **fields: Any,
    ) -> None:  # fmt: skip
        issue.updated_at = self._state.clock.now()
        if issue.is_pull:
            # GitHub has not computed it when it tells of a new commit.
            computed = action not in ("opened", "synchronize")
            fields |= {
                "number": issue.number, "pull_request": self._show.full_pull(repo, issue, computed=computed)
            }  # fmt: skip
        else:
            fields["issue"] = self._show.issue(repo, issue)
        self._in_repository(
            "pull_request" if issue.is_pull else "issues", repo, user, action=action, **fields
        )

    # -- sending --------------------------------------------------------------------------------

    def _in_repository(
        self, name: str, repo: SimulatedRepository, sender: SimulatedAccount, **fields: Any
    ) -> None:
        installation = self._state.installation_of(repo)
        if installation is None or installation.suspended_at is not None:
            return
        if repo.owner.type == "Organization":
            fields["organization"] = self._show.organization(repo.owner)
        short = {"id": installation.id, "node_id": f"installation{installation.id}"}
        self._send(
            name, installation, repository=self._show.repository(repo), sender=self._show.account(sender),
            repository_id=repo.id, **fields | {"installation": short},
        )  # fmt: skip

    def _send(
        self, name: str, about: SimulatedInstallation, *, repository_id: int | None = None, **payload: Any
    ) -> None:
        self._state.hook.send(HookEvent(
            name=name, body=encode_event(payload), action=payload.get("action"), installation_id=about.id,
            repository_id=repository_id,
        ))  # fmt: skip
