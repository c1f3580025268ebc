"""GitHub's REST API as an installation of an App: issues, pull requests, git objects, checks."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from holdfast.clock import Clock
from holdfast.errors import ConflictError, NotFoundError
from holdfast.net import HttpSession
from holdfast.providers.credentials import TokenSource
from holdfast.providers.github.conditional_reads import ConditionalReads
from holdfast.providers.github.faults import fault_of
from holdfast.providers.github.types import (
    BranchProtection,
    ChangedFile,
    CheckConclusion,
    CheckOutput,
    CheckRun,
    CheckStatus,
    CommitComparison,
    FileContent,
    GitAuthor,
    GitBlob,
    GitCommit,
    GithubRepository,
    GitRef,
    GitTree,
    GitTreeChange,
    Issue,
    IssueComment,
    PullRequest,
    PullReview,
    ReviewComment,
    ReviewEvent,
)
from holdfast.providers.rest import Call, CallLimits, RestClient, path_of

__all__ = ["GITHUB_URL", "GithubClient", "fault_of", "github_call"]

GITHUB_URL: Final = "https://api.github.com"
PAGE: Final = 100
HEADERS: Final = {
    "Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28", "User-Agent": "holdfast",
}  # fmt: skip
T = TypeVar("T")


def github_call(
    act: str, method: str, *path: str, query: Mapping[str, str | int] | None = None, body: Any = None,
    **options: Any,
) -> Call:  # fmt: skip
    """Return a call with the API's version; a path's segments stay segments."""
    pairs = tuple((name, str(value)) for name, value in (query or {}).items())
    data = None if body is None else msgspec.json.encode(body)
    return Call(act, method, path_of(*path), query=pairs, body=data, headers=HEADERS, **options)


class GithubClient:
    """GitHub as one installation; `repo` is a full name, `acme/api`.

    Reads are conditional: what has not changed is answered 304, which GitHub does not count. Git objects and
    references may be requested again after a failure, because the same request makes the same object or is
    refused with AlreadyExistsError; comments, reviews and pull requests may have been made
    (OutcomeUnknownError).

    Example: `pull = await GithubClient(session, tokens, clock=clock).get_pull("acme/api", 7)`
    """

    def __init__(
        self,
        session: HttpSession,
        tokens: TokenSource,
        *,
        clock: Clock,
        base_url: str = GITHUB_URL,
        limits: CallLimits = CallLimits(),
    ) -> None:
        self._rest = RestClient(
            session, base_url, fault_of=fault_of, clock=clock, tokens=tokens, limits=limits
        )
        self._reads = ConditionalReads(self._rest)

    # -- repositories ---------------------------------------------------------------------------

    async def get_repository(self, repo: str) -> GithubRepository:
        return await self._get("repos.get", GithubRepository, *_repo(repo))

    async def list_repositories(self) -> AsyncIterator[GithubRepository]:
        """Yield the repositories that the installation may reach."""
        page = 1
        while True:
            found = await self._get(
                "installation.repositories", _Repositories, "installation", "repositories",
                query={"per_page": PAGE, "page": page},
            )  # fmt: skip
            for one in found.repositories:
                yield one
            if len(found.repositories) < PAGE:
                return
            page += 1

    async def get_branch_protection(self, repo: str, branch: str) -> BranchProtection | None:
        """Return a branch's rules; None for one without."""
        try:
            return await self._get(
                "branches.protection", BranchProtection, *_repo(repo), "branches", branch, "protection"
            )
        except NotFoundError:
            return None

    # -- issues and comments --------------------------------------------------------------------

    async def get_issue(self, repo: str, number: int) -> Issue:
        return await self._get("issues.get", Issue, *_repo(repo), "issues", str(number))

    async def list_comments(self, repo: str, number: int) -> list[IssueComment]:
        """Return the comments of an issue or pull request, oldest first."""
        return await self._list(
            "comments.list", IssueComment, *_repo(repo), "issues", str(number), "comments"
        )

    async def create_comment(self, repo: str, number: int, *, body: str) -> IssueComment:
        """Comment on an issue or pull request."""
        path = (*_repo(repo), "issues", str(number), "comments")
        return await self._send("comments.create", IssueComment, "POST", *path, body={"body": body})

    async def update_comment(self, repo: str, comment_id: int, *, body: str) -> IssueComment:
        path = (*_repo(repo), "issues", "comments", str(comment_id))
        return await self._send("comments.update", IssueComment, "PATCH", *path, body={"body": body},
                                repeatable=True)  # fmt: skip

    async def add_labels(self, repo: str, number: int, *, labels: Sequence[str]) -> None:
        path = (*_repo(repo), "issues", str(number), "labels")
        await self._send("labels.add", msgspec.Raw, "POST", *path, body={"labels": labels}, repeatable=True)

    # -- pull requests --------------------------------------------------------------------------

    async def get_pull(self, repo: str, number: int) -> PullRequest:
        return await self._get("pulls.get", PullRequest, *_repo(repo), "pulls", str(number))

    async def list_pull_files(self, repo: str, number: int) -> list[ChangedFile]:
        """Return the files that a pull request changes; GitHub lists 3,000 at most."""
        return await self._list("pulls.files", ChangedFile, *_repo(repo), "pulls", str(number), "files")

    async def find_pull(self, repo: str, branch: str) -> PullRequest | None:
        """Return the newest pull request from a branch of the repository itself, in any state."""
        head = f"{repo.partition('/')[0]}:{branch}"
        found = await self._get(
            "pulls.list", list[PullRequest], *_repo(repo), "pulls",
            query={"head": head, "state": "all", "sort": "created", "direction": "desc", "per_page": 1},
        )  # fmt: skip
        return found[0] if found else None

    async def create_pull(
        self, repo: str, *, title: str, head: str, base: str, body: str = "", draft: bool = False
    ) -> PullRequest:
        """Open a pull request; AlreadyExistsError where its branch has one: `find_pull` returns it."""
        fields = {"title": title, "head": head, "base": base, "body": body, "draft": draft}
        return await self._send("pulls.create", PullRequest, "POST", *_repo(repo), "pulls", body=fields)

    async def update_pull(
        self, repo: str, number: int, *, title: str | None = None, body: str | None = None,
        state: str | None = None,
    ) -> PullRequest:  # fmt: skip
        fields = {"title": title, "body": body, "state": state}
        changes = {name: value for name, value in fields.items() if value is not None}
        path = (*_repo(repo), "pulls", str(number))
        return await self._send("pulls.update", PullRequest, "PATCH", *path, body=changes, repeatable=True)

    async def create_review(
        self, repo: str, number: int, *, body: str, commit: str, event: ReviewEvent = "COMMENT",
        comments: Sequence[ReviewComment] = (),
    ) -> PullReview:  # fmt: skip
        """Review a pull request at a commit."""
        fields = {"body": body, "commit_id": commit, "event": event, "comments": comments}
        path = (*_repo(repo), "pulls", str(number), "reviews")
        return await self._send("pulls.review", PullReview, "POST", *path, body=fields)

    # -- git ------------------------------------------------------------------------------------

    async def get_ref(self, repo: str, branch: str) -> GitRef | None:
        """Return the reference of a branch; None where there is none."""
        try:
            return await self._get(
                "refs.get", GitRef, *_repo(repo), "git", "ref", "heads", *branch.split("/")
            )
        except NotFoundError:
            return None

    async def create_ref(self, repo: str, branch: str, *, sha: str) -> GitRef:
        """Create a branch; AlreadyExistsError where there is one."""
        body = {"ref": f"refs/heads/{branch}", "sha": sha}
        return await self._send("refs.create", GitRef, "POST", *_repo(repo), "git", "refs", body=body,
                                repeatable=True)  # fmt: skip

    async def update_ref(self, repo: str, branch: str, *, sha: str, force: bool = False) -> GitRef:
        """Move a branch; VersionConflictError where that is no fast-forward."""
        path = (*_repo(repo), "git", "refs", "heads", *branch.split("/"))
        return await self._send("refs.update", GitRef, "PATCH", *path, body={"sha": sha, "force": force},
                                repeatable=True)  # fmt: skip

    async def get_commit(self, repo: str, sha: str) -> GitCommit:
        return await self._get("commits.get", GitCommit, *_repo(repo), "git", "commits", sha)

    async def create_commit(
        self, repo: str, *, message: str, tree: str, parents: Sequence[str], author: GitAuthor
    ) -> GitCommit:
        """Create a commit object; the same author, date, tree and parents make the same commit."""
        fields = {
            "message": message, "tree": tree, "parents": parents, "author": author, "committer": author,
        }  # fmt: skip
        return await self._send("commits.create", GitCommit, "POST", *_repo(repo), "git", "commits",
                                body=fields, repeatable=True)  # fmt: skip

    async def get_tree(self, repo: str, sha: str, *, recursive: bool = True) -> GitTree:
        query = {"recursive": 1} if recursive else {}
        return await self._get("trees.get", GitTree, *_repo(repo), "git", "trees", sha, query=query)

    async def create_tree(self, repo: str, *, base_tree: str, changes: Sequence[GitTreeChange]) -> GitTree:
        body = {"base_tree": base_tree, "tree": changes}
        return await self._send("trees.create", GitTree, "POST", *_repo(repo), "git", "trees", body=body,
                                repeatable=True)  # fmt: skip

    async def get_blob(self, repo: str, sha: str) -> bytes:
        return decode_content(await self._get("blobs.get", GitBlob, *_repo(repo), "git", "blobs", sha))

    async def create_blob(self, repo: str, *, content: bytes) -> str:
        """Store a blob; return its sha."""
        body = {"content": base64.b64encode(content).decode(), "encoding": "base64"}
        path = (*_repo(repo), "git", "blobs")
        made = await self._send("blobs.create", GitBlob, "POST", *path, body=body, repeatable=True)
        return made.sha

    async def get_file(self, repo: str, path: str, *, ref: str) -> FileContent | None:
        """Return a file at a branch or commit; None where there is none."""
        try:
            return await self._get(
                "contents.get", FileContent, *_repo(repo), "contents", *path.split("/"), query={"ref": ref}
            )
        except NotFoundError:
            return None

    async def compare(self, repo: str, base: str, *, head: str) -> CommitComparison:
        """Compare two branches or commits, from their merge base."""
        return await self._get("repos.compare", CommitComparison, *_repo(repo), "compare", f"{base}...{head}")

    # -- checks ---------------------------------------------------------------------------------

    async def create_check_run(
        self, repo: str, *, name: str, head_sha: str, status: CheckStatus = "queued",
        conclusion: CheckConclusion | None = None, external_id: str = "", output: CheckOutput | None = None,
    ) -> CheckRun:  # fmt: skip
        """Add a check to a commit; `external_id` lets it be recognised."""
        fields = {"name": name, "head_sha": head_sha, "external_id": external_id}
        fields |= _check_fields(status, conclusion, output)
        return await self._send("checks.create", CheckRun, "POST", *_repo(repo), "check-runs", body=fields)

    async def update_check_run(
        self, repo: str, check_run_id: int, *, status: CheckStatus,
        conclusion: CheckConclusion | None = None, output: CheckOutput | None = None,
    ) -> CheckRun:  # fmt: skip
        path = (*_repo(repo), "check-runs", str(check_run_id))
        body = _check_fields(status, conclusion, output)
        return await self._send("checks.update", CheckRun, "PATCH", *path, body=body, repeatable=True)

    async def list_check_runs(self, repo: str, ref: str) -> list[CheckRun]:
        """Return the newest checks of a commit or branch, 100 at most."""
        path = (*_repo(repo), "commits", ref, "check-runs")
        return (await self._get("checks.list", _CheckRuns, *path, query={"per_page": PAGE})).check_runs

    # -- requests -------------------------------------------------------------------------------

    async def _list(self, act: str, kind: type[T], *path: str) -> list[T]:
        found: list[T] = []
        for page in range(1, 1_000):
            some = await self._get(act, list[kind], *path, query={"per_page": PAGE, "page": page})  # type: ignore[valid-type]
            found += some
            if len(some) < PAGE:
                break
        return found

    async def _get(
        self, act: str, kind: type[T], *path: str, query: Mapping[str, str | int] | None = None
    ) -> T:
        return await self._reads.fetch(github_call(act, "GET", *path, query=query), kind)

    async def _send(self, act: str, kind: type[T], method: str, *path: str, **options: Any) -> T:
        return await self._rest.fetch(github_call(act, method, *path, **options), kind)


def decode_content(file: FileContent | GitBlob) -> bytes:
    """Return the bytes of a file or blob; ConflictError for a file that GitHub gives no content for."""
    if file.encoding == "none":
        raise ConflictError("GitHub gives the content of files above 1 MB as a blob only; read the blob")
    if file.encoding != "base64":
        return file.content.encode()
    try:
        return base64.b64decode(file.content)
    except binascii.Error:
        raise ConflictError("GitHub answered content that is no base64; read it again") from None


class _Repositories(msgspec.Struct, frozen=True):
    repositories: list[GithubRepository]


class _CheckRuns(msgspec.Struct, frozen=True):
    check_runs: list[CheckRun]


def _repo(repo: str) -> tuple[str, ...]:
    owner, _, name = repo.partition("/")
    return ("repos", owner, name)


def _check_fields(
    status: CheckStatus, conclusion: CheckConclusion | None, output: CheckOutput | None
) -> dict[str, Any]:
    fields = {"status": status, "conclusion": conclusion, "output": output}
    return {name: value for name, value in fields.items() if value is not None}
