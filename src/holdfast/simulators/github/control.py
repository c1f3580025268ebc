"""Commands on the simulated GitHub: what people there do."""

from __future__ import annotations

from typing import Any, Final, Literal

from holdfast.simulators.github.deliveries import DeliveryFault
from holdfast.simulators.github.events import GithubEvents
from holdfast.simulators.github.repository import SimulatedRepository
from holdfast.simulators.github.resources import Resources
from holdfast.simulators.github.state import GithubState
from holdfast.simulators.server import Command


class AddRepository(Command[GithubState], frozen=True):
    """A repository with files on `main`: {name, files, private, ownerType, firstNumber}.

    Its owner is an organisation by default; issues and pull requests are numbered from `firstNumber` on.
    """

    name: str
    files: dict[str, str] = {}
    private: bool = False
    owner_type: Literal["Organization", "User"] = "Organization"
    first_number: int = 1

    def run(self, state: GithubState) -> object:
        owner_login, _, name = self.name.partition("/")
        owner = state.account(owner_login, self.owner_type)
        repo = SimulatedRepository(
            state.next_id(), name, owner=owner, private=self.private, created_at=state.clock.now()
        )
        repo.next_number = self.first_number
        state.repositories[repo.id] = repo
        repo.push("main", self.files, message="Begin", by=state.signature(owner))
        return Resources(state).repository_name(repo)


class Install(Command[GithubState], frozen=True):
    """Install the App in an account: {account, by, repositories}; without a list for all of them."""

    account: str
    by: str = ""
    repositories: list[str] | None = None

    def run(self, state: GithubState) -> object:
        account, sender = state.account(self.account, "Organization"), state.account(self.by or self.account)
        selected = None if self.repositories is None else {state.repository(n).id for n in self.repositories}
        return Resources(state).installation(GithubEvents(state).install(account, sender, selected))


class ChangeInstallation(Command[GithubState], frozen=True):
    """Suspend, unsuspend or delete an installation, or select its repositories: {id, act, repositories}."""

    id: int
    act: Literal["suspend", "unsuspend", "delete", "select"]
    repositories: list[str] = []

    def run(self, state: GithubState) -> object:
        events, installation = GithubEvents(state), state.installation(self.id)
        if self.act == "delete":
            events.uninstall(installation)
        elif self.act == "select":
            events.select(installation, {state.repository(name).id for name in self.repositories})
        else:
            events.suspend(installation, suspended=self.act == "suspend")
        return {}


class OpenIssue(Command[GithubState], frozen=True):
    """Open an issue: {repo, title, body, labels, by}."""

    repo: str
    title: str
    body: str = ""
    labels: list[str] = []
    by: str = "octocat"

    def run(self, state: GithubState) -> object:
        repo = state.repository(self.repo)
        issue = GithubEvents(state).open_issue(
            repo, state.account(self.by), title=self.title, body=self.body, labels=list(self.labels)
        )
        return Resources(state).issue(repo, issue)


class PushFiles(Command[GithubState], frozen=True):
    """Commit files to a branch, made from the default one where it is new: {repo, branch, files, by}."""

    repo: str
    branch: str
    files: dict[str, str | None]
    message: str = "Change files"
    by: str = "octocat"

    def run(self, state: GithubState) -> object:
        repo, user = state.repository(self.repo), state.account(self.by)
        before, commit = repo.push(self.branch, self.files, message=self.message, by=state.signature(user))
        GithubEvents(state).announce_push(repo, self.branch, user, before)
        return {"sha": commit.sha}


class OpenPull(Command[GithubState], frozen=True):
    """Open a pull request from a branch: {repo, title, head, base, body, labels, by}."""

    repo: str
    title: str
    head: str
    base: str = "main"
    body: str = ""
    labels: list[str] = []
    by: str = "octocat"

    def run(self, state: GithubState) -> object:
        repo = state.repository(self.repo)
        pull = GithubEvents(state).open_pull(
            repo, state.account(self.by), title=self.title, body=self.body, head=self.head, base=self.base,
            labels=list(self.labels),
        )  # fmt: skip
        return Resources(state).full_pull(repo, pull)


class WriteComment(Command[GithubState], frozen=True):
    """Comment on an issue or pull request: {repo, number, body, by}."""

    repo: str
    number: int
    body: str
    by: str = "octocat"

    def run(self, state: GithubState) -> object:
        repo = state.repository(self.repo)
        comment = GithubEvents(state).comment(
            repo, repo.issue(self.number), state.account(self.by), self.body
        )
        return Resources(state).comment(repo, comment)


