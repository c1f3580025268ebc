"""What the bot does about a message: the result of deciding, and the input of the steps after it."""

from __future__ import annotations

import msgspec

from holdfast.providers.telegram import InlineKeyboardButton, InlineKeyboardMarkup


class Button(msgspec.Struct, frozen=True):
    """A button with what it sends back, or the URL that it opens."""

    text: str
    data: str = ""
    url: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A message to send (or to put in place of `edit`), and events to bring into accounts.

    With `uids` the message says what became of them in the accounts, under `text` as its heading; with
    `account` only in that one. `question` is the command that an answer to the message continues.
    """

    text: str = ""
    note: str = ""
    uids: tuple[str, ...] = ()
    account: str = ""
    buttons: tuple[Button, ...] = ()
    edit: int | None = None
    query_id: str = ""
    question: str = ""
    argument: str = ""

    @property
    def keyboard(self) -> InlineKeyboardMarkup | None:
        """One button in each row."""
        if not self.buttons:
            return None
        rows = [
            [InlineKeyboardButton(text=one.text[:60], callback_data=one.data, url=one.url)]
            for one in self.buttons
        ]
        return InlineKeyboardMarkup(inline_keyboard=rows)


NOTHING = Plan()
