"""Policy as code, roles and plans: pure decisions."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.services.gwi.domain.plans import PLANS, PlanLimits, PlanName, concurrent_runs_max, seats_left
from holdfast.services.gwi.domain.policy import (
    NO_POLICY,
    ActionClass,
    PolicyDocument,
    PolicyEffect,
    PolicyRequest,
    PolicyRule,
    decide_policy,
    policy_errors,
    read_policy,
)
from holdfast.services.gwi.domain.roles import may_grant

WRITE: Any = "WRITE_NON_DESTRUCTIVE"
NAMES = st.sampled_from(["main", "release/1", "topic", "src/a.py", ".github/ci.yml", "*"])
RULES = st.builds(
    PolicyRule, name=st.sampled_from("abc"), effect=st.sampled_from(get_args(PolicyEffect)),
    classes=st.none() | st.lists(st.sampled_from(get_args(ActionClass)), min_size=1, max_size=2),
    branches=st.none() | st.lists(NAMES, min_size=1, max_size=2),
    paths=st.none() | st.lists(NAMES, min_size=1, max_size=2),
    lines_over=st.none() | st.integers(0, 1_000), approvals=st.integers(1, 3),
)  # fmt: skip
POLICIES = st.builds(
    PolicyDocument, rules=st.lists(RULES, max_size=4), default_effect=st.sampled_from(get_args(PolicyEffect))
)
REQUESTS = st.builds(
    PolicyRequest, action_class=st.sampled_from(get_args(ActionClass)), branch=NAMES,
    paths=st.lists(NAMES, max_size=3), changed_lines=st.integers(0, 1_000), approvals=st.integers(0, 3),
)  # fmt: skip


@pytest.mark.parametrize(
    ("request_", "allowed", "needed"),
    [
        (PolicyRequest(action_class="READ", branch="main", changed_lines=900), True, 0),
        (PolicyRequest(action_class=WRITE, branch="topic"), True, 0),
        (PolicyRequest(action_class=WRITE, branch="main", approvals=1), False, 2),
        (PolicyRequest(action_class=WRITE, branch="main", approvals=2), True, 2),
        (PolicyRequest(action_class=WRITE, branch="release/2.0"), False, 2),
        (PolicyRequest(action_class=WRITE, branch="topic", changed_lines=500), True, 0),
        (PolicyRequest(action_class=WRITE, branch="topic", changed_lines=501), False, 1),
        (PolicyRequest(action_class="DESTRUCTIVE", branch="topic"), False, 1),
        (PolicyRequest(action_class="DESTRUCTIVE", branch="topic", approvals=1), True, 1),
    ],
)
def test_what_holds_without_any_rule(request_: PolicyRequest, allowed: bool, needed: int) -> None:
    decision = decide_policy(NO_POLICY, request_)
    assert (decision.allowed, decision.required_approvals) == (allowed, needed)
    assert decision.reason


def test_the_first_rule_that_matches_decides() -> None:
    deny = PolicyRule(name="no workflows", effect="deny", paths=[".github/*"])
    two = PolicyRule(name="two for code", effect="require_approval", paths=["src/*"], approvals=2)
    policy = PolicyDocument(rules=[deny, two, replace(two, name="later", effect="deny")])
    request = PolicyRequest(action_class=WRITE, branch="topic", paths=["src/a.py"])
    assert decide_policy(policy, request).rule == "two for code"
    assert not decide_policy(policy, replace(request, approvals=1)).allowed
    assert decide_policy(policy, replace(request, approvals=2)).allowed
    both = replace(request, paths=["src/a.py", ".github/ci.yml"], approvals=9)
    assert (decide_policy(policy, both).allowed, decide_policy(policy, both).rule) == (False, "no workflows")
    assert decide_policy(policy, replace(request, paths=["README.md"])).rule == "default"


@given(POLICIES, REQUESTS)
@settings(max_examples=150, derandomize=True, database=None)
def test_what_no_rule_can_waive(policy: PolicyDocument, request: PolicyRequest) -> None:
    decision = decide_policy(policy, request)
    if request.action_class == "DESTRUCTIVE" and request.approvals == 0:
        assert not decision.allowed
    if decision.allowed:
        assert request.approvals >= decision.required_approvals
        assert (
            request.approvals >= 2
            or request.branch not in ("main", "release/1")
            or request.action_class == "READ"
        )
        assert decide_policy(policy, replace(request, approvals=request.approvals + 1)).allowed
    assert decide_policy(policy, request) == decision


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"rules": [{"name": "x"}]}, "effect"),
        ({"rules": [{"name": "x", "effect": "maybe"}]}, "maybe"),
        ({"ruels": []}, "ruels"),
        ({"rules": [{"name": "x", "effect": "deny", "paths": []}]}, "paths"),
        ({"scoring": {"labels": {"bug": 200}}}, "labels"),
        ({"rules": [{"name": "x", "effect": "deny", "paths": ["a"]}] * 2}, "two rules are called 'x'"),
        (
            {"rules": [{"name": "all", "effect": "allow"}, {"name": "x", "effect": "deny", "paths": ["a"]}]},
            "matches everything",
        ),
    ],
)
def test_a_policy_that_can_not_apply_says_why(document: dict[str, Any], said: str) -> None:
    (error,) = policy_errors(document)
    assert said in error
    assert read_policy(document) is NO_POLICY


def test_nobody_gives_more_than_they_have() -> None:
    roles = ("viewer", "developer", "admin", "owner")
    granted = {(own, role) for own in (None, *roles) for role in roles if may_grant(own, role)}
    assert granted == {(own, role) for own in roles for role in roles[: roles.index(own) + 1]}


@pytest.mark.parametrize(
    ("plan", "limits"),
    [
        ("free", (50, 3, 3, 1)), ("team", (200, 10, 8, 3)), ("pro", (500, 20, 15, 5)),
        ("enterprise", (10_000, 200, 100, 20)),
    ],
)  # fmt: skip
def test_plans_allow_what_their_table_says(plan: PlanName, limits: tuple[int, ...]) -> None:
    found = PLANS[plan]
    at_once = concurrent_runs_max(plan, replace(found, concurrent_runs_max=None))
    assert (found.runs_per_month, found.repos_max, found.members_max, at_once) == limits


def test_limits_of_the_tenant_win_over_the_plans() -> None:
    own = PlanLimits(runs_per_month=1, repos_max=1, members_max=5, concurrent_runs_max=0)
    assert concurrent_runs_max("pro", own) == 0
    assert [seats_left(own, members=2, pending=pending) for pending in (0, 3, 9)] == [3, 0, 0]
