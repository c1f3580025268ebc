"""The change that a run makes: its files, where they go, and what a risk mode allows of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from holdfast.services.gwi.domain.diffs import FileDiff, parse_diff
from holdfast.services.gwi.domain.patches import ChangeAction

RiskMode = Literal["comment_only", "suggest_patch", "auto_patch", "auto_push"]
Publication = Literal["comment", "approval", "branch", "push"]
DIFF_CHARACTERS_MAX: Final = 20_000


class ChangedPath(Struct, kw_only=True, rename="camel"):
    """A file of a change: its new text, or the blob that it has on the other side of a merge."""

    file: str
    action: ChangeAction
    content: str | None = None
    blob: str | None = None
    mode: str = "100644"
    diff: str = ""


class PreparedChange(Struct, kw_only=True, rename="camel"):
    """A change that is ready to be committed on top of its first parent.

    `branch` is where it goes; a merge has the other side as its second parent, and `pushed_to` is the branch
    of the pull request that it resolves.
    """

    title: str
    message: str
    branch: str
    target: str
    parents: list[str]
    paths: list[ChangedPath] = []
    pushed_to: str = ""
    conflicts: list[str] = []

    @property
    def files(self) -> list[FileDiff]:
        return [file for path in self.paths for file in parse_diff(path.diff)]

    @property
    def lines(self) -> int:
        return sum(file.lines for file in self.files)


def action_of(old: object, new: object) -> ChangeAction:
    """What happens to a file; None where it does not exist."""
    return "create" if old is None else "delete" if new is None else "modify"


def publication_of(
    mode: RiskMode, change: PreparedChange | None, *, approved: bool, flagged: Sequence[str] = ()
) -> Publication:
    """What a run does with its change: what the risk mode allows, and less where something is in doubt.

    `flagged` are reasons why somebody has to look first: findings, or a policy. An approved change is
    published whatever the mode.

    Example: `publication_of("auto_patch", change, approved=False, flagged=["a secret"])` is `"approval"`
    """
    if change is None or not change.paths or change.conflicts:
        return "comment"
    if approved:
        return "push" if mode == "auto_push" and change.pushed_to else "branch"
    if mode == "comment_only":
        return "comment"
    if mode == "suggest_patch" or flagged:
        return "approval"
    return "push" if mode == "auto_push" and change.pushed_to else "branch"


def shown_diff(diff: str) -> str:
    """A diff as it is shown with a run: what is too long is cut."""
    return diff if len(diff) <= DIFF_CHARACTERS_MAX else diff[:DIFF_CHARACTERS_MAX] + "\n… cut"
