"""The routes of the REST API that an App needs."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from holdfast.simulators.github.events import GithubEvents
from holdfast.simulators.github.git_resources import GitResources, Json
from holdfast.simulators.github.git_routes import GitRoutes, RepoHandler
from holdfast.simulators.github.refusals import ApiRefusal, invalid
from holdfast.simulators.github.repository import SimulatedIssue, SimulatedRepository, SimulatedReview
from holdfast.simulators.github.request_fields import PAGE_MAX, int_of, page_of, text_of
from holdfast.simulators.github.resources import Resources
from holdfast.simulators.github.state import GithubState, SimulatedInstallation

_REVIEW_STATES: Final = {
    "COMMENT": "COMMENTED", "APPROVE": "APPROVED", "REQUEST_CHANGES": "CHANGES_REQUESTED"
}  # fmt: skip


class GithubRoutes:
    """Answers as GitHub would, for the App and for its installations."""

    def __init__(self, state: GithubState, events: GithubEvents) -> None:
        self._state, self._events, self._show = state, events, Resources(state)

    def add_to(self, app: web.Application) -> None:
        add = app.router.add_route
        add("GET", "/app", self._as_app(lambda request: self._show.app()))
        add("GET", "/app/installations/{id}", self._as_app(self._installation))
        add("POST", "/app/installations/{id}/access_tokens", self._as_app(self._token))
        add("GET", "/app/hook/deliveries", self._as_app(self._deliveries))
        add("POST", "/app/hook/deliveries/{id}/attempts", self._as_app(self._redeliver))
        add("GET", "/installation/repositories", self._as_installation(self._repositories))
        for method, path, act in (
            ("GET", "", self._repository),
            ("GET", "/branches/{branch:[^/]+}/protection", self._protection),
            ("GET", "/issues/{number:[0-9]+}", self._issue),
            ("GET", "/issues/{number:[0-9]+}/comments", self._comments),
            ("POST", "/issues/{number:[0-9]+}/comments", self._comment),
            ("POST", "/issues/{number:[0-9]+}/labels", self._label),
            ("PATCH", "/issues/comments/{id:[0-9]+}", self._edit_comment),
            ("GET", "/pulls", self._pulls),
            ("POST", "/pulls", self._open_pull),
            ("GET", "/pulls/{number:[0-9]+}", self._pull),
            ("PATCH", "/pulls/{number:[0-9]+}", self._edit_pull),
            ("GET", "/pulls/{number:[0-9]+}/files", self._pull_files),
            ("POST", "/pulls/{number:[0-9]+}/reviews", self._review),
            *GitRoutes(self._state, self._events).table(),
        ):
            add(method, "/repos/{owner}/{repo}" + path, self._in_repository(act))

    # -- who calls ------------------------------------------------------------------------------

    def _as_app(self, act: Callable[[web.Request], Any]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            try:
                self._state.check_app(_token(request))
                return _answer(request, act(request))
            except ApiRefusal as refusal:
                return refusal.response()

        return handle

    def _as_installation(
        self, act: Callable[[SimulatedInstallation, web.Request, Json], Any]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            caller: SimulatedInstallation | None = None
            try:
                caller = self._state.caller(_token(request))
                self._state.count_call(caller, writes=request.method != "GET")
                response = _answer(request, act(caller, request, await _body(request)))
            except ApiRefusal as refusal:
                response = refusal.response()
            if caller is not None:
                if response.status == 304:
                    caller.calls.pop()
                response.headers.update(self._state.limit_headers(caller))
            return response

        return handle

    def _in_repository(self, act: RepoHandler) -> Callable[[web.Request], Awaitable[web.Response]]:
        def handle(caller: SimulatedInstallation, request: web.Request, body: Json) -> Any:
            found = self._state.repository("{owner}/{repo}".format(**request.match_info))
            if not self._state.reaches(caller, found):
                raise ApiRefusal(404)
            return act(found, request, body)

        return self._as_installation(handle)

    # -- the App --------------------------------------------------------------------------------

    def _installation(self, request: web.Request) -> Json:
        return self._show.installation(self._state.installation(int_of(request.match_info["id"])))

    def _token(self, request: web.Request) -> tuple[int, Json]:
        token, ends_at = self._state.grant(int_of(request.match_info["id"]))
        return 201, {"token": token, "expires_at": ends_at.strftime("%Y-%m-%dT%H:%M:%SZ")}

    def _deliveries(self, request: web.Request) -> tuple[int, list[Json], dict[str, str]]:
        size = min(int_of(request.query.get("per_page", "30")), PAGE_MAX)
        before = int_of(request.query.get("cursor", "v1_0").removeprefix("v1_"))
        listed = [one for one in self._state.hook.log if not before or one.id < before]
        page, headers = listed[:size], dict[str, str]()
        if len(listed) > size:
            url = request.url.with_query(per_page=size, cursor=f"v1_{page[-1].id}")
            headers["Link"] = f'<{url}>; rel="next"'
        return 200, [self._show.delivery(one) for one in page], headers

    def _redeliver(self, request: web.Request) -> tuple[int, Json]:
        self._state.hook.redeliver(int_of(request.match_info["id"]))
        return 202, {}

    def _repositories(self, caller: SimulatedInstallation, request: web.Request, body: Json) -> Json:
        found = self._state.repositories_of(caller)
        shown = [self._show.repository(one) for one in page_of(request, found)]
        return {"total_count": len(found), "repositories": shown}

    # -- repositories and issues ----------------------------------------------------------------

    def _repository(self, repo: SimulatedRepository, request: web.Request, body: Json) -> Json:
        return self._show.repository(repo)

    def _protection(self, repo: SimulatedRepository, request: web.Request, body: Json) -> Json:
        branch = request.match_info["branch"]
        if branch not in repo.branches:
            raise ApiRefusal(404, "Branch not found")
        if branch not in repo.required_reviews:
            raise ApiRefusal(404, "Branch not protected")
        return self._show.protection(repo, branch)

    def _issue(self, repo: SimulatedRepository, request: web.Request, body: Json) -> Json:
        return self._show.issue(repo, repo.issue(_number(request)))

    def _comments(self, repo: SimulatedRepository, request: web.Request, body: Json) -> list[Json]:
        number = repo.issue(_number(request)).number
        found = [one for one in repo.comments.values() if one.number == number]
        return [self._show.comment(repo, one) for one in page_of(request, found)]

    def _comment(self, repo: SimulatedRepository, request: web.Request, body: Json) -> tuple[int, Json]:
        issue = repo.issue(_number(request))
        comment = self._events.comment(repo, issue, self._state.bot, text_of(body, "body", "IssueComment"))
        return 201, self._show.comment(repo, comment)

    def _edit_comment(self, repo: SimulatedRepository, request: web.Request, body: Json) -> Json:
        comment = repo.comments.get(int_of(request.match_info["id"]))
        if comment is None:
            raise ApiRefusal(404)
        comment.body, comment.updated_at = text_of(body, "body", "IssueComment"), self._state.clock.now()
        return self._show.comment(repo, comment)

    def _label(self, repo: SimulatedRepository, request: web.Request, body: Json) -> list[Json]:
        issue = repo.issue(_number(request))
        for name in body.get("labels", []):
            self._events.label(repo, issue, self._state.bot, str(name))
        return [self._show.label(repo, name) for name in issue.labels]

    # -- pull requests --------------------------------------------------------------------------

    def _pulls(self, repo: SimulatedRepository, request: web.Request, body: Json) -> list[Json]:
        state, head = request.query.get("state", "open"), request.query.get("head", "")
        found = [
            one
            for one in repo.issues.values()
            if one.is_pull and state in ("all", one.state) and head in ("", f"{repo.owner.login}:{one.head}")
        ]
        if request.query.get("direction", "desc") == "desc":
            found.reverse()
        return [self._show.pull(repo, one) for one in page_of(request, found)]

    def _open_pull(self, repo: SimulatedRepository, request: web.Request, body: Json) -> tuple[int, Json]:
        head = text_of(body, "head", "PullRequest").removeprefix(f"{repo.owner.login}:")
        base, title = text_of(body, "base", "PullRequest"), text_of(body, "title", "PullRequest")
        pull = self._events.open_pull(
            repo, self._state.bot, title=title, body=str(body.get("body") or ""), head=head, base=base,
            draft=bool(body.get("draft")),
        )  # fmt: skip
        return 201, self._show.full_pull(repo, pull, computed=False)

    def _pull(self, repo: SimulatedRepository, request: web.Request, body: Json) -> Json:
        return self._show.full_pull(repo, _pull_of(repo, request))

    def _edit_pull(self, repo: SimulatedRepository, request: web.Request, body: Json) -> Json:
        pull = _pull_of(repo, request)
        pull.title, pull.body = str(body.get("title", pull.title)), str(body.get("body", pull.body))
        pull.updated_at = self._state.clock.now()
        if body.get("state") == "closed":
            self._events.close(repo, pull, self._state.bot)
        return self._show.full_pull(repo, pull)

    def _pull_files(self, repo: SimulatedRepository, request: web.Request, body: Json) -> list[Json]:
        pull = _pull_of(repo, request)
        files, head = self._show.pull_files(repo, pull), repo.resolve(pull.head)
        return [GitResources(self._state).changed_file(repo, one, head) for one in page_of(request, files)]

    def _review(self, repo: SimulatedRepository, request: web.Request, body: Json) -> Json:
        pull = _pull_of(repo, request)
        event = str(body.get("event", ""))
        if event not in _REVIEW_STATES:
            raise invalid("PullRequestReview", "event")
        changed = {one.path for one in self._show.pull_files(repo, pull)}
        comments = list(body.get("comments", []))
        if any(one.get("path") not in changed for one in comments):
            raise ApiRefusal(422, "Unprocessable Entity: Path could not be resolved")
        review = SimulatedReview(
            id=self._state.next_id(), user=self._state.bot, body=str(body.get("body") or ""),
            state=_REVIEW_STATES[event], commit=str(body.get("commit_id") or repo.resolve(pull.head)),
            comments=comments, submitted_at=self._state.clock.now(),
        )  # fmt: skip
        pull.reviews.append(review)
        return self._show.review(repo, pull, review)


def _token(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() not in ("bearer", "token") or not token:
        raise ApiRefusal(401, "Requires authentication")
    return token


async def _body(request: web.Request) -> Json:
    try:
        body = msgspec.json.decode(await request.read() or b"{}")
    except msgspec.DecodeError:
        body = None
    if not isinstance(body, dict):
        raise ApiRefusal(400, "Problems parsing JSON")
    return body


def _answer(request: web.Request, result: Any) -> web.Response:
    """The response with its ETag; 304 for a reader who has it already."""
    status, content, headers = 200, result, dict[str, str]()
    if isinstance(result, tuple):
        status, content, *rest = result
        headers = rest[0] if rest else {}
    body = msgspec.json.encode(content)
    if request.method == "GET":
        headers["ETag"] = f'W/"{hashlib.sha256(body).hexdigest()}"'
        if request.headers.get("If-None-Match") == headers["ETag"]:
            return web.Response(status=304, headers=headers)
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


def _pull_of(repo: SimulatedRepository, request: web.Request) -> SimulatedIssue:
    return repo.issue(_number(request), pull=True)


def _number(request: web.Request) -> int:
    return int_of(request.match_info["number"])
