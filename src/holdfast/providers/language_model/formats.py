"""The two message formats: chat completions of OpenAI-compatible servers, and Anthropic's messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol

import msgspec

from holdfast.errors import InvalidError, RetryLaterError, TooLargeError
from holdfast.providers.credentials import BEARER, TokenPlacement, in_header
from holdfast.providers.language_model.types import AnthropicMessage, ModelCompletion, ModelTokens
from holdfast.providers.rest import Call

FormatName = Literal["openai", "anthropic"]
ANTHROPIC_VERSION: Final = "2023-06-01"
# Anthropic's format requires a limit; this one holds any answer that is asked for here.
ANSWER_TOKENS: Final = 8_192


class ModelQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question to a model: the text, what to do with it, and the struct to answer with."""

    model: str
    text: str
    instructions: str
    kind: type[msgspec.Struct]
    tokens_max: int | None = None


class MessageFormat(Protocol):
    """How a question is asked and its answer read."""

    act: str
    placement: TokenPlacement

    def call(self, question: ModelQuestion) -> Call:
        """The request."""

    def tokens(self, body: bytes) -> ModelTokens:
        """What the answer has used, whether or not it is of use."""

    def content(self, body: bytes) -> bytes:
        """The JSON of the answer; raises where the model gave none."""


class OpenAiFormat:
    """`POST chat/completions` with the struct's schema as the response format, in strict mode."""

    act = "chat.completions"
    placement = BEARER

    def call(self, question: ModelQuestion) -> Call:
        messages = [
            {"role": "system", "content": question.instructions}, {"role": "user", "content": question.text},
        ]  # fmt: skip
        form = {"name": question.kind.__name__, "strict": True, "schema": schema_of_kind(question.kind)}
        body: dict[str, Any] = {
            "model": question.model, "messages": messages,
            "response_format": {"type": "json_schema", "json_schema": form},
        }  # fmt: skip
        if question.tokens_max is not None:
            body["max_completion_tokens"] = question.tokens_max
        return Call(self.act, "POST", "chat/completions", body=msgspec.json.encode(body), repeatable=True)

    def tokens(self, body: bytes) -> ModelTokens:
        used = msgspec.json.decode(body, type=ModelCompletion).usage
        return ModelTokens(used.prompt_tokens, used.completion_tokens)

    def content(self, body: bytes) -> bytes:
        completion = msgspec.json.decode(body, type=ModelCompletion)
        if not completion.choices:
            raise RetryLaterError(f"{self.act} gave no answer", after_s=0.0)
        choice = completion.choices[0]
        if choice.message.refusal or choice.finish_reason == "content_filter":
            raise _refused(self.act)
        if choice.finish_reason == "length":
            raise _cut(self.act)
        return (choice.message.content or "").encode(errors="replace")


class AnthropicFormat:
    """`POST messages` with the struct as the one tool that the model must use."""

    act = "messages"
    placement = in_header("x-api-key")

    def call(self, question: ModelQuestion) -> Call:
        name = question.kind.__name__
        body = {
            "model": question.model, "max_tokens": question.tokens_max or ANSWER_TOKENS,
            "system": question.instructions, "messages": [{"role": "user", "content": question.text}],
            "tools": [{
                "name": name, "description": f"Give the answer as {name}.",
                "input_schema": schema_of_kind(question.kind),
            }],
            "tool_choice": {"type": "tool", "name": name},
        }  # fmt: skip
        headers: Mapping[str, str] = {"anthropic-version": ANTHROPIC_VERSION}
        return Call(self.act, "POST", "messages", body=msgspec.json.encode(body), headers=headers,
                    repeatable=True)  # fmt: skip

    def tokens(self, body: bytes) -> ModelTokens:
        used = msgspec.json.decode(body, type=AnthropicMessage).usage
        return ModelTokens(used.input_tokens, used.output_tokens)

    def content(self, body: bytes) -> bytes:
        message = msgspec.json.decode(body, type=AnthropicMessage)
        if message.stop_reason == "refusal":
            raise _refused(self.act)
        if message.stop_reason == "max_tokens":
            raise _cut(self.act)
        given = [bytes(block.input) for block in message.content if block.type == "tool_use"]
        if not given:
            raise RetryLaterError(f"{self.act} gave no answer", after_s=0.0)
        return given[0]


FORMATS: Final[Mapping[FormatName, MessageFormat]] = {
    "openai": OpenAiFormat(),
    "anthropic": AnthropicFormat(),
}


def schema_of_kind(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of a struct, whose root is no reference."""
    _, definitions = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    schema: dict[str, Any] = definitions.pop(kind.__name__)
    if definitions:
        schema["$defs"] = definitions
    return schema


def _refused(act: str) -> InvalidError:
    return InvalidError(f"{act}: the model refused to answer this text")


def _cut(act: str) -> TooLargeError:
    return TooLargeError(f"{act}: the answer was cut at the model's limit")
