"""GitHub's webhook events as the service reads them: what each is about, and what it asks for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from holdfast.services.gwi.domain.subjects import ResourceType, SignalSource

AutomaticRun = Literal["triage", "review", "resolve", "autopilot"]
SOURCES: Final[Mapping[str, SignalSource]] = {
    "issues": "github_issue",
    "pull_request": "github_pr",
    "pull_request_review": "github_pr",
    "pull_request_review_comment": "github_pr",
    "issue_comment": "github_comment",
    "commit_comment": "github_comment",
}
INSTALLATION: Final = ("installation", "installation_repositories")
AUTOMATIC_LABELS: Final = frozenset({"gwi-auto-code", "gwi:autopilot", "gwi:auto"})
CONFLICT_LABELS: Final = frozenset({"conflict", "conflicts"})
# By this mark and this branch the App knows what it has made itself.
OWN_MARK: Final = "<!-- gwi"
OWN_BRANCH: Final = "gwi/"
_KEPT: Final = ("mergeable", "mergeable_state", "merged", "draft", "state_reason")
_ABOUT_ACCOUNTS: Final = "it is about accounts, teams or purchases, which ask for no work"
_ABOUT_SETTINGS: Final = "it is about settings of the repository, which ask for no work"
_ABOUT_PROGRESS: Final = "it tells of progress elsewhere, which asks for no work"
IGNORED: Final[Mapping[str, str]] = {
    "ping": "it only checks the webhook",
    "meta": "the webhook was deleted",
    **dict.fromkeys(
        ("github_app_authorization", "marketplace_purchase", "member", "membership", "org_block",
         "organization", "sponsorship", "team", "team_add"), _ABOUT_ACCOUNTS),
    **dict.fromkeys(
        ("branch_protection_rule", "create", "delete", "deploy_key", "fork", "label", "public",
         "repository_import", "star", "watch"), _ABOUT_SETTINGS),
    **dict.fromkeys(
        ("check_run", "check_suite", "deployment", "deployment_review", "deployment_status", "merge_group",
         "milestone", "package", "page_build", "project", "project_card", "project_column",
         "projects_v2_item", "push", "release", "status", "workflow_job", "workflow_run"), _ABOUT_PROGRESS),
}  # fmt: skip


class EventAccount(msgspec.Struct, frozen=True, kw_only=True):
    """A person, organisation or bot."""

    id: int = 0
    login: str = ""
    type: str = "User"


class EventRepository(msgspec.Struct, frozen=True, kw_only=True):
    id: int = 0
    name: str = ""
    full_name: str = ""
    default_branch: str = ""  # not in events about installations


class EventInstallation(msgspec.Struct, frozen=True, kw_only=True):
    """An installation; events about other things give only its `id`. Times are texts or numbers."""

    id: int = 0
    account: EventAccount | None = None
    permissions: dict[str, str] = {}
    events: list[str] = []
    updated_at: Any = None
    suspended_at: Any = None


class EventLabel(msgspec.Struct, frozen=True):
    name: str = ""


class EventBranch(msgspec.Struct, frozen=True):
    ref: str = ""


class EventTopic(msgspec.Struct, frozen=True, kw_only=True):
    """An issue, a pull request, or another thing with a title, such as a discussion or an alert."""

    number: int | None = None
    title: str | None = None
    body: str | None = None
    html_url: str | None = None
    labels: list[EventLabel] | None = None
    updated_at: Any = None
    mergeable: bool | None = None
    mergeable_state: str | None = None
    merged: bool | None = None
    state_reason: str | None = None
    head: EventBranch | None = None
    base: EventBranch | None = None
    draft: bool | None = None
    pull_request: Any = None


class EventComment(msgspec.Struct, frozen=True, kw_only=True):
    id: int = 0
    body: str | None = None
    html_url: str | None = None
    updated_at: Any = None


class GithubEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a webhook: its `name` is from the header, the rest from the body."""

    name: str = ""
    action: str | None = None
    sender: EventAccount | None = None
    repository: EventRepository | None = None
    installation: EventInstallation | None = None
    issue: EventTopic | None = None
    pull_request: EventTopic | None = None
    discussion: EventTopic | None = None
    alert: EventTopic | None = None
    comment: EventComment | None = None
    review: EventComment | None = None
    label: EventLabel | None = None
    repositories: list[EventRepository] = []
    repositories_added: list[EventRepository] = []
    repositories_removed: list[EventRepository] = []

    @property
    def topic(self) -> EventTopic:
        return self.pull_request or self.issue or self.discussion or self.alert or EventTopic()

    @property
    def by_bot(self) -> bool:
        return self.sender is not None and self.sender.type == "Bot"

    @property
    def is_pull(self) -> bool:
        return self.pull_request is not None or self.topic.pull_request is not None


