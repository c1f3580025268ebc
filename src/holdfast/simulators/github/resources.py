"""The resources of the REST API and of webhooks, in GitHub's shape with every field that it always gives."""

from __future__ import annotations

import zlib
from typing import Final

from holdfast.simulators.github.addresses import GithubAddresses, node_id, time_text
from holdfast.simulators.github.comparison import FileDifference, differences
from holdfast.simulators.github.deliveries import RecordedDelivery
from holdfast.simulators.github.git_resources import Json, commits_between
from holdfast.simulators.github.repository import (
    SimulatedAccount,
    SimulatedCheck,
    SimulatedComment,
    SimulatedIssue,
    SimulatedRepository,
    SimulatedReview,
)
from holdfast.simulators.github.state import (
    APP_ID,
    APP_SLUG,
    EVENTS,
    PERMISSIONS,
    GithubState,
    SimulatedInstallation,
)

_ACCOUNT_URLS: Final = (
    "followers", "following", "gists", "starred", "subscriptions", "organizations", "repos", "events",
    "received_events",
)  # fmt: skip
_REPOSITORY_URLS: Final = (
    "archive", "assignees", "blobs", "branches", "collaborators", "comments", "commits", "compare",
    "contents", "contributors", "deployments", "downloads", "events", "forks", "git_commits", "git_refs",
    "git_tags", "hooks", "issue_comment", "issue_events", "issues", "keys", "labels", "languages", "merges",
    "milestones", "notifications", "pulls", "releases", "stargazers", "statuses", "subscribers",
    "subscription", "tags", "teams", "trees",
)  # fmt: skip
_LABEL_COLOR: Final = "ededed"


