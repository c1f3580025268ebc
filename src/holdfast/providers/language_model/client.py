"""Chat completions: a question to a language model, answered in a given JSON schema."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, InvalidError, LimitReachedError, RetryLaterError, TooLargeError
from holdfast.net import HttpSession
from holdfast.providers.credentials import FixedToken
from holdfast.providers.language_model.types import ModelCompletion, ModelRefusal
from holdfast.providers.rest import Call, CallLimits, RestClient, RestResponse, fault_by_status

ACT: Final = "chat.completions"
T = TypeVar("T", bound=msgspec.Struct)


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
    if code == "insufficient_quota" or response.status == 402:
        return LimitReachedError(f"{act} was refused: the account's credit is used up; add to it")
    if code == "context_length_exceeded":
        return TooLargeError(f"{act} was refused: the text is too long for this model")
    return fault_by_status(act, response, reason)


class LanguageModel:
    """One model of an OpenAI-compatible API; without a key none is sent, for servers that want none.

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
        limits: CallLimits = CallLimits(),
    ) -> None:
        self._model = model
        self._rest = RestClient(
            session, base_url, fault_of=partial(fault_of, key=key), clock=clock, tokens=FixedToken(key),
            limits=limits,
        )  # fmt: skip

    async def ask(self, text: str, kind: type[T], *, instructions: str) -> T:
        """Return the model's answer to a text as a `kind`, whose fields must all be required.

        RetryLaterError where the answer is no `kind`, InvalidError where the model refused, TooLargeError
        where the answer was cut at the model's limit.
        """
        messages = [{"role": "system", "content": instructions}, {"role": "user", "content": text}]
        body = {"model": self._model, "messages": messages, "response_format": _response_format(kind)}
        call = Call(ACT, "POST", "chat/completions", body=msgspec.json.encode(body), repeatable=True)
        content = _content_of(await self._rest.fetch(call, ModelCompletion))
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise RetryLaterError(f"{ACT} gave an answer that is no {kind.__name__}", after_s=0.0) from None


def _response_format(kind: type[msgspec.Struct]) -> dict[str, Any]:
    _, definitions = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    # The root may not be a reference.
    schema = definitions.pop(kind.__name__)
    if definitions:
        schema["$defs"] = definitions
    form = {"name": kind.__name__, "strict": True, "schema": schema}
    return {"type": "json_schema", "json_schema": form}


def _content_of(completion: ModelCompletion) -> str:
    if not completion.choices:
        raise RetryLaterError(f"{ACT} gave no answer", after_s=0.0)
    choice = completion.choices[0]
    if choice.message.refusal or choice.finish_reason == "content_filter":
        raise InvalidError(f"{ACT}: the model refused to answer this text")
    if choice.finish_reason == "length":
        raise TooLargeError(f"{ACT}: the answer was cut at the model's limit")
    return choice.message.content or ""
