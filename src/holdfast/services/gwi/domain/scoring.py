"""The priority of a work item, 0 to 100: a base by source, modifiers by type, labels and title. Pure.

Each modifier is stored with its reason, and the same subject always has the same score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from holdfast.services.gwi.domain.subjects import SignalSource, Subject, WorkType, words_of

SCORE_MAX: Final = 100
# Below this a signal is not worth an item.
SCORE_MIN: Final = 20
Percent = Annotated[int, Meta(ge=0, le=100)]

_BASES: Final[Mapping[SignalSource, tuple[int, str]]] = {
    "github_issue": (50, "a GitHub issue"),
    "github_pr": (60, "a GitHub pull request"),
    "github_comment": (30, "a GitHub comment"),
    "webhook": (40, "a webhook"),
    "scheduled": (45, "a schedule"),
    "manual": (70, "a person's request"),
    "api": (55, "an API call"),
}
_TYPES: Final[Mapping[WorkType, tuple[int, str]]] = {
    "issue_to_code": (10, "the issue asks for code"),
    "pr_resolve": (20, "the pull request has conflicts"),
    "docs_update": (-10, "only documentation changes"),
    "test_gen": (-5, "only tests are asked for"),
}
# Labels of one row count once.
_LABELS: Final[tuple[tuple[int, tuple[str, ...]], ...]] = (
    (15, ("priority",)),
    (25, ("urgent",)),
    (-20, ("low",)),
    (10, ("bug",)),
    (5, ("feature", "enhancement")),
)
_TITLES: Final[tuple[tuple[int, tuple[str, ...]], ...]] = (
    (20, ("security", "vulnerability")),
    (15, ("breaking", "critical")),
    (-5, ("docs",)),
)


class ScoreModifier(msgspec.Struct, frozen=True, rename="camel"):
    """One reason why a score is higher or lower than its base."""

    name: str
    value: int
    reason: str


class ScoreBreakdown(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A score with its reasons."""

    base_score: int
    modifiers: list[ScoreModifier] = []
    final_score: Percent
    explanation: str


def score(
    subject: Subject, type: WorkType, *, label_points: Mapping[str, int] | None = None
) -> ScoreBreakdown:
    """Score a subject; a tenant's `label_points` count instead of the table's for the labels they name.

    Example: `score(Subject(source="github_issue", labels=("urgent",)), "issue_to_code").final_score` is 85
    """
    base, origin = _BASES[subject.source]
    modifiers = [*_by_type(type), *_by_label(subject, label_points or {}), *_by_title(subject)]
    total = base + sum(one.value for one in modifiers)
    final = max(0, min(SCORE_MAX, total))
    return ScoreBreakdown(
        base_score=base, modifiers=modifiers, final_score=final,
        explanation=_explain(origin, base, modifiers=modifiers, total=total, final=final),
    )  # fmt: skip


def _by_type(type: WorkType) -> Iterator[ScoreModifier]:
    if type in _TYPES:
        value, reason = _TYPES[type]
        yield ScoreModifier(f"type:{type}", value, reason)


def _by_label(subject: Subject, own: Mapping[str, int]) -> Iterator[ScoreModifier]:
    names, own = subject.label_names, {label.strip().casefold(): points for label, points in own.items()}
    for value, labels in _LABELS:
        present = next((label for label in labels if label in names and label not in own), None)
        if present is not None:
            yield ScoreModifier(f"label:{present}", value, f"it is labelled {present}")
    for label in sorted(names & own.keys()):
        if own[label]:
            reason = f"it is labelled {label}, which the tenant's policy scores"
            yield ScoreModifier(f"label:{label}", own[label], reason)


def _by_title(subject: Subject) -> Iterator[ScoreModifier]:
    words = words_of(subject.title)
    for value, alternatives in _TITLES:
        present = next((word for word in alternatives if word in words), None)
        if present is not None:
            yield ScoreModifier(f"title:{present}", value, f"its title says {present}")


def _explain(origin: str, base: int, *, modifiers: list[ScoreModifier], total: int, final: int) -> str:
    reasons = [f"{base} for {origin}", *(f"{one.value:+d} because {one.reason}" for one in modifiers)]
    limits = "" if total == final else f"; {total} is limited to {final}"
    return f"{final} of {SCORE_MAX}: {', '.join(reasons)}{limits}."
