"""Risk and votes, without a store."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConflictError, ForbiddenError, InvalidError
from holdfast.services.gwi.domain.patches import (
    FILES_MAX,
    FileChange,
    Patchset,
    changed_lines,
    check_patchset,
    patch_hash,
)
from holdfast.services.gwi.domain.risk import assess, level_of, risk_score
from holdfast.services.gwi.domain.votes import (
    Ballot,
    CandidateStatus,
    Vote,
    VoteDecision,
    outcome,
    votes_kept,
)

PATHS = st.sampled_from(
    ["src/cart.py", "src/auth/login.py", "deploy.yaml", "README.md", "tests/test_cart.py", "a/credentials.py"]
    + [f"src/module_{number}.py" for number in range(20)]
)
SEVERITIES = st.lists(st.integers(1, 4), max_size=40)


@given(SEVERITIES, st.integers(1, 4))
def test_a_further_factor_never_lowers_the_risk(severities: list[int], more: int) -> None:
    before, after = risk_score(severities), risk_score([*severities, more])
    assert 0 <= before <= after <= 100
    if severities:
        # The others never lift the risk to the level of a worse one.
        assert 25 * max(severities) <= before < min(101, 25 * max(severities) + 25)


@given(st.sets(PATHS), PATHS, st.integers(1, 5), st.integers(1, 5))
def test_more_files_or_complexity_never_lower_the_risk(files: set[str], more: str, c1: int, c2: int) -> None:
    low, high = sorted((c1, c2))
    small, large = assess(files, complexity=low), assess({*files, more}, complexity=high)
    assert small.score <= large.score
    assert small.required_approvals <= large.required_approvals
    assert small.confidence == 100 - small.score


def test_each_factor_has_its_severity() -> None:
    def factors(*files: str, complexity: int = 1) -> dict[str, int]:
        return {one.name: one.severity for one in assess(files, complexity=complexity).factors}

    numbered = [f"src/m{number}.py" for number in range(11)]
    assert factors(*numbered[:5]) == {}
    assert factors(*numbered[:6]) == factors(*numbered[:10]) == {"file_count": 2}
    assert factors(*numbered) == {"file_count": 3}
    assert factors(complexity=3) == {"complexity": 2}
    assert factors(complexity=4) == factors(complexity=5) == {"complexity": 4}
    for path in ("src/auth/login.py", "src/Security.py", "lib/credentials_store.go"):
        assert factors(path) == {"security_path": 4}
    for path in ("config/prod.yml", "pyproject.toml", ".env.local", "src/app.config.js", "Dockerfile"):
        assert factors(path) == {"config_file": 2}
    assert factors("src/cart.py", "docs/settings.md") == {}


def test_the_level_decides_how_many_must_approve() -> None:
    assert [level_of(score) for score in (0, 24, 25, 49, 50, 74, 75, 100)] == [
        "low", "low", "medium", "medium", "high", "high", "critical", "critical",
    ]  # fmt: skip
    assert assess(["src/cart.py"], complexity=1).required_approvals == 1
    assert assess(["deploy.yaml"], complexity=1).required_approvals == 2


AT = datetime(2026, 1, 1, tzinfo=UTC)


def _vote(user: str, decision: VoteDecision = "approved", patch: str = "h1") -> Vote:
    return Vote(user_id=user, decision=decision, timestamp=AT, patch_hash=patch)


def _ballot(*votes: Vote, status: CandidateStatus = "ready", required: int = 2) -> Ballot:
    return Ballot(status=status, author="author", patch_hash="h1", required=required, votes=votes)


def test_enough_approvals_approve_and_any_rejection_rejects() -> None:
    assert outcome(_ballot(), _vote("ann")) == "ready"
    assert outcome(_ballot(_vote("ann")), _vote("ben")) == "approved"
    assert outcome(_ballot(required=1), _vote("ann")) == "approved"
    assert outcome(_ballot(_vote("ann")), _vote("ben", "rejected")) == "rejected"
    assert outcome(_ballot(_vote("ann")), _vote("ben", "changes_requested")) == "draft"


def test_a_vote_counts_once_for_others_patches_that_are_ready_and_unchanged() -> None:
    with pytest.raises(ForbiddenError, match="own candidate"):
        outcome(_ballot(), _vote("author"))
    with pytest.raises(ConflictError, match="voted on this patch already"):
        outcome(_ballot(_vote("ann")), _vote("ann", "rejected"))
    with pytest.raises(ConflictError, match="the patch has changed"):
        outcome(_ballot(), _vote("ann", patch="h0"))
    for status in ("draft", "approved", "rejected", "applied", "failed"):
        with pytest.raises(ConflictError, match=f"the candidate is {status}"):
            outcome(_ballot(status=status), _vote("ann"))


def test_a_changed_patch_drops_the_votes() -> None:
    votes = [_vote("ann"), _vote("ben", "changes_requested")]
    assert votes_kept(votes, patch_hash="h2") == []
    assert votes_kept(votes, patch_hash="h1") == [votes[0]]


def _patch(*changes: FileChange, branch: str = "gwi/c1") -> Patchset:
    return Patchset(branch_name=branch, base_commit="", changes=list(changes), commit_message="m")


def _file(path: str, content: str | None = "x\n") -> FileChange:
    return FileChange(file=path, action="modify", content=content)


def test_any_change_of_a_patch_changes_its_hash() -> None:
    patches = [None, _patch(_file("a")), _patch(_file("a", "y\n")), _patch(_file("b")), _patch(branch="x")]
    assert len({patch_hash(one) for one in patches}) == len(patches)
    assert patch_hash(_patch(_file("a"))) == patch_hash(_patch(_file("a")))


def test_changed_lines_are_counted_in_diffs_or_the_new_content() -> None:
    diff = "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n same\n-old\n+new\n+more\n"
    changes = (FileChange(file="a", action="modify", content="", diff=diff), _file("b", "1\n2\n3\n"))
    assert changed_lines(_patch(*changes)) == 6


@pytest.mark.parametrize(
    "patchset",
    [
        _patch(),
        _patch(_file("/etc/passwd")),
        _patch(_file("src/../../x")),
        _patch(_file("a//b")),
        _patch(_file("a"), _file("a")),
        _patch(_file("a", None)),
        _patch(_file("a"), branch="-x"),
        _patch(_file("a"), branch="a..b"),
        _patch(_file("a", "x" * 800_000)),
        _patch(*(_file(f"f{number}") for number in range(FILES_MAX + 1))),
    ],
)
def test_a_patch_that_can_not_be_applied_is_refused(patchset: Patchset) -> None:
    with pytest.raises(InvalidError):
        check_patchset(patchset)
