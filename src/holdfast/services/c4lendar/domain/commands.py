"""Commands in a message: the first one wins, anywhere in the text, in any case, as a whole word."""

from __future__ import annotations

import re
from typing import Final

import msgspec

NAMES: Final = ("cal", "alt", "del", "aut", "dis", "view", "undo", "tz")
SLASHES: Final = ("start", "help", "approve", "revoke", "listchats")
_COMMAND: Final = re.compile(
    rf"(?<![\w#/])(?:#(?P<hash>{'|'.join(NAMES)})|/(?P<slash>{'|'.join(SLASHES)})(?:@\w+)?)(?![\w])",
    re.IGNORECASE,
)


class BotCommand(msgspec.Struct, frozen=True):
    """A command and the rest of the message."""

    name: str
    argument: str


def find_command(text: str) -> BotCommand | None:
    """Return the first command of a text; what stands around it is its argument.

    Example: `find_command("Lunch tomorrow #CAL noon")` is the command `cal` of "Lunch tomorrow noon".
    """
    match = _COMMAND.search(text)
    if match is None:
        return None
    name = (match["hash"] or match["slash"]).lower()
    return BotCommand(name, f"{text[: match.start()].strip()} {text[match.end() :].strip()}".strip())
