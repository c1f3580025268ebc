"""The subject of a signal: the issue, pull request, comment or commit that an event is about. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

SignalSource = Literal["github_issue", "github_pr", "github_comment", "webhook", "scheduled", "manual", "api"]
ResourceType = Literal["issue", "pr", "comment", "commit"]
WorkType = Literal["issue_to_code", "pr_review", "pr_resolve", "docs_update", "test_gen", "custom"]

_WORD: Final = re.compile(r"[a-z0-9]+")
_DOCS: Final = frozenset({"doc", "docs", "documentation"})
_TESTS: Final = frozenset({"test", "tests", "testing"})
_CONFLICTS: Final = frozenset({"conflict", "conflicts"})
CLOSING: Final = frozenset({"closed", "deleted"})


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a signal by which it is classified and scored.

    `mergeable` is None where GitHub has not said; `done` is whether a closed subject was merged or completed.
    """

    source: SignalSource
    resource_type: ResourceType | None = None
    number: int | None = None
    repo: str = ""
    title: str = ""
    labels: tuple[str, ...] = ()
    action: str = ""
    mergeable: bool | None = None
    done: bool = False

    @property
    def closing(self) -> bool:
        """Whether the event ends the life of its subject."""
        return self.action in CLOSING

    @property
    def label_names(self) -> frozenset[str]:
        return frozenset(label.strip().casefold() for label in self.labels)


def words_of(text: str) -> frozenset[str]:
    """The words of a text in lower case, without punctuation."""
    return frozenset(_WORD.findall(text.casefold()))


def classify(subject: Subject) -> WorkType:
    """The type of work that a subject asks for; `custom` for anything but issues and pull requests.

    Example: `classify(Subject(source="github_issue", title="Improve the docs"))` is `"docs_update"`
    """
    match subject.source, subject.resource_type:
        case ("github_pr", _) | ("webhook" | "scheduled" | "manual" | "api", "pr"):
            conflicting = subject.mergeable is False or _mentions(_CONFLICTS, subject.labels)
            return "pr_resolve" if conflicting else "pr_review"
        case ("github_issue", _) | ("webhook" | "scheduled" | "manual" | "api", "issue"):
            named = (*subject.labels, subject.title)
            if _mentions(_DOCS, named):
                return "docs_update"
            return "test_gen" if _mentions(_TESTS, named) else "issue_to_code"
    return "custom"


def _mentions(wanted: frozenset[str], texts: Iterable[str]) -> bool:
    return any(words_of(text) & wanted for text in texts)


def dedupe_key(tenant_id: str, subject: Subject) -> str:
    """The key under which signals of one subject meet; a number makes it stable under title edits.

    Example: `gh-org-7:acme/shop:issue:42`, `gh-org-7:acme/shop:commit:9f86d081`
    """
    last = str(subject.number)
    if subject.number is None:
        last = hashlib.sha256(subject.title.strip().lower().encode()).hexdigest()[:8]
    return f"{tenant_id}:{subject.repo or '-'}:{subject.resource_type or '-'}:{last}"
