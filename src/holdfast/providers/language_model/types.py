"""The objects of chat completions, with the fields that are used here."""

from __future__ import annotations

import msgspec


class ModelMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The model's message: its answer, or why it refused to give one."""

    content: str | None = None
    refusal: str | None = None


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    message: ModelMessage
    finish_reason: str | None = None


class ModelCompletion(msgspec.Struct, frozen=True, kw_only=True):
    choices: list[CompletionChoice]


class RefusalDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Why a call was refused; `code` is the most specific, and a number at some servers."""

    message: str | None = None
    type: str | None = None
    code: str | int | None = None


class ModelRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a refused call."""

    error: RefusalDetails = RefusalDetails()
