"""The pure decisions of agents: complexity, review, conflicts, what a risk mode allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.services.gwi.agents.planner import named_files
from holdfast.services.gwi.agents.three_way_merge import merge_file
from holdfast.services.gwi.domain.changes import (
    ChangedPath,
    PreparedChange,
    Publication,
    RiskMode,
    publication_of,
)
from holdfast.services.gwi.domain.complexity import complexity_of
from holdfast.services.gwi.domain.conflicts import Conflict, resolve
from holdfast.services.gwi.domain.diffs import AddedLine, FileDiff, diff_of, parse_diff
from holdfast.services.gwi.domain.review import review, verdict

LINE = AddedLine(1, "x")
# Among them lines that look like a part of a diff.
TEXTS = st.lists(
    st.sampled_from(["a", "b", "", "+x", "-y", "@@ -1 +1 @@", "diff --git a/x b/x"]), max_size=12
)


def _files(*paths: str, lines: int = 1, hunks: int = 0) -> list[FileDiff]:
    return [FileDiff(path=path, added=[LINE] * lines, hunks=hunks) for path in paths]


@pytest.mark.parametrize(
    ("files", "score"),
    [
        ([], 1.0),
        (_files("src/a.py"), 1.0),
        (_files("src/a.py", lines=200), 1.0),
        (_files("src/a.py", lines=201), 2.0),
        (_files("src/a.py", lines=500), 2.0),
        (_files("src/a.py", lines=501), 3.0),
        (_files(*(f"src/{n}.py" for n in range(8))), 1.0),
        (_files(*(f"src/{n}.py" for n in range(9))), 2.5),
        (_files("src/a.py", hunks=5), 1.0),
        (_files("src/a.py", hunks=6), 2.5),
        (_files("settings.toml"), 2.0),
        (_files("src/auth/login.py"), 4.0),
        (_files("deploy/run.sh"), 3.0),
        (_files("tests/test_a.py"), 1.0),
        (_files("tests/test_a.py", lines=201), 1.0),
        (_files("tests/test_a.py", "src/a.py", lines=101), 2.0),
        (_files(*(f"deploy/auth{n}.yaml" for n in range(9)), lines=99, hunks=1), 10.0),
    ],
)
def test_each_thing_that_makes_a_change_harder_counts(files: list[FileDiff], score: float) -> None:
    assert complexity_of(files).score == score


@given(TEXTS, TEXTS)
def test_a_diff_names_the_lines_that_were_added(old: list[str], new: list[str]) -> None:
    before, after = "".join(f"{one}\n" for one in old), "".join(f"{one}\n" for one in new)
    (file,) = parse_diff(diff_of("src/a.py", before, after))
    assert all(new[line.number - 1] == line.text for line in file.added)
    assert len(old) - file.removed + len(file.added) == len(new)


def test_rules_find_what_a_reviewer_would_insist_on() -> None:
    text = "\n".join([
        "<<<<<<< ours", "password = 'hunter22'", "subprocess.run(x, shell=True)", "print(1)",
        "-----BEGIN RSA PRIVATE KEY-----", "",
    ])  # fmt: skip
    found = review(parse_diff(diff_of("src/a.py", None, text)))
    assert [(one.rule, one.line) for one in found] == [
        ("conflict_marker", 1), ("private_key", 5), ("hard_coded_password", 2), ("shell", 3), ("no_test", 0),
    ]  # fmt: skip
    assert verdict(found) == "request_changes"
    assert verdict(review(parse_diff(diff_of("docs/a.md", None, "Text.\n")))) == "approve"


@pytest.mark.parametrize(
    ("conflict", "decided"),
    [
        (Conflict(("a",), ("a ",), ("b",)), ("b",)),
        (Conflict(("a",), ("b",), (" a",)), ("b",)),
        (Conflict((), ("x", "y"), ("x",)), ("x", "y")),
        (Conflict((), ("import b",), ("import c",)), ("import b", "import c")),
        (Conflict((), ("- one",), ("- two",)), ("- one", "- two")),
        (Conflict(("a",), ("b",), ("c",)), None),
        (Conflict((), ("x = 1",), ("x = 2",)), None),
        (Conflict(("a",), (), ("c",)), None),
    ],
)
def test_only_certain_conflicts_are_resolved(conflict: Conflict, decided: tuple[str, ...] | None) -> None:
    assert resolve(conflict) == decided


async def test_git_merges_what_does_not_touch_and_leaves_binary_files_alone() -> None:
    merged = await merge_file(b"a\nb\nc\n", b"A\nb\nc\n", b"a\nb\nC\n")
    assert merged is not None
    assert (merged.content, merged.open) == (b"A\nb\nC\n", 0)
    clash = await merge_file(b"a\n", b"b\n", b"c\n")
    assert clash is not None
    assert (clash.open, b"<<<<<<< ours" in clash.content) == (1, True)
    assert await merge_file(b"a\0b", b"a\0c", b"a\0d") is None


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("comment_only", ("comment", "comment", "branch")),
        ("suggest_patch", ("approval", "approval", "branch")),
        ("auto_patch", ("branch", "approval", "branch")),
        ("auto_push", ("push", "approval", "push")),
    ],
)
def test_a_risk_mode_decides_what_happens_to_a_change(
    mode: RiskMode, expected: tuple[Publication, Publication, Publication]
) -> None:
    change = PreparedChange(
        title="t", message="m", branch="gwi/x", target="main", parents=["p"], pushed_to="feature",
        paths=[ChangedPath(file="a", action="modify", content="b")],
    )  # fmt: skip
    assert expected == (
        publication_of(mode, change, approved=False),
        publication_of(mode, change, approved=False, flagged=["a secret"]),
        publication_of(mode, change, approved=True),
    )
    assert publication_of(mode, None, approved=True) == "comment"


def test_files_are_found_by_their_names_in_a_text() -> None:
    paths = ["src/price.py", "src/cart.py", "README.md"]
    assert named_files("See src/price.py and `cart.py`.", paths) == ["src/price.py", "src/cart.py"]
