"""Commands in comments: one a line, `/gwi` first. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

CommandRunType = Literal["triage", "review", "resolve", "autopilot"]
CommandName = Literal["triage", "review", "resolve", "generate", "approve", "deny", "revoke"]
RUN_TYPES: Final[Mapping[str, CommandRunType]] = {
    "triage": "triage", "review": "review", "resolve": "resolve", "generate": "autopilot"
}  # fmt: skip
DECISIONS: Final = ("approve", "deny", "revoke")
PREFIX: Final = "/gwi"
COMMANDS_MAX: Final = 10
USAGE: Final = (
    "commands are /gwi triage, review, resolve or generate; /gwi approve TARGET [--scopes a,b]; "
    '/gwi deny TARGET --reason "why"; /gwi revoke TARGET'
)


class CommentCommand(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A command as it was written; one that can't be followed has a `fault`, which its author is told."""

    text: str
    name: CommandName | None = None
    target: str = ""
    scopes: tuple[str, ...] = ()
    reason: str = ""
    fault: str = ""


def parse_commands(body: str) -> list[CommentCommand]:
    """The commands of a comment, in order; quotations and code are not read.

    Example: `parse_commands('/gwi deny cand-1 --reason "too risky"')[0].reason` is `"too risky"`
    """
    return [_parse(line) for line in _command_lines(body)][:COMMANDS_MAX]


def _command_lines(body: str) -> Iterator[str]:
    fenced = False
    for line in body.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        # Four spaces begin code.
        elif not fenced and not line.startswith(("    ", "\t")) and _is_command(line):
            yield line.strip()


def _is_command(line: str) -> bool:
    words = line.split(maxsplit=1)
    return bool(words) and words[0].lower() == PREFIX


def _parse(line: str) -> CommentCommand:
    try:
        words = shlex.split(line)[1:]
    except ValueError:
        return CommentCommand(text=line, fault="a quotation mark is not closed")
    name = words[0].lower() if words else ""
    if name in RUN_TYPES:
        fault = f"{name} takes no arguments" if len(words) > 1 else ""
        return CommentCommand(text=line, name=None if fault else name, fault=fault)  # type: ignore[arg-type]
    if name not in DECISIONS:
        return CommentCommand(text=line, fault=f"there is no command {name!r}; {USAGE}")
    return _decision(line, name, words[1:])


def _decision(line: str, name: str, words: list[str]) -> CommentCommand:
    targets, options = list[str](), dict[str, list[str]]()
    allowed = {"approve": "--scopes", "deny": "--reason"}.get(name, "")
    current: list[str] = targets
    for word in words:
        if word.startswith("--"):
            option, _, value = word.partition("=")
            if option != allowed:
                return CommentCommand(text=line, fault=f"{name} has no option {option}")
            current = options.setdefault(option, [value] if value else [])
        else:
            current.append(word)
    if len(targets) != 1:
        return CommentCommand(text=line, fault=f"{name} takes one target, such as cand-… or run-…")
    reason = " ".join(options.get("--reason", []))
    if name == "deny" and not reason:
        return CommentCommand(text=line, fault='deny takes a reason: --reason "why"')
    scopes = tuple(one for word in options.get("--scopes", []) for one in word.split(",") if one)
    return CommentCommand(text=line, name=name, target=targets[0], scopes=scopes, reason=reason)  # type: ignore[arg-type]
