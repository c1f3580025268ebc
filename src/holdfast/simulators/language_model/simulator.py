"""The simulated language model over HTTP: `POST /v1/chat/completions` and Anthropic's `POST /v1/messages`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from holdfast.clock import Clock
from holdfast.simulators.language_model.state import KEY, MODEL, LanguageModelState, SetAnswer
from holdfast.simulators.server import InjectedFault, SimulatorServer, json_response

_EMPTY: Final[Mapping[str, object]] = {
    "string": "", "boolean": False, "integer": 0, "number": 0, "array": [], "null": None,
}  # fmt: skip
_STOP_REASONS: Final = {"stop": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
_ERROR_TYPES: Final = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
    404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error",
}  # fmt: skip
CHARACTERS_PER_TOKEN: Final = 4


class LanguageModelSimulator(SimulatorServer[LanguageModelState]):
    """One model, `model`, for the key `key`, at `base_url`, in both formats.

    It answers what `SetAnswer` says. By default that is the emptiest value of the asked schema, and without a
    schema the last message. Every four characters are a token.

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
        self.app.router.add_post("/v1/messages", self._create_message)

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    async def _complete(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return _error(request, 401, "Incorrect API key provided.", code="invalid_api_key")
        body = await _body(request)
        problem = self._problem(request, body)
        if problem is not None:
            return problem
        form = body.get("response_format", {}).get("json_schema")
        if form and (reason := _problem_of(form)):
            return _error(request, 400, f"Invalid schema for response_format '{form.get('name')}': {reason}")
        return json_response(self._completion(body, form))

    def _completion(self, body: dict[str, Any], form: dict[str, Any] | None) -> dict[str, Any]:
        default = _emptiest(form["schema"]) if form else body["messages"][-1].get("content", "")
        answer = self.state.answer_to(form["name"] if form else "") or SetAnswer(content=default)
        content = None if answer.refusal is not None else answer.text
        message = {"role": "assistant", "content": content, "refusal": answer.refusal}
        read, written = _tokens(body["messages"]), _tokens(answer.text)
        return {
            "id": "chatcmpl-simulated", "object": "chat.completion", "model": MODEL,
            "created": self._clock.now_us() // 1_000_000,
            "choices": [{"index": 0, "message": message, "finish_reason": answer.finish_reason}],
            "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
        }  # fmt: skip

    async def _create_message(self, request: web.Request) -> web.Response:
        if request.headers.get("x-api-key") != KEY:
            return _error(request, 401, "invalid x-api-key")
        if not request.headers.get("anthropic-version"):
            return _error(request, 400, "anthropic-version: header is required")
        body = await _body(request)
        problem = self._problem(request, body)
        if problem is not None:
            return problem
        if not isinstance(body.get("max_tokens"), int):
            return _error(request, 400, "max_tokens: Field required")
        return json_response(self._message(body))

    def _message(self, body: dict[str, Any]) -> dict[str, Any]:
        tool = next(iter(body.get("tools", [])), None)
        default = _emptiest(tool["input_schema"]) if tool else body["messages"][-1].get("content", "")
        answer = self.state.answer_to(tool["name"] if tool else "") or SetAnswer(content=default)
        block: dict[str, Any] = {"type": "text", "text": answer.refusal or answer.text}
        if tool and answer.refusal is None and not isinstance(answer.content, str):
            block = {
                "type": "tool_use",
                "id": "toolu_simulated",
                "name": tool["name"],
                "input": answer.content,
            }
        reason = "refusal" if answer.refusal else _STOP_REASONS.get(answer.finish_reason, "end_turn")
        return {
            "id": "msg_simulated", "type": "message", "role": "assistant", "model": MODEL, "content": [block],
            "stop_reason": reason, "stop_sequence": None,
            "usage": {
                "input_tokens": _tokens(body["messages"], body.get("system")),
                "output_tokens": _tokens(answer.text),
            },
        }  # fmt: skip

    def _problem(self, request: web.Request, body: dict[str, Any]) -> web.Response | None:
        if not body:
            return _error(request, 400, "We could not parse the JSON body of your request.")
        if body.get("model") != MODEL:
            return _error(
                request, 404, f"The model '{body.get('model')}' does not exist.", code="model_not_found"
            )
        if not body.get("messages"):
            return _error(request, 400, "Missing required parameter: 'messages'.")
        return None


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        return msgspec.json.decode(await request.read(), type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


def _tokens(*values: Any) -> int:
    texts = (one if isinstance(one, str) else msgspec.json.encode(one).decode() for one in values)
    return 1 + sum(map(len, texts)) // CHARACTERS_PER_TOKEN


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


def _error(
    request: web.Request, status: int, message: str, *, code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> web.Response:  # fmt: skip
    if request.path.endswith("/messages"):
        error = {"type": code or _ERROR_TYPES.get(status, "api_error"), "message": message}
        return json_response({"type": "error", "error": error}, status=status, headers=headers)
    kind = "invalid_request_error" if status < 429 else "server_error"
    details = {"message": message, "type": kind, "param": None, "code": code}
    return json_response({"error": details}, status=status, headers=headers)


def _refuse(request: web.Request, fault: InjectedFault) -> web.Response:
    anthropic = request.path.endswith("/messages")
    limit = "rate_limit_exceeded" if fault.status == 429 and not anthropic else None
    headers = {} if fault.retry_after_s is None else {"Retry-After": str(fault.retry_after_s)}
    message = "The server had an error or is overloaded."
    return _error(request, fault.status, message, code=fault.reason or limit, headers=headers)
