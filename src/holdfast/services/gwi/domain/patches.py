"""Patches: the files of a change, the hash that votes are bound to, and its size. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from holdfast.errors import InvalidError

ChangeAction = Literal["create", "modify", "delete"]
FILES_MAX: Final = 300
# A candidate is one document, which holds the patch besides everything else.
PATCH_BYTES_MAX: Final = 700_000
_BRANCH: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


class PlannedStep(Struct, rename="camel", kw_only=True):
    """One step of a candidate's plan."""

    order: int
    description: str
    files: list[str] | None = None
    action: Literal["create", "modify", "delete", "review", "test"]


class ChangePlan(Struct, rename="camel", kw_only=True):
    """What a candidate is going to do."""

    summary: str
    steps: list[PlannedStep] = []
    complexity: Annotated[int, Meta(ge=1, le=5)]
    affected_files: list[str] = []
    estimated_minutes: int | None = None


class FileChange(Struct, rename="camel", kw_only=True):
    """One file of a patch, as a whole or as a diff."""

    file: str
    action: ChangeAction
    content: str | None = None
    diff: str | None = None


class Patchset(Struct, rename="camel", kw_only=True):
    """The change itself, on top of a commit."""

    branch_name: str
    base_commit: str
    changes: list[FileChange] = []
    commit_message: str


def patch_hash(patchset: Patchset | None) -> str:
    """The SHA-256 of a patch; empty without one. Any change of a byte changes it.

    Example: `vote.patch_hash == patch_hash(candidate.patchset)`
    """
    return "" if patchset is None else hashlib.sha256(_ENCODER.encode(patchset)).hexdigest()


def files_of(plan: ChangePlan, patchset: Patchset | None) -> list[str]:
    """Every file that the plan names or the patch changes, sorted."""
    changed = [] if patchset is None else [one.file for one in patchset.changes]
    return sorted({*plan.affected_files, *changed})


def changed_lines(patchset: Patchset | None) -> int:
    """Added and removed lines: counted in the diffs, and where there is none, the new content's lines."""
    return 0 if patchset is None else sum(map(_lines_of, patchset.changes))


def _lines_of(change: FileChange) -> int:
    if change.diff is None:
        return len((change.content or "").splitlines())
    return sum(
        line.startswith(("+", "-")) and not line.startswith(("+++ ", "--- "))
        for line in change.diff.splitlines()
    )


def deletes_files(patchset: Patchset | None) -> bool:
    return patchset is not None and any(one.action == "delete" for one in patchset.changes)


def branch_name(candidate_id: str) -> str:
    """The branch that a candidate is applied on: the same at every attempt, so no attempt makes a second."""
    return f"gwi/{candidate_id}"


def check_patchset(patchset: Patchset) -> None:
    """Raise InvalidError for a patch that can't be applied: too large, twice a file, a path outside."""
    if not _BRANCH.fullmatch(patchset.branch_name) or ".." in patchset.branch_name:
        raise InvalidError(f"{patchset.branch_name[:60]!r} is no branch name", "patchset.branchName")
    files = [one.file for one in patchset.changes]
    if not 1 <= len(files) <= FILES_MAX:
        raise InvalidError(f"a patch changes 1 to {FILES_MAX} files, not {len(files)}", "patchset.changes")
    for place, one in enumerate(patchset.changes):
        path = f"patchset.changes[{place}]"
        if not one.file or one.file.startswith("/") or {"", ".", ".."} & set(one.file.split("/")):
            raise InvalidError(f"{one.file[:100]!r} is no path inside the repository", path)
        if files.index(one.file) != place:
            raise InvalidError(f"{one.file!r} changes twice; combine the changes", path)
        if one.action != "delete" and one.content is None:
            raise InvalidError(f"{one.file!r} needs its new content", path)
    if len(_ENCODER.encode(patchset)) > PATCH_BYTES_MAX:
        raise InvalidError(f"a patch has at most {PATCH_BYTES_MAX:,} bytes; split it", "patchset")
