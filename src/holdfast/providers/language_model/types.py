"""The objects of both message formats, with the fields that are used here."""

from __future__ import annotations

import msgspec


class ModelTokens(msgspec.Struct, frozen=True):
    """Tokens that a model has read and written."""

    input: int = 0
    output: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output


class ModelMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The model's message: its answer, or why it refused to give one."""

    content: str | None = None
    refusal: str | None = None


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    message: ModelMessage
    finish_reason: str | None = None


class CompletionUsage(msgspec.Struct, frozen=True, kw_only=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class ModelCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """The answer in the format of chat completions."""

    choices: list[CompletionChoice]
    usage: CompletionUsage = CompletionUsage()


class AnthropicBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a message; the input of a tool is the answer."""

    type: str
    input: msgspec.Raw = msgspec.Raw(b"null")


class AnthropicUsage(msgspec.Struct, frozen=True, kw_only=True):
    input_tokens: int = 0
    output_tokens: int = 0


class AnthropicMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The answer in Anthropic's format."""

    content: list[AnthropicBlock]
    stop_reason: str | None = None
    usage: AnthropicUsage = AnthropicUsage()


class RefusalDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Why a call was refused; `code` is the most specific, and a number at some servers."""

    message: str | None = None
    type: str | None = None
    code: str | int | None = None


class ModelRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a refused call, in either format."""

    error: RefusalDetails = RefusalDetails()