def parse_event(name: str, body: bytes) -> GithubEvent:
    """The event of a webhook's body; msgspec.DecodeError for one that is none."""
    event = msgspec.json.decode(body, type=GithubEvent, strict=False)
    return msgspec.structs.replace(event, name=name)


def ignored_reason(event: GithubEvent) -> str | None:
    """Why an event asks for nothing; None for one that makes a signal."""
    if event.name in IGNORED:
        return f"{event.name}: {IGNORED[event.name]}"
    if event.repository is None:
        return f"{event.name}: it names no repository"
    comment = event.comment or event.review
    own = event.topic.head is not None and event.topic.head.ref.startswith(OWN_BRANCH)
    if event.by_bot and (own or OWN_MARK in ((comment and comment.body) or event.topic.body or "")):
        return f"{event.name}: this App has made it itself"
    return None


def source_of(event: GithubEvent) -> SignalSource:
    return SOURCES.get(event.name, "webhook")


def resource_type_of(event: GithubEvent) -> ResourceType | None:
    """What an event is about; comments are about their issue or pull request where they have one."""
    if event.name == "commit_comment":
        return "commit"
    if event.is_pull:
        return "pr"
    return "issue" if event.issue is not None else None


def context_fields(event: GithubEvent) -> dict[str, Any]:
    """The fields of a signal's context, without the repository's."""
    topic, comment = event.topic, event.comment or event.review
    text = topic.title or (comment and comment.body and comment.body.strip().partition("\n")[0])
    return {
        "resource_number": topic.number, "resource_type": resource_type_of(event),
        "resource_url": (comment and comment.html_url) or topic.html_url,
        "actor": event.sender and event.sender.login, "action": event.action,
        "title": text or f"{event.name} {event.action or ''}".strip(),
        "body": (comment and comment.body) or topic.body,
        "labels": [label.name for label in topic.labels or ()],
    }  # fmt: skip


def payload_fields(event: GithubEvent) -> dict[str, Any]:
    """What a signal keeps of the event besides its context, in GitHub's own shape.

    Not the whole body, which may be larger than a document; the inbox has it for two weeks.
    """
    kept: dict[str, Any] = {"event": event.name}
    for name in ("issue", "pull_request"):
        topic: EventTopic | None = getattr(event, name)
        facts = {} if topic is None else {field: getattr(topic, field) for field in _KEPT}
        if facts := {field: value for field, value in facts.items() if value is not None}:
            kept[name] = facts
    return kept


def occurred_at(event: GithubEvent, received_at: datetime) -> datetime:
    """When something happened, by the event; at the latest when it was received."""
    comment = event.comment or event.review
    at = read_time(comment.updated_at if comment else event.topic.updated_at)
    return received_at if at is None else min(at, received_at)


def read_time(value: Any) -> datetime | None:
    """A time as GitHub writes it: ISO 8601, or seconds since 1970 in older events."""
    try:
        if isinstance(value, str):
            at = datetime.fromisoformat(value)
            return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        return datetime.fromtimestamp(value, tz=UTC) if isinstance(value, (int, float)) else None
    except (ValueError, OverflowError, OSError):
        return None


class AutomaticSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant and its repository let start by itself."""

    on_pull_open: bool = False
    on_conflict: bool = False
    triage: bool = False
    review: bool = False


def automatic_runs(event: GithubEvent, settings: AutomaticSettings) -> list[AutomaticRun]:
    """The types of the runs that an event starts without anybody's command.

    Example: a label `gwi:auto` on an issue starts `autopilot`.
    """
    if event.by_bot or event.name not in ("issues", "pull_request"):
        return []
    label = event.label.name.lower() if event.label is not None and event.action == "labeled" else ""
    if label in AUTOMATIC_LABELS:
        return ["autopilot"]
    if event.name != "pull_request":
        return []
    # A pull request is in conflict until it is told otherwise; what tells of it is a change of its own.
    conflicting = label in CONFLICT_LABELS or (
        event.topic.mergeable is False and event.action in ("opened", "reopened", "synchronize", "edited")
    )
    if conflicting:
        return ["resolve"] if settings.on_conflict else []
    if event.action not in ("opened", "reopened", "ready_for_review") or event.topic.draft:
        return []
    wanted: list[tuple[AutomaticRun, bool]] = [
        ("triage", settings.triage), ("review", settings.review or settings.on_pull_open)
    ]  # fmt: skip
    return [kind for kind, on in wanted if on]
