"""The state of the simulated language model: the answer it gives next, and the command that sets it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.simulators.server import Command

KEY: Final = "sk-simulated-key"
MODEL: Final = "simulated-model"


class LanguageModelState:
    """The answer to every question, where a command has set one."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.answer: SetAnswer | None = None


class SetAnswer(Command[LanguageModelState], frozen=True):
    """Give this answer from now on: {content, refusal, finishReason}. Text is not encoded as JSON."""

    content: Any = None
    refusal: str | None = None
    finish_reason: str = "stop"

    def run(self, state: LanguageModelState) -> object:
        state.answer = self
        return {}

    @property
    def message(self) -> dict[str, Any]:
        """The assistant's message."""
        text = self.content if isinstance(self.content, str) else msgspec.json.encode(self.content).decode()
        content = None if self.refusal is not None else text
        return {"role": "assistant", "content": content, "refusal": self.refusal}
