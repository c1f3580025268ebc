"""gwi and a simulated GitHub: an organisation with one repository, where the App is installed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.demo.scene import Control, Fact, Scene, Stage
from holdfast.demo.simulator_set import SimulatorSet
from holdfast.demo.tides_repository import ANSWERS, FILES, ISSUES, TABLE, WIDTH
from holdfast.model import Caller
from holdfast.operation import Operator
from holdfast.plural import plural
from holdfast.services.gwi.candidate_revision import PatchRequest
from holdfast.services.gwi.domain.patches import FileChange
from holdfast.services.gwi.models.runs import AgentRun
from holdfast.services.gwi.models.tenants import Member, MemberRole, Tenant, tenant_id_of
from holdfast.services.gwi.operations import Gwi
from holdfast.services.gwi.operations.runs import RunFilter
from holdfast.simulators.github import (
    AddLabel,
    AddRepository,
    DisturbDeliveries,
    GithubSimulator,
    InjectedFault,
    Install,
    OpenIssue,
    OpenPull,
    PushFiles,
    SetWebhook,
    ShowRepository,
    WriteComment,
)
from holdfast.simulators.language_model import LanguageModelSimulator, SetAnswer
from holdfast.store import put

ORGANISATION: Final = "kelp-works"
REPO: Final = f"{ORGANISATION}/tides"
SECRET: Final = "simulated-webhook-secret"
PLAN: Final = "pro"
# The installer of the App becomes the owner; these are members besides.
PEOPLE: Final[Mapping[str, MemberRole]] = {"maintainer": "admin", "reviewer": "developer"}
BREAKS: Final = 6
AUTOMATIC: Final = "gwi:auto"
NO_ISSUE: Final = "Open an issue first."
NO_PULL: Final = "Open a pull request first."


def settings(world: SimulatorSet) -> Mapping[str, Any]:
    """The organisation with its repository, an App for the service, and a language model that writes code."""
    github, model = world.get(GithubSimulator), world.get(LanguageModelSimulator)
    for schema, answer in ANSWERS.items():
        model.run(SetAnswer(schema=schema, content=answer))
    github.run(SetWebhook(url=f"{world.public_url}/gwi/webhook", secret=SECRET))
    for login in ("owner", *PEOPLE):
        github.state.account(login)
    # Numbers go on where those of an earlier demo on this store have ended.
    first = world.clock.now_us() // 60_000_000 % 10_000
    github.run(AddRepository(name=REPO, files=FILES, first_number=first))
    return {
        "app_id": github.app_id, "app_key": github.private_key, "github_url": github.url,
        "webhook_secret": SECRET,
        "model_url": model.base_url, "model_name": model.model, "model_key": model.key,
    }  # fmt: skip


def _github(stage: Stage) -> GithubSimulator:
    return stage.world.get(GithubSimulator)


def _gwi(stage: Stage) -> Gwi:
    gwi: Gwi = stage.operations("gwi")
    return gwi


def tenant_id(stage: Stage) -> str:
    return tenant_id_of(_github(stage).state.account(ORGANISATION).id)


def user_id(stage: Stage, login: str) -> str:
    """A person of the simulated GitHub, as gwi knows them."""
    return f"github:{_github(stage).state.account(login).id}"


async def open_scene(stage: Stage) -> None:
    """Install the App, because the simulated GitHub is new at every start."""
    _github(stage).run(Install(account=ORGANISATION, by="owner"))


async def seed(stage: Stage) -> None:
    """The first issues."""
    for title, labels in ISSUES[:3]:
        _github(stage).run(OpenIssue(repo=REPO, title=title, labels=labels, by="reviewer"))


async def act(stage: Stage) -> None:
    """Ask again for events that came before the server answered; give the new tenant members and a plan."""
    id, now = tenant_id(stage), stage.clock.now()
    store, log = stage.store.tenant(id), _github(stage).state.hook.log
    if {one.guid for one in log} - {one.guid for one in log if one.status_code}:
        await _reconcile(stage)
    stored = await store.get(Tenant, id)
    if stored is None:
        return
    if stored.doc.plan == PLAN:
        await _first_work(stage)
        return
    members = [
        Member(user_id=user_id(stage, login), tenant_id=id, role=role, created_at=now, updated_at=now)
        for login, role in PEOPLE.items()
    ]
    await store.commit(*map(put, members))
    await _gwi(stage).tenants.change_plan(stage.operator(id), PLAN)


async def _first_work(stage: Stage) -> None:
    """A run that waits for approval, and a candidate, until there were some: so no page is empty."""
    gwi, id = _gwi(stage), tenant_id(stage)
    labels = {label["name"] for one in _topics(stage) for label in one["labels"]}
    if AUTOMATIC not in labels and not (await gwi.runs.page(id, RunFilter(), limit=1)).docs:
        await label_auto(stage)
    if not (await gwi.candidates.page(id, limit=1)).docs:
        await _propose(stage)


async def _reconcile(stage: Stage) -> int:
    source = stage.runtime.parts["gwi"].webhooks[0].source
    return (await stage.runtime.inbox.reconcile(source)).redelivered


async def open_issue(stage: Stage) -> str:
    title, labels = random.choice(ISSUES)
    _github(stage).run(OpenIssue(repo=REPO, title=title, labels=labels, by="reviewer"))
    return f"“{title}” is open: its signal becomes an item of the queue, by its score."


async def open_pull(stage: Stage) -> str:
    number = _next_branch(stage)
    branch, text = f"wider-{number}", WIDTH.replace("tide.low", f"tide.low + {number}")
    _github(stage).run(PushFiles(repo=REPO, branch=branch, files={"tides/width.py": text}, by="reviewer"))
    _github(stage).run(OpenPull(repo=REPO, title=f"Widen by {number}", head=branch, by="reviewer"))
    return "The pull request is open: an item to review it is in the queue."


async def make_conflict(stage: Stage) -> str:
    """Change the same line on main, and say so by a label: GitHub itself tells nobody of a conflict."""
    number = _newest(stage, pull=True)
    if number is None:
        return NO_PULL
    changed = WIDTH.replace("tide.low", f"tide.low - {_next_branch(stage)}")
    _github(stage).run(PushFiles(repo=REPO, branch="main", files={"tides/width.py": changed}, by="owner"))
    _github(stage).run(AddLabel(repo=REPO, number=number, label="conflict", by="owner"))
    return f"Number {number} no longer merges: its item is now one to resolve. Comment /gwi resolve there."


async def comment_triage(stage: Stage) -> str:
    number = max(_newest(stage) or 0, _newest(stage, pull=True) or 0)
    return await _comment(stage, number, "/gwi triage") if number else NO_ISSUE


async def comment_resolve(stage: Stage) -> str:
    number = _newest(stage, pull=True)
    return NO_PULL if number is None else await _comment(stage, number, "/gwi resolve")


async def _comment(stage: Stage, number: int, text: str) -> str:
    await act(stage)
    if await stage.store.privileged().get(Tenant, tenant_id(stage)) is None:
        return "The App is being installed: try again in a moment."
    _github(stage).run(WriteComment(repo=REPO, number=number, body=text, by="maintainer"))
    return f"Written on number {number}: the run is under Runs, its answer in the comments there."


async def label_auto(stage: Stage) -> str:
    number = _newest(stage, without=AUTOMATIC)
    if number is None:
        return NO_ISSUE
    _github(stage).run(AddLabel(repo=REPO, number=number, label=AUTOMATIC, by="maintainer"))
    return (
        f"Number {number} starts a run by itself, as ten a day may: a language model writes the change. "
        "It waits under Approvals until a colleague approves."
    )


def _person(stage: Stage, login: str) -> Operator:
    id = tenant_id(stage)
    caller = Caller(user_id=user_id(stage, login), roles={id: PEOPLE.get(login, "owner")})
    return stage.runtime.operator(caller, id)


async def propose(stage: Stage) -> str:
    """The reviewer proposes a change for the first item without any: a harmless one, or a critical one."""
    await act(stage)
    return await _propose(stage)


async def _propose(stage: Stage) -> str:
    gwi, path = _gwi(stage), random.choice(("tides/table.py", "tides/security.py"))
    text = f"{TABLE}\n\ndef revision():\n    return {random.randrange(1_000)}\n"
    action: Any = "modify" if path in FILES else "create"
    for item in (await gwi.queue.page(tenant_id(stage))).docs:
        if item.candidate_id is None:
            patch = PatchRequest(
                changes=[FileChange(file=path, action=action, content=text)], commit_message=item.title
            )
            made = await gwi.candidates.create(_person(stage, "reviewer"), item.id, patch=patch)
            return (
                f"A candidate of {made.risk.level} risk takes {plural(made.required_approvals, 'approval')}."
            )
    return "Open an issue first: every item has its candidate."


async def approve(stage: Stage) -> str:
    """The maintainer approves a run that waits, or else the maintainer and the owner the newest candidate."""
    waiting = await _gwi(stage).runs.page(tenant_id(stage), RunFilter(approval_status="pending"))
    run = next((one for one in waiting.docs if one.completed_at is None), None)
    if run is not None:
        await _gwi(stage).runs.approve(_person(stage, "maintainer"), run.id, reason="looks right")
        return f"The maintainer approves {run.id}: it goes on and makes its pull request."
    ready = (await _gwi(stage).candidates.page(tenant_id(stage), status="ready", limit=1)).docs
    if not ready:
        return "Propose a change first."
    voted = {vote.user_id for vote in ready[0].approvals}
    login = "owner" if user_id(stage, "maintainer") in voted else "maintainer"
    changed = await _gwi(stage).candidates.vote(_person(stage, login), ready[0].id, decision="approved")
    return (
        f"The {login} approves: {len(changed.approvals)} of {plural(changed.required_approvals, 'approval')}."
    )


async def apply(stage: Stage) -> str:
    approved = (await _gwi(stage).candidates.page(tenant_id(stage), status="approved", limit=1)).docs
    if not approved:
        return "Have a candidate approved first."
    started = await _gwi(stage).candidates.apply(_person(stage, "maintainer"), approved[0].id, source="ui")
    return f"{started.run_id} makes the pull request, with the receipt in its description."


async def break_github(stage: Stage) -> str:
    _github(stage).inject(InjectedFault(count=BREAKS, status=503, path="/repos/"))
    return f"GitHub refuses the next {BREAKS} calls: a run under way tries its step again."


async def lose_event(stage: Stage) -> str:
    _github(stage).run(DisturbDeliveries(acts=["drop"]))
    title, labels = random.choice(ISSUES)
    _github(stage).run(OpenIssue(repo=REPO, title=title, labels=labels, by="reviewer"))
    return f"GitHub could not deliver “{title}”; {await _reconcile(stage)} lost event was asked for again."


def _topics(stage: Stage) -> list[dict[str, Any]]:
    shown: Any = _github(stage).run(ShowRepository(repo=REPO))
    issues: list[dict[str, Any]] = shown["issues"]
    return issues


def _newest(stage: Stage, *, pull: bool = False, without: str = "") -> int | None:
    """The number of the newest open issue, or pull request, of a person that lacks a label."""
    numbers = [
        one["number"]
        for one in _topics(stage)
        if one["state"] == "open" and ("head" in one) == pull and one["user"]["type"] != "Bot"
        and without not in [label["name"] for label in one["labels"]]
    ]  # fmt: skip
    return max(numbers, default=None)


def _next_branch(stage: Stage) -> int:
    return len(_github(stage).state.repository(REPO).git.commits)


async def facts(stage: Stage) -> list[Fact]:
    """Items by status, runs, and the pull requests that were made."""
    id, gwi = tenant_id(stage), _gwi(stage)
    stats, runs = await gwi.queue.stats(id), await gwi.runs.stats(id)
    latest = (await gwi.runs.page(id, RunFilter(), limit=1)).docs
    topics = _topics(stage)
    own = [one for one in topics if one["user"]["type"] == "Bot"]
    comments: Any = _github(stage).run(ShowRepository(repo=REPO))
    said = [one["body"] for one in comments["comments"]][-1:]
    return [
        ("Issues and pull requests at GitHub", str(len(topics))),
        ("Items in the queue", f"{stats.live} live, {stats.total} in all"),
        ("Runs", f"{runs.active} at work, {runs.completed} completed, {runs.failed} failed"),
        *[("Latest run", f"{run.type} {_state(run)}") for run in latest],
        *[("Pull request by the App", f"#{one['number']} {one['title']}") for one in own[-1:]],
        *[("Latest comment", _plain(text)) for text in said],
    ]


def _state(run: AgentRun) -> str:
    waits = run.approval_status == "pending" and run.completed_at is None
    return "awaits approval" if waits else run.status


def _plain(text: str) -> str:
    return msgspec.json.encode(text.partition("<!--")[0].strip()[:160]).decode()[1:-1].replace("\\n", " · ")


scene = Scene(
    title="Git With Intent",
    about="An organisation at a simulated GitHub with the App installed: events become scored work, approved "
    "changes become pull requests.",
    settings=settings,
    open=open_scene,
    seed=seed,
    act=act,
    every_s=2.0,
    controls=[
        Control(name="issue", label="Open an issue", kind="primary", run=open_issue),
        Control(name="pull", label="Open a pull request", run=open_pull),
        Control(name="conflict", label="Make a conflict", run=make_conflict),
        Control(name="triage", label="Comment /gwi triage", run=comment_triage),
        Control(name="resolve", label="Comment /gwi resolve", run=comment_resolve),
        Control(name="label", label=f"Label {AUTOMATIC}", run=label_auto),
        Control(name="propose", label="Propose a change", run=propose),
        Control(name="approve", label="A colleague approves", run=approve),
        Control(name="apply", label="Apply it", run=apply),
        Control(name="lose", label="Lose an event", run=lose_event),
        Control(name="break", label="Break GitHub for a moment", kind="danger", run=break_github),
    ],
    facts=facts,
    tenant=tenant_id,
    live=("gwi", "runs", "inbox"),
)
