"""Changes between two trees, and whether two branches merge without a conflict."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

import msgspec

from holdfast.simulators.github.git_objects import GitObjects, TreeFile


class FileDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A changed file; `patch` has no file header, as GitHub gives it."""

    path: str
    status: str
    sha: str
    additions: int
    deletions: int
    patch: str


def differences(git: GitObjects, base: str, head: str) -> list[FileDifference]:
    """The files that differ between two commits, by path."""
    old, new = git.files(base), git.files(head)
    return [
        _difference(git, path, old.get(path), new.get(path))
        for path in sorted({*old, *new})
        if old.get(path) != new.get(path)
    ]


def _difference(git: GitObjects, path: str, old: TreeFile | None, new: TreeFile | None) -> FileDifference:
    before, after = (git.text(old) or "").splitlines(), (git.text(new) or "").splitlines()
    lines = list(difflib.unified_diff(before, after, lineterm=""))[2:]
    present = new or old
    assert present is not None
    return FileDifference(
        path=path, status="added" if old is None else "removed" if new is None else "modified",
        sha=present.sha, additions=sum(line.startswith("+") for line in lines),
        deletions=sum(line.startswith("-") for line in lines), patch="\n".join(lines),
    )  # fmt: skip


def conflicts(git: GitObjects, base: str, head: str) -> list[str]:
    """The paths that both sides have changed since their merge base in the same place."""
    ancestor = git.files(git.merge_base(base, head))
    ours, theirs = git.files(base), git.files(head)
    return [
        path
        for path in sorted({*ancestor, *ours, *theirs})
        if ours.get(path) != theirs.get(path)
        and ancestor.get(path) not in (ours.get(path), theirs.get(path))
        and _collide(*(git.text(files.get(path)) for files in (ancestor, ours, theirs)))
    ]


def _collide(ancestor: str | None, ours: str | None, theirs: str | None) -> bool:
    if ancestor is None or ours is None or theirs is None:
        return True
    spans = list(_changed_spans(ancestor, ours))
    return any(
        a[0] <= b[1] and b[0] <= a[1] for a in spans for b in _changed_spans(ancestor, theirs)
    )  # git takes neighbouring changes for a conflict too


def _changed_spans(ancestor: str, changed: str) -> Iterator[tuple[int, int]]:
    matcher = difflib.SequenceMatcher(None, ancestor.splitlines(), changed.splitlines(), autojunk=False)
    for kind, first, last, _, _ in matcher.get_opcodes():
        if kind != "equal":
            yield first, last
