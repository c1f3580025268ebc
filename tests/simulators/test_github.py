"""The simulated GitHub and the client against it, judged by githubkit's models and by git itself."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import subprocess
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import (
    AlreadyExistsError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ReauthRequiredError,
    RetryLaterError,
    VersionConflictError,
)
from holdfast.providers.credentials import sign_jwt
from holdfast.providers.github import CheckOutput, GitAuthor, GithubClient, GitTreeChange, ReviewComment
from holdfast.providers.rest import CallLimits
from holdfast.simulators.github import (
    AddLabel,
    AddRepository,
    ChangeInstallation,
    CloseIssue,
    DisturbDeliveries,
    EditTitle,
    ExpireTokens,
    InjectedFault,
    OpenIssue,
    OpenPull,
    ProtectBranch,
    PushFiles,
    SetApiLimits,
    SetWebhook,
    ShowDeliveries,
    WriteComment,
)
from holdfast.simulators.github.refusals import ApiRefusal
from tests.kit.receiver import OK, Serving, answering, serving
from tests.providers.github_fixture import FILES, REPO, GithubSetting, a_github, models
from tests.providers.provider_fixture import HastyClock

AUTHOR = GitAuthor(name="gwi", email="gwi@example.com", date=datetime(2026, 1, 5, 9, tzinfo=UTC))
CHANGED = "one\nTWO\nthree\nfour\nfive\n"
MORE = {"src/main.py": CHANGED, "src.txt": "sorts before src/", "src/a/b": ""}
NUMBER, SHA = "[0-9]+", "[0-9a-f]{40}"
# Each call of ours: its method and path, githubkit's model of the answer, and that of the body.
DESCRIBED: dict[str, tuple[str, str]] = {
    "GET ": ("FullRepository", ""),
    "GET /branches/main/protection": ("BranchProtection", ""),
    f"GET /issues/{NUMBER}": ("Issue", ""),
    f"GET /issues/{NUMBER}/comments": ("[IssueComment]", ""),
    f"POST /issues/{NUMBER}/comments": ("IssueComment", "ReposOwnerRepoIssuesIssueNumberCommentsPostBody"),
    f"PATCH /issues/comments/{NUMBER}": ("IssueComment", "ReposOwnerRepoIssuesCommentsCommentIdPatchBody"),
    f"POST /issues/{NUMBER}/labels": ("[Label]", "ReposOwnerRepoIssuesIssueNumberLabelsPostBodyOneof0"),
    f"GET /pulls/{NUMBER}": ("PullRequest", ""),
    f"GET /pulls/{NUMBER}/files": ("[DiffEntry]", ""),
    "GET /pulls": ("[PullRequestSimple]", ""),
    "POST /pulls": ("PullRequest", "ReposOwnerRepoPullsPostBody"),
    f"PATCH /pulls/{NUMBER}": ("PullRequest", "ReposOwnerRepoPullsPullNumberPatchBody"),
    f"POST /pulls/{NUMBER}/reviews": ("PullRequestReview", "ReposOwnerRepoPullsPullNumberReviewsPostBody"),
    "GET /git/ref/heads/.+": ("GitRef", ""),
    "POST /git/refs": ("GitRef", "ReposOwnerRepoGitRefsPostBody"),
    "PATCH /git/refs/heads/.+": ("GitRef", "ReposOwnerRepoGitRefsRefPatchBody"),
    f"GET /git/commits/{SHA}": ("GitCommit", ""),
    "POST /git/commits": ("GitCommit", "ReposOwnerRepoGitCommitsPostBody"),
    f"GET /git/trees/{SHA}": ("GitTree", ""),
    "POST /git/trees": ("GitTree", "ReposOwnerRepoGitTreesPostBody"),
    f"GET /git/blobs/{SHA}": ("Blob", ""),
    "POST /git/blobs": ("ShortBlob", "ReposOwnerRepoGitBlobsPostBody"),
    "GET /contents/.+": ("ContentFile", ""),
    r"GET /compare/.+\.\.\..+": ("CommitComparison", ""),
    "POST /check-runs": ("CheckRun", "ReposOwnerRepoCheckRunsPostBodyOneof1"),
    f"PATCH /check-runs/{NUMBER}": ("CheckRun", ""),
    "GET /commits/.+/check-runs": ("ReposOwnerRepoCommitsRefCheckRunsGetResponse200", ""),
}


@pytest.fixture
async def setting(hasty: HastyClock) -> AsyncIterator[GithubSetting]:
    async with a_github(hasty, limits=CallLimits(attempts_max=1)) as made:
        yield made


async def _commit(client: GithubClient, branch: str, path: str, text: str) -> str:
    """Commit one file to a branch through git objects, as an App does; return the commit."""
    ref = await client.get_ref(REPO, branch) or await client.get_ref(REPO, "main")
    assert ref is not None
    parent = await client.get_commit(REPO, ref.object.sha)
    blob = await client.create_blob(REPO, content=text.encode())
    changes = [GitTreeChange(path=path, sha=blob)]
    tree = await client.create_tree(REPO, base_tree=parent.tree.sha, changes=changes)
    made = await client.create_commit(
        REPO, message="Change it", tree=tree.sha, parents=[parent.sha], author=AUTHOR
    )
    return made.sha


async def _use_everything(setting: GithubSetting) -> None:
    client = setting.client
    setting.github.run(OpenIssue(repo=REPO, title="It breaks", labels=["bug"]))
    setting.github.run(ProtectBranch(repo=REPO, reviews=2))
    await client.get_repository(REPO)
    await client.get_branch_protection(REPO, "main")
    await client.get_issue(REPO, 1)
    comment = await client.create_comment(REPO, 1, body="Looking.")
    await client.update_comment(REPO, comment.id, body="Mended.")
    assert [one.body for one in await client.list_comments(REPO, 1)] == ["Mended."]
    await client.add_labels(REPO, 1, labels=["seen"])
    sha = await _commit(client, "main", "src/main.py", CHANGED)
    await client.create_ref(REPO, "gwi/wi-1", sha=sha)
    pull = await client.create_pull(REPO, title="Mend it", head="gwi/wi-1", base="main", body="Closes #1")
    await client.update_ref(REPO, "gwi/wi-1", sha=await _commit(client, "gwi/wi-1", "NEWS", "mended\n"))
    await client.update_pull(REPO, pull.number, title="Mend it well")
    assert (await client.get_pull(REPO, pull.number)).mergeable is True
    found = await client.find_pull(REPO, "gwi/wi-1")
    assert found is not None
    assert found.number == pull.number
    files = await client.list_pull_files(REPO, pull.number)
    assert [(one.filename, one.status) for one in files] == [("NEWS", "added"), ("src/main.py", "modified")]
    note = ReviewComment(path="src/main.py", line=2, body="Why?")
    await client.create_review(REPO, pull.number, body="Fine", commit=found.head.sha, comments=[note])
    file = await client.get_file(REPO, "src/main.py", ref="gwi/wi-1")
    assert file is not None
    assert await client.get_blob(REPO, file.sha) == CHANGED.encode()
    assert len((await client.get_tree(REPO, found.head.sha)).tree) == 3
    compared = await client.compare(REPO, "main", head="gwi/wi-1")
    assert (compared.status, compared.ahead_by) == ("ahead", 2)
    output = CheckOutput(title="Review", summary="Nothing found")
    check = await client.create_check_run(REPO, name="gwi", head_sha=found.head.sha, external_id="run-1")
    await client.update_check_run(REPO, check.id, status="completed", conclusion="success", output=output)
    assert [one.conclusion for one in await client.list_check_runs(REPO, found.head.sha)] == ["success"]


def _validate(kind: str, text: str) -> None:
    if kind.startswith("["):
        for one in json.loads(text):
            getattr(models(), kind[1:-1]).model_validate(one)
    elif kind:
        getattr(models(), kind).model_validate_json(text)


async def test_every_call_we_make_and_every_answer_is_as_github_describes_it(setting: GithubSetting) -> None:
    await _use_everything(setting)
    met = set()
    for call in setting.github.calls:
        line = f"{call.method} {call.path.removeprefix(f'/repos/{REPO}')}"
        described = next((one for one in DESCRIBED if re.fullmatch(one, line)), None)
        if described is None or call.status >= 400:
            assert call.path.startswith("/app/") or call.status == 404, line
            continue
        answer, body = DESCRIBED[described]
        _validate(answer, call.answer)
        _validate(body, call.body or "{}")
        met.add(described)
    assert met == set(DESCRIBED), "each call was made, and is described"
    assert (await setting.app.get_app()).slug == "git-with-intent"
    models().Integration.model_validate_json(setting.github.calls[-1].answer)
    installation = setting.app.get_installation(setting.installation["id"])
    assert (await installation).account.login == "acme"
    models().Installation.model_validate_json(setting.github.calls[-1].answer)
    assert [one.full_name async for one in setting.client.list_repositories()] == [REPO]
    models().InstallationRepositoriesGetResponse200.model_validate_json(setting.github.calls[-1].answer)


async def test_objects_have_the_names_that_git_gives_them(setting: GithubSetting, tmp_path: Path) -> None:
    def git(*command: str) -> str:
        who = ("-c", "user.name=acme", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ["git", *who, *command], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git("init", "-q")
    for path, text in (FILES | MORE).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    git("add", ".")
    setting.github.run(PushFiles(repo=REPO, branch="main", files=dict(MORE)))
    ref = await setting.client.get_ref(REPO, "main")
    assert ref is not None
    tree = (await setting.client.get_commit(REPO, ref.object.sha)).tree.sha
    assert tree == git("write-tree")
    made = await setting.client.create_commit(REPO, message="One", tree=tree, parents=[], author=AUTHOR)
    date = f"{int(AUTHOR.date.timestamp())} +0000"
    raw = f"tree {tree}\nauthor gwi <gwi@example.com> {date}\ncommitter gwi <gwi@example.com> {date}\n\nOne"
    (tmp_path / "raw").write_text(raw)
    assert made.sha == git("hash-object", "-t", "commit", "raw")
    again = await setting.client.create_commit(REPO, message="One", tree=tree, parents=[], author=AUTHOR)
    assert again.sha == made.sha, "the same request makes the same commit"


async def test_a_pull_request_conflicts_where_both_sides_changed_the_same_lines(
    setting: GithubSetting,
) -> None:
    run = setting.github.run
    run(PushFiles(repo=REPO, branch="one", files={"src/main.py": CHANGED}))
    run(PushFiles(repo=REPO, branch="other", files={"src/main.py": "one\ntwo\nthree\nfour\nFIVE\n"}))
    for branch in ("one", "other"):
        run(OpenPull(repo=REPO, title=branch, head=branch))
    run(PushFiles(repo=REPO, branch="main", files={"src/main.py": "one\nzwei\nthree\nfour\nfive\n"}))
    one, other = [await setting.client.get_pull(REPO, number) for number in (1, 2)]
    assert (one.mergeable, one.mergeable_state) == (False, "dirty")
    assert (other.mergeable, other.mergeable_state) == (True, "clean")


async def test_what_github_would_refuse_is_refused(setting: GithubSetting) -> None:
    client, run = setting.client, setting.github.run
    sha = await _commit(client, "main", "src/main.py", CHANGED)
    await client.create_ref(REPO, "gwi/1", sha=sha)
    with pytest.raises(AlreadyExistsError):
        await client.create_ref(REPO, "gwi/1", sha=sha)
    with pytest.raises(InvalidError):
        await client.create_ref(REPO, "gwi/2", sha="0" * 40)
    main = await client.get_ref(REPO, "main")
    assert main is not None
    await client.create_ref(REPO, "empty", sha=main.object.sha)
    with pytest.raises(InvalidError, match="No commits between"):
        await client.create_pull(REPO, title="Nothing", head="empty", base="main")
    await client.create_pull(REPO, title="Mend it", head="gwi/1", base="main")
    with pytest.raises(AlreadyExistsError):
        await client.create_pull(REPO, title="Mend it", head="gwi/1", base="main")
    run(PushFiles(repo=REPO, branch="main", files={"NEWS": "new\n"}))
    with pytest.raises(VersionConflictError):
        await client.update_ref(REPO, "main", sha=sha)
    assert await client.get_ref(REPO, "nosuch") is None
    assert await client.get_file(REPO, "nosuch", ref="main") is None
    assert await client.get_branch_protection(REPO, "main") is None
    with pytest.raises(NotFoundError):
        await client.get_issue(REPO, 99)
    run(AddRepository(name="other/secret", files={"a": "b"}))
    with pytest.raises(NotFoundError):
        await client.get_repository("other/secret")


async def test_a_token_is_shared_renewed_before_its_end_and_after_a_refusal(
    setting: GithubSetting, hasty: HastyClock
) -> None:
    def requested() -> int:
        return sum(call.path.endswith("/access_tokens") for call in setting.github.calls)

    for _ in range(3):
        await setting.client.get_repository(REPO)
    assert requested() == 1
    hasty.tick(3_400)
    await setting.client.get_repository(REPO)
    assert requested() == 2
    setting.github.run(ExpireTokens())
    await setting.client.get_repository(REPO)
    assert requested() == 3
    assert all("ghs_" not in call.answer for call in setting.github.calls), "tokens are not recorded"


async def test_an_installation_that_is_suspended_or_gone_is_told_apart(setting: GithubSetting) -> None:
    await setting.client.get_repository(REPO)
    id = setting.installation["id"]
    setting.github.run(ChangeInstallation(id=id, act="suspend"))
    with pytest.raises(ForbiddenError):
        await setting.client.get_repository(REPO)
    setting.github.run(ChangeInstallation(id=id, act="unsuspend"))
    await setting.client.get_repository(REPO)
    setting.github.run(ChangeInstallation(id=id, act="delete"))
    with pytest.raises(NotFoundError):
        await setting.client.get_repository(REPO)


async def test_an_assertion_that_the_app_did_not_sign_is_refused(setting: GithubSetting) -> None:
    setting.app._app_id = "1"
    with pytest.raises(ReauthRequiredError):
        await setting.app.get_installation(setting.installation["id"])
    issued = {"iss": setting.github.app_id, "iat": 0, "exp": 0}
    stale = sign_jwt(issued, setting.github.private_key, owner="the App")
    for token in (stale, stale[:-8] + "AAAAAAAA", "a.b.c", "x"):
        with pytest.raises(ApiRefusal):
            setting.github.state.check_app(token)


async def test_unchanged_reads_are_not_counted_and_limits_say_how_long_to_wait(
    setting: GithubSetting, hasty: HastyClock
) -> None:
    client = setting.client
    for _ in range(5):
        await client.get_repository(REPO)
    answers = [call.status for call in setting.github.calls if call.path == f"/repos/{REPO}"]
    assert answers == [200, 304, 304, 304, 304]
    setting.github.run(SetApiLimits(calls_per_h=2, writes_per_min=1))
    await client.create_comment(REPO, _issue(setting), body="one")
    with pytest.raises(RetryLaterError, match="rate limit exceeded"):
        await client.create_comment(REPO, 1, body="two")
    setting.github.run(SetApiLimits(writes_per_min=1))
    with pytest.raises(RetryLaterError, match="secondary") as secondary:
        await client.create_comment(REPO, 1, body="two")
    assert 0 < secondary.value.after_s <= 60
    hasty.tick(61)
    await client.create_comment(REPO, 1, body="two")
    setting.github.inject(InjectedFault(status=503))
    with pytest.raises(RetryLaterError):
        await client.get_repository(REPO)


def _issue(setting: GithubSetting) -> int:
    made: Any = setting.github.run(OpenIssue(repo=REPO, title="It breaks"))
    return int(made["number"])


async def test_events_are_signed_and_as_github_describes_them(setting: GithubSetting) -> None:
    run, id = setting.github.run, setting.installation["id"]
    async with serving(answering(OK)) as receiver:
        run(SetWebhook(url=receiver.url(), secret="s3cret"))
        run(OpenIssue(repo=REPO, title="It breaks", body="Really", labels=["bug"]))
        run(EditTitle(repo=REPO, number=1, title="It broke"))
        run(AddLabel(repo=REPO, number=1, label="urgent"))
        run(WriteComment(repo=REPO, number=1, body="/gwi triage"))
        run(PushFiles(repo=REPO, branch="one", files={"src/main.py": CHANGED}))
        run(OpenPull(repo=REPO, title="Mend it", head="one"))
        run(PushFiles(repo=REPO, branch="one", files={"NEWS": "x"}))
        run(AddLabel(repo=REPO, number=2, label="conflict"))
        run(CloseIssue(repo=REPO, number=2, merge=True))
        run(CloseIssue(repo=REPO, number=1))
        run(AddRepository(name="acme/web", files={"a": "b"}))
        run(ChangeInstallation(id=id, act="select", repositories=["acme/web"]))
        run(ChangeInstallation(id=id, act="select", repositories=["acme/web", REPO]))
        for act in ("suspend", "unsuspend", "delete"):
            run(ChangeInstallation(id=id, act=act))
        await setting.github.wait_for_deliveries()
    names = [one.headers["X-GitHub-Event"] for one in receiver.requests]
    actions = [json.loads(one.body).get("action") for one in receiver.requests]
    assert list(zip(names, actions, strict=True)) == [
        ("issues", "opened"), ("issues", "edited"), ("issues", "labeled"), ("issue_comment", "created"),
        ("push", None), ("pull_request", "opened"), ("push", None), ("pull_request", "synchronize"),
        ("pull_request", "labeled"), ("pull_request", "closed"), ("issues", "closed"),
        ("installation_repositories", "removed"), ("installation_repositories", "added"),
        ("installation", "suspend"), ("installation", "unsuspend"), ("installation", "deleted"),
    ]  # fmt: skip
    for one in receiver.requests:
        digest = hmac.new(b"s3cret", one.body, hashlib.sha256).hexdigest()
        assert one.headers["X-Hub-Signature-256"] == f"sha256={digest}"
    for name, action, one in zip(names, actions, receiver.requests, strict=True):
        kind = "".join(word.title() for word in f"webhook_{name}_{action or ''}".split("_"))
        getattr(models(), kind).model_validate_json(one.body)


async def test_a_delivery_that_failed_is_listed_and_sent_again_on_request(setting: GithubSetting) -> None:
    run, since = setting.github.run, setting.clock.now()
    async with serving(answering(OK)) as receiver:
        run(SetWebhook(url="http://127.0.0.1:9/closed"))
        run(OpenIssue(repo=REPO, title="Nobody hears this"))
        await setting.github.wait_for_deliveries()
        run(SetWebhook(url=receiver.url()))
        run(DisturbDeliveries(acts=["drop", "double", "hold"]))
        for title in ("lost", "twice", "late", "in time"):
            run(OpenIssue(repo=REPO, title=title))
        await setting.github.wait_for_deliveries()
        assert _titles(receiver) == ["twice", "twice", "in time", "late"]
        missed = [one async for one in setting.app.delivery_log.missed(since)]
        assert len(missed) == 2
        for one in missed:
            await setting.app.delivery_log.redeliver(one)
        await setting.github.wait_for_deliveries()
        assert _titles(receiver)[4:] == ["lost", "Nobody hears this"]
    log: Any = run(ShowDeliveries())
    assert [one["redelivery"] for one in log[:3]] == [True, True, False]
    for one in json.loads(_last_answer(setting, "/app/hook/deliveries")):
        models().HookDeliveryItem.model_validate(one)


def _titles(receiver: Serving) -> list[str]:
    return [json.loads(one.body)["issue"]["title"] for one in receiver.requests]


def _last_answer(setting: GithubSetting, path: str) -> str:
    return next(call.answer for call in reversed(setting.github.calls) if call.path == path)