class AddLabel(Command[GithubState], frozen=True):
    """Put a label on an issue or pull request: {repo, number, label, by}."""

    repo: str
    number: int
    label: str
    by: str = "octocat"

    def run(self, state: GithubState) -> object:
        repo = state.repository(self.repo)
        GithubEvents(state).label(repo, repo.issue(self.number), state.account(self.by), self.label)
        return {}


class EditTitle(Command[GithubState], frozen=True):
    """Give an issue or pull request another title: {repo, number, title, by}."""

    repo: str
    number: int
    title: str
    by: str = "octocat"

    def run(self, state: GithubState) -> object:
        repo = state.repository(self.repo)
        GithubEvents(state).edit(repo, repo.issue(self.number), state.account(self.by), self.title)
        return {}


class CloseIssue(Command[GithubState], frozen=True):
    """Close an issue or pull request, or merge one: {repo, number, merge, by}."""

    repo: str
    number: int
    merge: bool = False
    by: str = "octocat"

    def run(self, state: GithubState) -> object:
        repo = state.repository(self.repo)
        GithubEvents(state).close(repo, repo.issue(self.number), state.account(self.by), merge=self.merge)
        return {}


class ProtectBranch(Command[GithubState], frozen=True):
    """Require reviews for a branch: {repo, branch, reviews}; 0 ends it."""

    repo: str
    branch: str = "main"
    reviews: int = 1

    def run(self, state: GithubState) -> object:
        rules = state.repository(self.repo).required_reviews
        rules.pop(self.branch, None)
        if self.reviews:
            rules[self.branch] = self.reviews
        return {}


class SetWebhook(Command[GithubState], frozen=True):
    """The address and secret of the App's webhook: {url, secret}."""

    url: str
    secret: str = ""

    def run(self, state: GithubState) -> object:
        state.hook.url, state.hook.secret = self.url, self.secret
        return {}


class DisturbDeliveries(Command[GithubState], frozen=True):
    """Have the next deliveries lost, sent twice, or held until after the next one: {acts}."""

    acts: list[Literal["drop", "double", "hold"]]

    def run(self, state: GithubState) -> object:
        state.hook.faults.extend(DeliveryFault(act=act) for act in self.acts)
        return {}


class SetApiLimits(Command[GithubState], frozen=True):
    """The limits of an installation: {callsPerH, writesPerMin}."""

    calls_per_h: int = 5_000
    writes_per_min: int = 80

    def run(self, state: GithubState) -> object:
        state.calls_per_h, state.writes_per_min = self.calls_per_h, self.writes_per_min
        return {}


class ExpireTokens(Command[GithubState], frozen=True):
    """End every token of an installation: {}."""

    def run(self, state: GithubState) -> object:
        state.end_tokens()
        return {}


class ShowDeliveries(Command[GithubState], frozen=True):
    """The webhook's deliveries, newest first: {}."""

    def run(self, state: GithubState) -> object:
        return [Resources(state).delivery(one) for one in state.hook.log]


class ShowRepository(Command[GithubState], frozen=True):
    """A repository's branches with their files, issues and comments: {repo}."""

    repo: str

    def run(self, state: GithubState) -> object:
        repo, show = state.repository(self.repo), Resources(state)
        shown: dict[str, Any] = {"branches": {}, "issues": [], "comments": []}
        for branch, sha in repo.branches.items():
            files = repo.git.files(sha)
            shown["branches"][branch] = {path: repo.git.text(file) for path, file in files.items()}
        for issue in repo.issues.values():
            render = show.full_pull if issue.is_pull else show.issue
            shown["issues"].append(render(repo, issue))
        shown["comments"] = [show.comment(repo, one) for one in repo.comments.values()]
        return shown


COMMANDS: Final[dict[str, type[Command[GithubState]]]] = {
    "add-repository": AddRepository,
    "install": Install,
    "installation": ChangeInstallation,
    "open-issue": OpenIssue,
    "push": PushFiles,
    "open-pull": OpenPull,
    "comment": WriteComment,
    "label": AddLabel,
    "title": EditTitle,
    "close": CloseIssue,
    "protect": ProtectBranch,
    "webhook": SetWebhook,
    "disturb": DisturbDeliveries,
    "limits": SetApiLimits,
    "end-tokens": ExpireTokens,
    "deliveries": ShowDeliveries,
    "repository": ShowRepository,
}