class Resources:
    """Builds resources with the simulator's own addresses."""

    def __init__(self, state: GithubState) -> None:
        self.urls, self._now = GithubAddresses(state), state.clock.now

    # -- accounts and repositories --------------------------------------------------------------

    def account(self, account: SimulatedAccount) -> Json:
        url = f"{self.urls.url}/users/{account.login}"
        return {
            "login": account.login, "id": account.id, "node_id": node_id("User", account.id),
            "avatar_url": f"{self.urls.url}/avatars/{account.id}", "gravatar_id": "", "url": url,
            "html_url": f"{self.urls.url}/{account.login}", "type": account.type, "site_admin": False,
            **{f"{name}_url": f"{url}/{name}" for name in _ACCOUNT_URLS},
        }  # fmt: skip

    def organization(self, account: SimulatedAccount) -> Json:
        url = f"{self.urls.url}/orgs/{account.login}"
        names = ("repos", "events", "hooks", "issues", "members", "public_members")
        return {
            "login": account.login, "id": account.id, "node_id": node_id("Organization", account.id),
            "url": url, "avatar_url": f"{self.urls.url}/avatars/{account.id}", "description": "",
            **{f"{name}_url": f"{url}/{name}" for name in names},
        }  # fmt: skip

    def repository_name(self, repo: SimulatedRepository) -> Json:
        """The short form, in events about installations."""
        return {
            "id": repo.id, "node_id": node_id("Repository", repo.id), "name": repo.name,
            "full_name": repo.full_name, "private": repo.private,
        }  # fmt: skip

    def repository(self, repo: SimulatedRepository) -> Json:
        url, page, at = self.urls.api(repo), self.urls.page(repo), time_text(repo.created_at)
        open_issues = sum(one.state == "open" for one in repo.issues.values())
        counts = {"forks": 0, "watchers": 0, "open_issues": open_issues}
        return {
            **self.repository_name(repo), "owner": self.account(repo.owner), "html_url": page,
            "description": None, "fork": False, "url": url,
            **{f"{name}_url": f"{url}/{name}" for name in _REPOSITORY_URLS},
            "git_url": f"{page}.git", "ssh_url": f"{page}.git", "clone_url": f"{page}.git", "svn_url": page,
            "mirror_url": None, "homepage": None, "language": None, "license": None, "size": 1,
            "default_branch": repo.default_branch, **counts,
            **{f"{name}_count": value for name, value in counts.items()}, "stargazers_count": 0,
            "subscribers_count": 0, "network_count": 0, "has_issues": True, "has_projects": False,
            "has_wiki": False, "has_pages": False, "has_downloads": True, "has_discussions": False,
            "archived": False, "disabled": False, "visibility": "private" if repo.private else "public",
            "is_template": False, "allow_forking": True, "web_commit_signoff_required": False, "topics": [],
            "pushed_at": at, "created_at": at, "updated_at": at,
        }  # fmt: skip

    def app(self) -> Json:
        at, owner = time_text(self._now()), SimulatedAccount(id=1, login=APP_SLUG, type="Organization")
        return {
            "id": APP_ID, "slug": APP_SLUG, "node_id": node_id("App", APP_ID), "name": "Git With Intent",
            "client_id": f"Iv1.{APP_ID}", "owner": self.account(owner), "description": None,
            "external_url": self.urls.url, "html_url": f"{self.urls.url}/apps/{APP_SLUG}", "created_at": at,
            "updated_at": at, "permissions": PERMISSIONS, "events": list(EVENTS),
        }  # fmt: skip

    def installation(self, installation: SimulatedInstallation) -> Json:
        url = f"{self.urls.url}/app/installations/{installation.id}"
        suspended = installation.suspended_at
        return {
            "id": installation.id, "account": self.account(installation.account),
            "repository_selection": "all" if installation.repositories is None else "selected",
            "access_tokens_url": f"{url}/access_tokens",
            "repositories_url": f"{self.urls.url}/installation/repositories",
            "html_url": f"{self.urls.url}/organizations/{installation.account.login}/settings",
            "app_id": APP_ID, "app_slug": APP_SLUG, "target_id": installation.account.id,
            "target_type": installation.account.type, "permissions": PERMISSIONS, "events": list(EVENTS),
            "created_at": time_text(installation.created_at),
            "updated_at": time_text(installation.created_at), "single_file_name": None,
            "has_multiple_single_files": False, "single_file_paths": [],
            "suspended_by": None if suspended is None else self.account(installation.sender),
            "suspended_at": None if suspended is None else time_text(suspended),
        }  # fmt: skip

    # -- issues ---------------------------------------------------------------------------------

    def label(self, repo: SimulatedRepository, name: str) -> Json:
        return {
            "id": zlib.crc32(name.encode()), "node_id": node_id("Label", 0), "name": name,
            "description": None, "url": f"{self.urls.api(repo)}/labels/{name}", "color": _LABEL_COLOR,
            "default": False, "archived_at": None, "archived_by": None,
        }  # fmt: skip

    def issue(self, repo: SimulatedRepository, issue: SimulatedIssue) -> Json:
        url = f"{self.urls.api(repo)}/issues/{issue.number}"
        page = f"{self.urls.page(repo)}/{'pull' if issue.is_pull else 'issues'}/{issue.number}"
        comments = sum(one.number == issue.number for one in repo.comments.values())
        pull_url = f"{self.urls.api(repo)}/pulls/{issue.number}"
        pull = {"url": pull_url, "html_url": page, "diff_url": f"{page}.diff", "patch_url": f"{page}.patch"}
        return {
            **self._common(repo, issue), "url": url, "repository_url": self.urls.api(repo), "html_url": page,
            **{f"{name}_url": f"{url}/{name}" for name in ("labels", "comments", "events", "timeline")},
            "comments": comments, "reactions": self._reactions(url), "performed_via_github_app": None,
            **({"pull_request": pull, "draft": issue.draft} if issue.is_pull else {}),
        }  # fmt: skip

    def _common(self, repo: SimulatedRepository, issue: SimulatedIssue) -> Json:
        return {
            "id": issue.id, "node_id": node_id("Issue", issue.id), "number": issue.number,
            "state": issue.state, "title": issue.title, "body": issue.body or None,
            "user": self.account(issue.user),
            "labels": [self.label(repo, name) for name in issue.labels], "milestone": None, "locked": False,
            "assignee": None, "assignees": [], "author_association": "MEMBER", "active_lock_reason": None,
            "created_at": time_text(issue.created_at), "updated_at": time_text(issue.updated_at),
            "closed_at": None if issue.closed_at is None else time_text(issue.closed_at),
        }  # fmt: skip

    def comment(self, repo: SimulatedRepository, comment: SimulatedComment) -> Json:
        issue_url = f"{self.urls.api(repo)}/issues/{comment.number}"
        url = f"{self.urls.api(repo)}/issues/comments/{comment.id}"
        page = f"{self.urls.page(repo)}/issues/{comment.number}#issuecomment-{comment.id}"
        return {
            "id": comment.id, "node_id": node_id("IssueComment", comment.id), "url": url, "html_url": page,
            "body": comment.body, "user": self.account(comment.user), "issue_url": issue_url,
            "author_association": "MEMBER", "performed_via_github_app": None,
            "reactions": self._reactions(url), "created_at": time_text(comment.created_at),
            "updated_at": time_text(comment.updated_at),
        }  # fmt: skip

    def _reactions(self, url: str) -> Json:
        names = ("+1", "-1", "laugh", "hooray", "confused", "heart", "rocket", "eyes")
        return {"url": f"{url}/reactions", "total_count": 0, **dict.fromkeys(names, 0)}

    # -- pull requests --------------------------------------------------------------------------

    def pull(self, repo: SimulatedRepository, pull: SimulatedIssue) -> Json:
        """A pull request as lists have it."""
        url, page = f"{self.urls.api(repo)}/pulls/{pull.number}", f"{self.urls.page(repo)}/pull/{pull.number}"
        issue_url, head = f"{self.urls.api(repo)}/issues/{pull.number}", repo.branches.get(pull.head, "")
        links = {
            "self": url, "html": page, "issue": issue_url, "comments": f"{issue_url}/comments",
            "review_comments": f"{url}/comments", "review_comment": f"{self.urls.api(repo)}/pulls/comments",
            "commits": f"{url}/commits", "statuses": f"{self.urls.api(repo)}/statuses/{head}",
        }  # fmt: skip
        return {
            **self._common(repo, pull), "url": url, "html_url": page, "diff_url": f"{page}.diff",
            "patch_url": f"{page}.patch", "issue_url": issue_url,
            **{f"{name}_url": links[name] for name in (
                "comments", "review_comments", "review_comment", "commits", "statuses")},
            "merged_at": None if pull.merged_at is None else time_text(pull.merged_at),
            "merge_commit_sha": None, "requested_reviewers": [], "requested_teams": [], "auto_merge": None,
            "draft": pull.draft,
            "head": self._side(repo, pull.head), "base": self._side(repo, pull.base),
            "_links": {name: {"href": link} for name, link in links.items()},
        }  # fmt: skip

    def full_pull(self, repo: SimulatedRepository, pull: SimulatedIssue, *, computed: bool = True) -> Json:
        """A pull request by itself; whether it merges is None until it was computed."""
        files = self.pull_files(repo, pull)
        mergeable = not repo.conflicts(pull) if computed and pull.state == "open" else None
        state = {None: "unknown", True: "clean", False: "dirty"}[mergeable]
        return {
            **self.pull(repo, pull), "merged": pull.merged_at is not None, "mergeable": mergeable,
            "rebaseable": mergeable, "mergeable_state": state, "merged_by": None,
            "comments": sum(one.number == pull.number for one in repo.comments.values()),
            "review_comments": sum(len(one.comments) for one in pull.reviews),
            "maintainer_can_modify": False, "commits": len(commits_between(repo, pull.base, pull.head)),
            "additions": sum(one.additions for one in files),
            "deletions": sum(one.deletions for one in files), "changed_files": len(files),
        }  # fmt: skip

    def _side(self, repo: SimulatedRepository, branch: str) -> Json:
        return {
            "label": f"{repo.owner.login}:{branch}", "ref": branch, "sha": repo.branches.get(branch, ""),
            "user": self.account(repo.owner), "repo": self.repository(repo),
        }  # fmt: skip

    def pull_files(self, repo: SimulatedRepository, pull: SimulatedIssue) -> list[FileDifference]:
        head = repo.resolve(pull.head)
        return differences(repo.git, repo.git.merge_base(repo.resolve(pull.base), head), head)

    def review(self, repo: SimulatedRepository, pull: SimulatedIssue, review: SimulatedReview) -> Json:
        url = f"{self.urls.api(repo)}/pulls/{pull.number}"
        page = f"{self.urls.page(repo)}/pull/{pull.number}#pullrequestreview-{review.id}"
        return {
            "id": review.id, "node_id": node_id("Review", review.id), "user": self.account(review.user),
            "body": review.body, "state": review.state, "html_url": page, "pull_request_url": url,
            "_links": {"html": {"href": page}, "pull_request": {"href": url}}, "commit_id": review.commit,
            "author_association": "MEMBER", "submitted_at": time_text(review.submitted_at),
        }  # fmt: skip

    # -- checks, rules, deliveries --------------------------------------------------------------

    def check(self, repo: SimulatedRepository, check: SimulatedCheck) -> Json:
        url = f"{self.urls.api(repo)}/check-runs/{check.id}"
        output = {"title": None, "summary": None, "text": None} | check.output
        return {
            "id": check.id, "node_id": node_id("CheckRun", check.id), "name": check.name,
            "head_sha": check.head_sha, "external_id": check.external_id, "url": url,
            "html_url": f"{self.urls.page(repo)}/runs/{check.id}", "details_url": None,
            "status": check.status, "conclusion": check.conclusion, "started_at": time_text(check.started_at),
            "completed_at": None if check.completed_at is None else time_text(check.completed_at),
            "output": {**output, "annotations_count": 0, "annotations_url": f"{url}/annotations"},
            "check_suite": {"id": check.id}, "app": None, "pull_requests": [],
        }  # fmt: skip

    def protection(self, repo: SimulatedRepository, branch: str) -> Json:
        url = f"{self.urls.api(repo)}/branches/{branch}/protection"
        return {
            "url": url, "enforce_admins": {"url": f"{url}/enforce_admins", "enabled": True},
            "required_pull_request_reviews": {
                "url": f"{url}/required_pull_request_reviews", "dismiss_stale_reviews": True,
                "require_code_owner_reviews": False,
                "required_approving_review_count": repo.required_reviews[branch],
            },
        }  # fmt: skip

    def delivery(self, delivery: RecordedDelivery) -> Json:
        return {
            "id": delivery.id, "guid": delivery.guid, "delivered_at": delivery.delivered_at,
            "redelivery": delivery.redelivery, "duration": delivery.duration, "status": delivery.status,
            "status_code": delivery.status_code, "event": delivery.event, "action": delivery.action,
            "installation_id": delivery.installation_id, "repository_id": delivery.repository_id,
        }  # fmt: skip
