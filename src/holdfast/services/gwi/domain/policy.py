"""Policy as code: which changes are allowed, which need approval, which are refused. Pure.

decide_policy: destructive without approval ──► refused, whatever the rules say
               first rule that matches ──► deny │ require_approval │ allow; none ──► the default
               protected branch ──► 2 approvals at least; many changed lines ──► 1; destructive ──► 1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

ActionClass = Literal["READ", "WRITE_NON_DESTRUCTIVE", "DESTRUCTIVE"]
PolicyEffect = Literal["allow", "require_approval", "deny"]
PROTECTED_APPROVALS: Final = 2
RULES_MAX: Final = 200
Pattern = Annotated[str, Meta(min_length=1, max_length=300)]
Patterns = Annotated[list[Pattern], Meta(min_length=1, max_length=100)]


class PolicyRule(
    Struct, rename="camel", kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A rule for the changes that meet all of its conditions; patterns are globs, `release/*`.

    Of `paths`, one that changes suffices. `approvals` is how many the effect `require_approval` wants.
    """

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    effect: PolicyEffect
    classes: Annotated[list[ActionClass], Meta(min_length=1)] | None = None
    actions: Patterns | None = None
    repos: Patterns | None = None
    branches: Patterns | None = None
    paths: Patterns | None = None
    actors: Patterns | None = None
    lines_over: Annotated[int, Meta(ge=0)] | None = None
    approvals: Annotated[int, Meta(ge=1, le=10)] = 1

    @property
    def matches_everything(self) -> bool:
        chosen = (self.actions, self.repos, self.branches, self.paths, self.actors, self.lines_over)
        return self.classes is None and all(one is None for one in chosen)


class ScoringPolicy(Struct, rename="camel", kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Points of labels, instead of the usual ones."""

    labels: dict[str, Annotated[int, Meta(ge=-100, le=100)]] = {}


class PolicyDocument(Struct, rename="camel", kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A tenant's policy: ordered rules, and what holds besides them.

    Example: `PolicyDocument(rules=[PolicyRule(name="no workflows", effect="deny", paths=[".github/*"])])`
    """

    rules: Annotated[list[PolicyRule], Meta(max_length=RULES_MAX)] = []
    default_effect: PolicyEffect = "allow"
    protected_branches: Annotated[tuple[Pattern, ...], Meta(max_length=100)] = ("main", "master", "release/*")
    changed_lines_max: Annotated[int, Meta(ge=0)] = 500
    scoring: ScoringPolicy = ScoringPolicy()


class PolicyRequest(Struct, rename="camel", kw_only=True, frozen=True):
    """A change that is about to be made, and how many people approved it."""

    action_class: ActionClass
    action: str = ""
    repo: str = ""
    branch: str = ""
    paths: Sequence[str] = ()
    actor: str = ""
    changed_lines: int = 0
    approvals: int = 0


class PolicyDecision(Struct, rename="camel", kw_only=True, frozen=True):
    """Whether a change may be made now; `required_approvals` is how many approvals it needs in all."""

    allowed: bool
    required_approvals: int
    rule: str
    reason: str


NO_POLICY: Final = PolicyDocument()


def decide_policy(policy: PolicyDocument, request: PolicyRequest) -> PolicyDecision:
    """Decide whether a change may be made.

    Example: `decide_policy(policy, PolicyRequest(action_class="DESTRUCTIVE")).allowed` is False
    """
    floor, why = _approvals_floor(policy, request)
    if request.action_class == "DESTRUCTIVE" and request.approvals == 0:
        return PolicyDecision(
            allowed=False, required_approvals=floor, rule="destructive",
            reason="destructive changes need an approval",
        )  # fmt: skip
    rule = next((one for one in policy.rules if _matches(one, request)), None)
    name, effect = (rule.name, rule.effect) if rule else ("default", _default_effect(policy, request))
    if effect == "deny":
        reason = f"the rule {name!r} denies it"
        return PolicyDecision(allowed=False, required_approvals=floor, rule=name, reason=reason)
    asked = (rule.approvals if rule else 1) if effect == "require_approval" else 0
    if asked > floor:
        floor, why = asked, f"the rule {name!r} asks for {_count(asked)}"
    missing = floor - request.approvals
    return PolicyDecision(
        allowed=missing <= 0, required_approvals=floor, rule=name,
        reason=f"{why}; {missing} missing" if missing > 0 else why or f"the rule {name!r} allows it",
    )  # fmt: skip


def _default_effect(policy: PolicyDocument, request: PolicyRequest) -> PolicyEffect:
    return "allow" if request.action_class == "READ" else policy.default_effect


def _approvals_floor(policy: PolicyDocument, request: PolicyRequest) -> tuple[int, str]:
    """The approvals that no rule can waive, and why."""
    if request.action_class == "READ":
        return 0, ""
    if any(fnmatchcase(request.branch, pattern) for pattern in policy.protected_branches):
        return PROTECTED_APPROVALS, f"the branch {request.branch!r} is protected and needs two approvals"
    if request.changed_lines > policy.changed_lines_max:
        return 1, f"more than {policy.changed_lines_max} changed lines need an approval"
    return (1, "destructive changes need an approval") if request.action_class == "DESTRUCTIVE" else (0, "")


def _matches(rule: PolicyRule, request: PolicyRequest) -> bool:
    texts = (
        (rule.actions, (request.action,)), (rule.repos, (request.repo,)),
        (rule.branches, (request.branch,)), (rule.paths, request.paths), (rule.actors, (request.actor,)),
    )  # fmt: skip
    return (
        (rule.classes is None or request.action_class in rule.classes)
        and (rule.lines_over is None or request.changed_lines > rule.lines_over)
        and all(patterns is None or _any_matches(patterns, values) for patterns, values in texts)
    )


def _any_matches(patterns: Sequence[str], values: Sequence[str]) -> bool:
    return any(fnmatchcase(value, pattern) for value in values for pattern in patterns)


def _count(approvals: int) -> str:
    return "one approval" if approvals == 1 else f"{approvals} approvals"


def policy_errors(document: Mapping[str, Any]) -> list[str]:
    """The reasons why a policy can't apply; none for a valid one."""
    try:
        policy = msgspec.convert(dict(document), PolicyDocument)
    except msgspec.ValidationError as fault:
        return [str(fault)]
    return [*_repeated_names(policy), *_unreachable_rules(policy)]


def _repeated_names(policy: PolicyDocument) -> list[str]:
    names = [rule.name for rule in policy.rules]
    return [
        f"two rules are called {name!r}; rename one" for name in dict.fromkeys(names) if names.count(name) > 1
    ]


def _unreachable_rules(policy: PolicyDocument) -> list[str]:
    for place, rule in enumerate(policy.rules):
        if rule.matches_everything and place + 1 < len(policy.rules):
            later = ", ".join(repr(one.name) for one in policy.rules[place + 1 :][:5])
            return [f"the rule {rule.name!r} matches everything, so {later} never apply; move it to the end"]
    return []


def read_policy(document: Mapping[str, Any] | None) -> PolicyDocument:
    """The policy that applies: the stored one where it is valid, or else the usual one."""
    if document is None or policy_errors(document):
        return NO_POLICY
    return msgspec.convert(dict(document), PolicyDocument)
