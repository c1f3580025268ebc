"""Routes of git's objects, files and checks."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from holdfast.simulators.github.events import GithubEvents
from holdfast.simulators.github.git_objects import FILE, Signature, SimulatedCommit, TreeFile
from holdfast.simulators.github.git_resources import GitResources, Json
from holdfast.simulators.github.refusals import ApiRefusal
from holdfast.simulators.github.repository import SimulatedCheck, SimulatedRepository
from holdfast.simulators.github.request_fields import int_of, text_of
from holdfast.simulators.github.resources import Resources
from holdfast.simulators.github.state import GithubState

RepoHandler = Callable[[SimulatedRepository, web.Request, Json], Any]


class GitRoutes:
    """Answers about the contents of repositories."""

    def __init__(self, state: GithubState, events: GithubEvents) -> None:
        self._state, self._events, self._show = state, events, GitResources(state)

    def table(self) -> list[tuple[str, str, RepoHandler]]:
        """Method, path below the repository, and handler of each route."""
        return [
            ("GET", "/git/ref/heads/{branch:.+}", self._ref),
            ("POST", "/git/refs", self._create_ref),
            ("PATCH", "/git/refs/heads/{branch:.+}", self._update_ref),
            ("GET", "/git/commits/{sha}", self._git_commit),
            ("POST", "/git/commits", self._create_commit),
            ("GET", "/git/trees/{sha}", self._tree),
            ("POST", "/git/trees", self._create_tree),
            ("GET", "/git/blobs/{sha}", self._blob),
            ("POST", "/git/blobs", self._create_blob),
            ("GET", "/contents/{path:.+}", self._content),
            ("GET", "/compare/{range:.+}", self._compare),
            ("POST", "/check-runs", self._create_check),
            ("PATCH", "/check-runs/{id:[0-9]+}", self._update_check),
            ("GET", "/commits/{ref}/check-runs", self._checks),
        ]

    def _ref(self, repo: SimulatedRepository, request: web.Request, body: Json) -> Json:
        branch = request.match_info["branch"]
        if branch not in repo.branches:
            raise ApiRefusal(404)
        return self._show.ref(repo, branch)

    def _create_ref(self, repo: SimulatedRepository, request: web.Request, body: Json) -> tuple[int, Json]:
        name, sha = str(body.get("ref", "")), str(body.get("sha", ""))
        branch = name.removeprefix("refs/heads/")
        if name == branch or not branch or " " in branch or ".." in branch:
            raise ApiRefusal(422, f"{name} is not a valid ref name.")
        if branch in repo.branches:
            raise ApiRefusal(422, "Reference already exists")
        if sha not in repo.git.commits:
            raise ApiRefusal(422, "Object does not exist")
        repo.branches[branch] = sha
        return 201, self._show.ref(repo, branch)

    def _update_ref(self, repo: SimulatedRepository, request: web.Request, body: Json) -> Json:
        branch, sha = request.match_info["branch"], str(body.get("sha", ""))
        if sha not in repo.git.commits:
            raise ApiRefusal(422, "Object does not exist")
        repo.move(branch, sha, force=bool(body.get("force")))
        self._events.announce_push(repo, branch, self._state.bot)
        return self._show.ref(repo, branch)

    def _git_commit(self, repo: SimulatedRepository, request: web.Request, body: Json) -> Json:
        return self._show.git_commit(repo, repo.git.commit(request.match_info["sha"]))

    def _create_commit(self, repo: SimulatedRepository, request: web.Request, body: Json) -> tuple[int, Json]:
        own = self._state.signature(self._state.bot)
        author = msgspec.convert(body["author"], Signature) if "author" in body else own
        committer = msgspec.convert(body["committer"], Signature) if "committer" in body else author
        parents = tuple(repo.git.commit(str(sha)).sha for sha in body.get("parents", []))
        tree = text_of(body, "tree", "Commit")
        repo.git.files(tree)
        commit = repo.git.add_commit(SimulatedCommit(
            tree=tree, parents=parents, message=text_of(body, "message", "Commit"), author=author,
            committer=committer,
        ))  # fmt: skip
        return 201, self._show.git_commit(repo, commit)

    def _tree(self, repo: SimulatedRepository, request: web.Request, body: Json) -> Json:
        return self._show.tree(repo, repo.branches.get(request.match_info["sha"], request.match_info["sha"]))

    def _create_tree(self, repo: SimulatedRepository, request: web.Request, body: Json) -> tuple[int, Json]:
        base = body.get("base_tree")
        files = dict(repo.git.files(str(base))) if base else {}
        for entry in body.get("tree", []):
            path = str(entry.get("path", ""))
            if entry.get("sha") is None and "content" not in entry:
                if files.pop(path, None) is None:
                    raise ApiRefusal(422, "GitRPC::BadObjectState")
                continue
            sha = entry.get("sha") or repo.git.add_blob(str(entry["content"]).encode())
            repo.git.blob(sha)
            files[path] = TreeFile(str(entry.get("mode", FILE)), sha)
        return 201, self._show.tree(repo, repo.git.add_tree(files))

    def _blob(self, repo: SimulatedRepository, request: web.Request, body: Json) -> Json:
        return self._show.blob(repo, request.match_info["sha"])

    def _create_blob(self, repo: SimulatedRepository, request: web.Request, body: Json) -> tuple[int, Json]:
        content = str(body.get("content", ""))
        data = base64.b64decode(content) if body.get("encoding") == "base64" else content.encode()
        shown = self._show.blob(repo, repo.git.add_blob(data))
        return 201, {"sha": shown["sha"], "url": shown["url"]}

    def _content(self, repo: SimulatedRepository, request: web.Request, body: Json) -> Json:
        path, ref = request.match_info["path"], request.query.get("ref", repo.default_branch)
        file = repo.git.files(repo.resolve(ref)).get(path)
        if file is None:
            raise ApiRefusal(404)
        return self._show.content(repo, path, file, ref)

    def _compare(self, repo: SimulatedRepository, request: web.Request, body: Json) -> Json:
        base, _, head = request.match_info["range"].partition("...")
        return self._show.comparison(repo, base, head)

    # -- checks ---------------------------------------------------------------------------------

    def _create_check(self, repo: SimulatedRepository, request: web.Request, body: Json) -> tuple[int, Json]:
        check = SimulatedCheck(
            id=self._state.next_id(), name=text_of(body, "name", "CheckRun"),
            head_sha=repo.resolve(text_of(body, "head_sha", "CheckRun")),
            external_id=str(body.get("external_id", "")), status="queued", conclusion=None, output={},
            started_at=self._state.clock.now(),
        )  # fmt: skip
        repo.checks[check.id] = check
        self._change(check, body)
        return 201, Resources(self._state).check(repo, check)

    def _update_check(self, repo: SimulatedRepository, request: web.Request, body: Json) -> Json:
        check = repo.checks.get(int_of(request.match_info["id"]))
        if check is None:
            raise ApiRefusal(404)
        self._change(check, body)
        return Resources(self._state).check(repo, check)

    def _change(self, check: SimulatedCheck, body: Json) -> None:
        check.status = str(body.get("status", check.status))
        check.conclusion = body.get("conclusion", check.conclusion)
        check.output = check.output | body.get("output", {})
        if check.conclusion is not None:
            check.status, check.completed_at = "completed", self._state.clock.now()

    def _checks(self, repo: SimulatedRepository, request: web.Request, body: Json) -> Json:
        sha = repo.resolve(request.match_info["ref"])
        found = [
            Resources(self._state).check(repo, one) for one in repo.checks.values() if one.head_sha == sha
        ]
        return {"total_count": len(found), "check_runs": found[::-1]}
