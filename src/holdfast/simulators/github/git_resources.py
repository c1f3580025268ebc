"""Git objects, files and comparisons as the REST API has them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from holdfast.simulators.github.addresses import GithubAddresses, node_id, time_text
from holdfast.simulators.github.comparison import FileDifference, differences
from holdfast.simulators.github.git_objects import SimulatedCommit, TreeFile
from holdfast.simulators.github.repository import SimulatedRepository
from holdfast.simulators.github.state import GithubState

Json = dict[str, Any]


class GitResources:
    """Builds the resources of git's objects."""

    def __init__(self, state: GithubState) -> None:
        self.urls = GithubAddresses(state)

    def changed_file(self, repo: SimulatedRepository, file: FileDifference, ref: str) -> Json:
        return {
            "sha": file.sha, "filename": file.path, "status": file.status, "additions": file.additions,
            "deletions": file.deletions, "changes": file.additions + file.deletions, "patch": file.patch,
            "blob_url": f"{self.urls.page(repo)}/blob/{ref}/{file.path}",
            "raw_url": f"{self.urls.page(repo)}/raw/{ref}/{file.path}",
            "contents_url": f"{self.urls.api(repo)}/contents/{file.path}?ref={ref}",
        }  # fmt: skip

    def ref(self, repo: SimulatedRepository, branch: str) -> Json:
        sha = repo.branches[branch]
        return {
            "ref": f"refs/heads/{branch}", "node_id": node_id("Ref", branch),
            "url": f"{self.urls.api(repo)}/git/refs/heads/{branch}",
            "object": {"type": "commit", "sha": sha, "url": f"{self.urls.api(repo)}/git/commits/{sha}"},
        }  # fmt: skip

    def git_commit(self, repo: SimulatedRepository, commit: SimulatedCommit) -> Json:
        url = f"{self.urls.api(repo)}/git"
        return {
            "sha": commit.sha, "node_id": node_id("Commit", commit.sha), "url": f"{url}/commits/{commit.sha}",
            "html_url": f"{self.urls.page(repo)}/commit/{commit.sha}", "message": commit.message,
            "author": _person(commit, "author"), "committer": _person(commit, "committer"),
            "tree": {"sha": commit.tree, "url": f"{url}/trees/{commit.tree}"},
            "parents": [self._parent(repo, sha) for sha in commit.parents],
            "verification": {
                "verified": False, "reason": "unsigned", "signature": None, "payload": None,
                "verified_at": None,
            },
        }  # fmt: skip

    def commit(self, repo: SimulatedRepository, sha: str) -> Json:
        """A commit as comparisons have it."""
        commit, url = repo.git.commit(sha), f"{self.urls.api(repo)}/commits/{sha}"
        inner = self.git_commit(repo, commit)
        return {
            "url": url, "sha": sha, "node_id": node_id("Commit", sha), "html_url": inner["html_url"],
            "comments_url": f"{url}/comments", "author": None, "committer": None,
            "parents": inner["parents"],
            "commit": {
                **{name: inner[name] for name in ("url", "author", "committer", "message", "tree")},
                "comment_count": 0, "verification": inner["verification"],
            },
        }  # fmt: skip

    def _parent(self, repo: SimulatedRepository, sha: str) -> Json:
        return {
            "sha": sha, "url": f"{self.urls.api(repo)}/commits/{sha}",
            "html_url": f"{self.urls.page(repo)}/commit/{sha}",
        }  # fmt: skip

    def blob(self, repo: SimulatedRepository, sha: str) -> Json:
        data = repo.git.blob(sha)
        return {
            "sha": sha, "node_id": node_id("Blob", sha), "size": len(data), "encoding": "base64",
            "url": f"{self.urls.api(repo)}/git/blobs/{sha}", "content": base64.encodebytes(data).decode(),
        }  # fmt: skip

    def tree(self, repo: SimulatedRepository, sha: str) -> Json:
        entries = [self._tree_entry(repo, path, file) for path, file in sorted(repo.git.files(sha).items())]
        tree = repo.git.commits[sha].tree if sha in repo.git.commits else sha
        return {
            "sha": tree, "url": f"{self.urls.api(repo)}/git/trees/{tree}", "truncated": False, "tree": entries
        }  # fmt: skip

    def _tree_entry(self, repo: SimulatedRepository, path: str, file: TreeFile) -> Json:
        return {
            "path": path, "mode": file.mode, "type": "blob", "sha": file.sha,
            "size": len(repo.git.blobs[file.sha]), "url": f"{self.urls.api(repo)}/git/blobs/{file.sha}",
        }  # fmt: skip

    def content(self, repo: SimulatedRepository, path: str, file: TreeFile, ref: str) -> Json:
        blob, url = self.blob(repo, file.sha), f"{self.urls.api(repo)}/contents/{path}?ref={ref}"
        page = f"{self.urls.page(repo)}/blob/{ref}/{path}"
        return {
            "type": "file", "encoding": "base64", "size": blob["size"], "name": path.rpartition("/")[2],
            "path": path, "content": blob["content"], "sha": file.sha, "url": url, "git_url": blob["url"],
            "html_url": page, "download_url": page,
            "_links": {"self": url, "git": blob["url"], "html": page},
        }  # fmt: skip

    def comparison(self, repo: SimulatedRepository, base: str, head: str) -> Json:
        one, other = repo.resolve(base), repo.resolve(head)
        middle = repo.git.merge_base(one, other)
        ahead, behind = commits_between(repo, one, other), commits_between(repo, other, one)
        status = "diverged" if ahead and behind else "ahead" if ahead else "behind" if behind else "identical"
        page = f"{self.urls.page(repo)}/compare/{base}...{head}"
        return {
            "url": f"{self.urls.api(repo)}/compare/{base}...{head}", "html_url": page, "permalink_url": page,
            "diff_url": f"{page}.diff", "patch_url": f"{page}.patch", "base_commit": self.commit(repo, one),
            "merge_base_commit": self.commit(repo, middle), "status": status, "ahead_by": len(ahead),
            "behind_by": len(behind), "total_commits": len(ahead),
            "commits": [self.commit(repo, sha) for sha in ahead],
            "files": [self.changed_file(repo, file, other) for file in differences(repo.git, middle, other)],
        }  # fmt: skip


def commits_between(repo: SimulatedRepository, base: str, head: str) -> Sequence[str]:
    """The commits of the head that the base lacks, oldest first."""
    known = set(repo.git.history(repo.resolve(base)))
    return [sha for sha in repo.git.history(repo.resolve(head)) if sha not in known][::-1]


def _person(commit: SimulatedCommit, which: str) -> Json:
    person = getattr(commit, which)
    return {"name": person.name, "email": person.email, "date": time_text(person.date)}
