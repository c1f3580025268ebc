"""Classification, dedupe keys and scores, without a store."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import pytest

from holdfast.services.gwi.domain.scoring import ScoreBreakdown, score
from holdfast.services.gwi.domain.subjects import (
    SignalSource,
    Subject,
    WorkType,
    classify,
    dedupe_key,
)

BASES: dict[SignalSource, int] = {
    "github_issue": 50, "github_pr": 60, "github_comment": 30, "webhook": 40, "scheduled": 45, "manual": 70,
    "api": 55,
}  # fmt: skip
TYPES: dict[WorkType, int] = {
    "issue_to_code": 10, "pr_review": 0, "pr_resolve": 20, "docs_update": -10, "test_gen": -5, "custom": 0,
}  # fmt: skip
LABELS = {"priority": 15, "urgent": 25, "low": -20, "bug": 10, "feature": 5, "enhancement": 5}
TITLES = {"security": 20, "vulnerability": 20, "breaking": 15, "critical": 15, "docs": -5}


def _scored(source: SignalSource = "webhook", type: WorkType = "custom", **fields: Any) -> ScoreBreakdown:
    return score(Subject(source=source, **fields), type)


def test_every_source_has_its_base_score() -> None:
    assert BASES.keys() == set(get_args(SignalSource))
    for source, base in BASES.items():
        assert (_scored(source).base_score, _scored(source).final_score) == (base, base)


def test_every_type_label_and_title_word_changes_the_score_by_its_own_value() -> None:
    for type, value in TYPES.items():
        assert _scored(type=type).final_score == 40 + value
    for label, value in LABELS.items():
        for spelling in (label, label.upper(), f" {label.title()} "):
            result = _scored(labels=(spelling,))
            assert result.final_score == 40 + value
            assert [(one.name, one.value) for one in result.modifiers] == [(f"label:{label}", value)]
    for word, value in TITLES.items():
        assert _scored(title=f"A {word.upper()}: matter").final_score == 40 + value
    assert _scored(labels=("lowest", "bugs"), title="insecurity, criticality").modifiers == []


def test_modifiers_add_up_and_alternatives_of_one_rule_count_once() -> None:
    for type, label, word in itertools.product(TYPES, LABELS, TITLES):
        result = _scored("scheduled", type, labels=(label,), title=word)
        expected = 45 + TYPES[type] + LABELS[label] + TITLES[word]
        assert result.final_score == max(0, min(100, expected))
        assert result.base_score + sum(one.value for one in result.modifiers) == expected
    assert _scored(labels=("feature", "enhancement")).final_score == 45
    assert _scored(title="security vulnerability, breaking and critical").final_score == 75


def test_a_score_stays_between_0_and_100_and_says_so() -> None:
    high = _scored("manual", "pr_resolve", labels=("urgent", "priority", "bug"))
    assert (high.final_score, "140 is limited to 100" in high.explanation) == (100, True)
    low = score(Subject(source="github_comment", labels=("low",)), "docs_update", label_points={"low": -90})
    assert (low.final_score, "-70 is limited to 0" in low.explanation) == (0, True)


def test_the_explanation_names_every_reason() -> None:
    result = _scored("github_issue", "issue_to_code", labels=("Urgent",), title="Critical: checkout fails")
    assert result.explanation == (
        "100 of 100: 50 for a GitHub issue, +10 because the issue asks for code, +25 because it is labelled "
        "urgent, +15 because its title says critical."
    )
    assert _scored("github_issue", "issue_to_code", labels=("Urgent",)) == _scored(
        "github_issue", "issue_to_code", labels=("Urgent",)
    )


def test_a_tenants_points_count_instead_of_the_tables() -> None:
    subject = Subject(source="webhook", labels=("Urgent", "vip", "bug"))
    result = score(subject, "custom", label_points={"URGENT": 5, "vip": 30, "bug": 0})
    assert result.final_score == 40 + 5 + 30
    assert {one.name for one in result.modifiers} == {"label:urgent", "label:vip"}


@pytest.mark.parametrize(
    ("fields", "type"),
    [
        ({"source": "github_pr"}, "pr_review"),
        ({"source": "github_pr", "mergeable": True}, "pr_review"),
        ({"source": "github_pr", "mergeable": False}, "pr_resolve"),
        ({"source": "github_pr", "labels": ("has-conflicts",)}, "pr_resolve"),
        ({"source": "github_issue"}, "issue_to_code"),
        ({"source": "github_issue", "labels": ("Documentation",)}, "docs_update"),
        ({"source": "github_issue", "title": "docs: explain the settings"}, "docs_update"),
        ({"source": "github_issue", "labels": ("needs tests",)}, "test_gen"),
        ({"source": "github_issue", "title": "Write a test for the cart"}, "test_gen"),
        ({"source": "github_issue", "title": "The latest documentary"}, "issue_to_code"),
        ({"source": "api", "resource_type": "issue"}, "issue_to_code"),
        ({"source": "manual", "resource_type": "pr", "mergeable": False}, "pr_resolve"),
        ({"source": "github_comment", "resource_type": "comment"}, "custom"),
        ({"source": "webhook"}, "custom"),
        ({"source": "scheduled", "title": "docs"}, "custom"),
    ],
)
def test_a_subject_is_classified_by_kind_labels_and_title(fields: dict[str, Any], type: WorkType) -> None:
    assert classify(Subject(**fields)) == type


def test_a_number_makes_the_dedupe_key_stable_under_title_edits() -> None:
    first = Subject(source="github_issue", repo="acme/shop", resource_type="issue", number=42, title="A")
    second = Subject(source="api", repo="acme/shop", resource_type="issue", number=42, title="B")
    assert dedupe_key("gh-org-7", first) == dedupe_key("gh-org-7", second) == "gh-org-7:acme/shop:issue:42"
    assert dedupe_key("gh-org-8", first) != dedupe_key("gh-org-7", first)


def test_without_a_number_the_title_identifies_the_subject() -> None:
    def key(title: str) -> str:
        return dedupe_key("t", Subject(source="manual", repo="acme/shop", title=title))

    assert key("test") == key("  TEST ") == "t:acme/shop:-:9f86d081"
    assert key("other") != key("test")
