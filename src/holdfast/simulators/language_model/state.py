"""The state of the simulated language model: the answers it gives next, and the command that sets them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.simulators.server import Command

KEY: Final = "sk-simulated-key"
MODEL: Final = "simulated-model"


class LanguageModelState:
    """The answers that commands have set, by the name of the asked schema; "" is for any."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.answers: dict[str, SetAnswer] = {}

    def answer_to(self, schema: str) -> SetAnswer | None:
        return self.answers.get(schema) or self.answers.get("")


class SetAnswer(Command[LanguageModelState], frozen=True):
    """Give this answer from now on: {content, refusal, finishReason, schema}. Text is not encoded as JSON.

    With `schema`, to questions for this schema alone.
    """

    content: Any = None
    refusal: str | None = None
    finish_reason: str = "stop"
    schema: str = ""

    def run(self, state: LanguageModelState) -> object:
        state.answers[self.schema] = self
        return {}

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else msgspec.json.encode(self.content).decode()
