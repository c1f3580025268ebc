"""The simulated language model: `POST /v1/chat/completions` over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from holdfast.clock import Clock
from holdfast.simulators.language_model.state import KEY, MODEL, LanguageModelState, SetAnswer
from holdfast.simulators.server import InjectedFault, SimulatorServer

_EMPTY: Final[Mapping[str, object]] = {
    "string": "", "boolean": False, "integer": 0, "number": 0, "array": [], "null": None,
}  # fmt: skip


class LanguageModelSimulator(SimulatorServer[LanguageModelState]):
    """One model, `model`, for the key `key`, at `base_url`.

    It answers what `SetAnswer` says. By default that is the emptiest value of the asked schema, and without a
    schema the last message.

    Example:
        async with LanguageModelSimulator(clock=SystemClock()) as model:
            model.run(SetAnswer(content={"title": "Lunch"}))
    """

    key: Final = KEY
    model: Final = MODEL

    def __init__(self, *, clock: Clock, port: int = 0) -> None:
        commands = {"answer": SetAnswer}
        super().__init__(LanguageModelState(), clock=clock, commands=commands, refuse=_refuse, port=port)
        self.app.router.add_post("/v1/chat/completions", self._complete)

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    async def _complete(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return _error(401, "Incorrect API key provided.", code="invalid_api_key")
        try:
            body = msgspec.json.decode(await request.read(), type=dict[str, Any])
        except msgspec.DecodeError:
            return _error(400, "We could not parse the JSON body of your request.")
        if body.get("model") != MODEL:
            return _error(404, f"The model '{body.get('model')}' does not exist.", code="model_not_found")
        if not body.get("messages"):
            return _error(400, "Missing required parameter: 'messages'.")
        form = body.get("response_format", {}).get("json_schema")
        if form and (problem := _problem_of(form)):
            return _error(400, f"Invalid schema for response_format '{form.get('name')}': {problem}")
        return _json(200, self._completion(body, form))

    def _completion(self, body: dict[str, Any], form: dict[str, Any] | None) -> dict[str, Any]:
        default = _emptiest(form["schema"]) if form else body["messages"][-1].get("content", "")
        answer = self.state.answer or SetAnswer(content=default)
        choice = {"index": 0, "message": answer.message, "finish_reason": answer.finish_reason}
        return {
            "id": "chatcmpl-simulated", "object": "chat.completion", "model": MODEL,
            "created": self._clock.now_us() // 1_000_000, "choices": [choice],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }  # fmt: skip


def _problem_of(form: dict[str, Any]) -> str:
    """Why strict mode refuses a schema; empty if it does not."""
    schema = form.get("schema", {})
    if schema.get("type") != "object":
        return "schema must be a JSON Schema of 'type: \"object\"'."
    if not form.get("strict"):
        return ""
    if schema.get("additionalProperties") is not False:
        return "'additionalProperties' is required to be supplied and to be false."
    if set(schema.get("required", [])) != set(schema.get("properties", {})):
        return "'required' is required to include every key in properties."
    return ""


def _emptiest(schema: dict[str, Any]) -> Any:
    if schema.get("type") == "object":
        return {name: _emptiest(one) for name, one in schema.get("properties", {}).items()}
    return _EMPTY.get(str(schema.get("type")))


def _json(status: int, value: object, headers: Mapping[str, str] | None = None) -> web.Response:
    body = msgspec.json.encode(value)
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


def _error(
    status: int, message: str, *, code: str | None = None, headers: Mapping[str, str] | None = None
) -> web.Response:
    kind = "invalid_request_error" if status < 429 else "server_error"
    return _json(status, {"error": {"message": message, "type": kind, "param": None, "code": code}}, headers)


def _refuse(request: web.Request, fault: InjectedFault) -> web.Response:
    code = fault.reason or ("rate_limit_exceeded" if fault.status == 429 else None)
    headers = {} if fault.retry_after_s is None else {"Retry-After": str(fault.retry_after_s)}
    return _error(fault.status, "The server had an error or is overloaded.", code=code, headers=headers)
