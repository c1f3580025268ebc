"""A question to a language model, answered in a given JSON schema."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, LimitReachedError, RetryLaterError, TooLargeError
from holdfast.net import HttpSession
from holdfast.providers.credentials import FixedToken
from holdfast.providers.language_model.formats import FORMATS, FormatName, ModelQuestion
from holdfast.providers.language_model.types import ModelRefusal, ModelTokens
from holdfast.providers.rest import CallLimits, RestClient, RestResponse, fault_by_status

T = TypeVar("T", bound=msgspec.Struct)
_NO_ANSWER = (msgspec.DecodeError, UnicodeError, RecursionError)


def fault_of(act: str, response: RestResponse, *, key: str = "") -> HoldfastError:
    """Return what a refusal means for the caller; `key` is left out of its message."""
    try:
        refusal = msgspec.json.decode(response.body, type=ModelRefusal).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        refusal = ModelRefusal().error
    code = str(refusal.code or refusal.type or "")
    # A server may quote the key it refuses, in part.
    reason = code if response.status in (401, 403) else refusal.message or code
    reason = reason.replace(key, "***") if key else reason
    if code in ("insufficient_quota", "billing_error") or response.status == 402:
        return LimitReachedError(f"{act} was refused: the account's credit is used up; add to it")
    if code in ("context_length_exceeded", "request_too_large"):
        return TooLargeError(f"{act} was refused: the text is too long for this model")
    return fault_by_status(act, response, reason)


class LanguageModel:
    """One model of an API in either format; without a key none is sent, for servers that want none.

    `limits.call_s` is the time for the whole answer.

    Example:
        model = LanguageModel(session, key, clock=clock, base_url="https://llm.example.com/v1", model="small")
        answer = await model.ask("lunch tomorrow", Answer, instructions="Extract the event.")
    """

    def __init__(
        self,
        session: HttpSession,
        key: str = "",
        *,
        clock: Clock,
        base_url: str,
        model: str,
        format: FormatName = "openai",
        limits: CallLimits = CallLimits(),
    ) -> None:
        self.model, self._format = model, FORMATS[format]
        self._rest = RestClient(
            session, base_url, fault_of=partial(fault_of, key=key), clock=clock, tokens=FixedToken(key),
            placement=self._format.placement, limits=limits,
        )  # fmt: skip

    async def ask(
        self,
        text: str,
        kind: type[T],
        *,
        instructions: str,
        tokens_max: int | None = None,
        count: Callable[[ModelTokens], None] | None = None,
    ) -> T:
        """Return the model's answer to a text as a `kind`, whose fields must all be required.

        `count` is told the tokens of every answer, also of one that is of no use; an answer has at most
        `tokens_max`. RetryLaterError where the answer is no `kind`, InvalidError where the model refused,
        TooLargeError where the answer was cut at a limit.
        """
        question = ModelQuestion(
            model=self.model, text=text, instructions=instructions, kind=kind, tokens_max=tokens_max
        )
        act = self._format.act
        body = (await self._rest.call(self._format.call(question))).body
        try:
            if count is not None:
                count(self._format.tokens(body))
            return msgspec.json.decode(self._format.content(body), type=kind)
        except _NO_ANSWER:
            raise RetryLaterError(f"{act} gave an answer that is no {kind.__name__}", after_s=0.0) from None
