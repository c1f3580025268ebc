"""The language model's client against the simulator, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import aiohttp
import msgspec
import pytest

from holdfast.errors import (
    HoldfastError,
    InvalidError,
    LimitReachedError,
    NotFoundError,
    ReauthRequiredError,
    RetryLaterError,
    TooLargeError,
)
from holdfast.providers.language_model import FormatName, LanguageModel, ModelTokens
from holdfast.providers.rest import CallLimits
from holdfast.simulators.language_model import InjectedFault, LanguageModelSimulator, SetAnswer
from holdfast.testing import Recording
from tests.kit.receiver import answering, serving
from tests.providers.provider_fixture import HastyClock


class Colour(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(description="In English.")]
    dark: bool


class Palette(msgspec.Struct, forbid_unknown_fields=True):
    main: Colour


FORMATS: list[FormatName] = ["openai", "anthropic"]


@asynccontextmanager
async def a_model(
    *,
    key: str = "",
    name: str = "",
    format: FormatName = "openai",
    limits: CallLimits = CallLimits(attempts_max=1),
) -> AsyncIterator[tuple[LanguageModelSimulator, LanguageModel]]:
    clock = HastyClock()
    async with LanguageModelSimulator(clock=clock) as simulator, aiohttp.ClientSession() as session:
        yield simulator, LanguageModel(
            session, key or simulator.key, clock=clock, base_url=simulator.base_url,
            model=name or simulator.model, format=format, limits=limits,
        )  # fmt: skip


async def test_a_text_is_answered_as_a_struct_whose_schema_was_sent() -> None:
    async with a_model() as (simulator, model):
        assert await model.ask("sky", Colour, instructions="Name it.") == Colour("", False)
        simulator.run(SetAnswer(content={"name": "blue", "dark": False}))
        assert await model.ask("sky", Colour, instructions="Name it.") == Colour("blue", False)
    sent = msgspec.json.decode(simulator.calls[-1].body)
    assert [one["content"] for one in sent["messages"]] == ["Name it.", "sky"]
    form = sent["response_format"]["json_schema"]
    assert (form["name"], form["strict"]) == ("Colour", True)
    assert form["schema"]["properties"]["name"] == {"type": "string", "description": "In English."}


async def test_a_nested_struct_is_sent_with_its_definitions() -> None:
    async with a_model() as (simulator, model):
        simulator.run(SetAnswer(content={"main": {"name": "blue", "dark": True}}))
        assert (await model.ask("sky", Palette, instructions="")).main.dark
    schema = msgspec.json.decode(simulator.calls[-1].body)["response_format"]["json_schema"]["schema"]
    assert (schema["type"], list(schema["$defs"])) == ("object", ["Colour"])


async def test_anthropics_format_asks_for_the_struct_as_a_tool_and_reads_its_input() -> None:
    async with a_model(format="anthropic") as (simulator, model):
        simulator.run(SetAnswer(content={"main": {"name": "blue", "dark": True}}, schema="Palette"))
        assert (await model.ask("sky", Palette, instructions="Name it.", tokens_max=99)).main.dark
        assert await model.ask("sky", Colour, instructions="Name it.") == Colour("", False)
    call = simulator.calls[0]
    sent = msgspec.json.decode(call.body)
    assert (call.path, sent["system"], sent["max_tokens"]) == ("/v1/messages", "Name it.", 99)
    assert sent["tool_choice"] == {"type": "tool", "name": "Palette"}
    assert list(sent["tools"][0]["input_schema"]["$defs"]) == ["Colour"]


@pytest.mark.parametrize("format", FORMATS)
async def test_tokens_are_counted_also_of_an_answer_that_is_of_no_use(format: FormatName) -> None:
    counted: list[ModelTokens] = []
    async with a_model(format=format) as (simulator, model):
        await model.ask("sky " * 100, Colour, instructions="", count=counted.append)
        simulator.run(SetAnswer(content={"shade": "blue"}))
        with pytest.raises(RetryLaterError):
            await model.ask("sky", Colour, instructions="", count=counted.append)
    assert counted[0].input > counted[1].input > 0
    assert all(0 < one.output < one.total for one in counted)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (SetAnswer(content='{"name": '), RetryLaterError),
        (SetAnswer(content=""), RetryLaterError),
        (SetAnswer(content={"name": "blue"}), RetryLaterError),
        (SetAnswer(content={"name": "blue", "dark": False, "more": 1}), RetryLaterError),
        (SetAnswer(refusal="I can't help with that."), InvalidError),
        (SetAnswer(content="", finish_reason="content_filter"), InvalidError),
        (SetAnswer(content='{"na', finish_reason="length"), TooLargeError),
    ],
)
async def test_an_unusable_answer_is_an_error(
    answer: SetAnswer, error: type[HoldfastError], format: FormatName
) -> None:
    async with a_model(format=format) as (simulator, model):
        simulator.run(answer)
        with pytest.raises(HoldfastError) as raised:
            await model.ask("sky", Colour, instructions="")
    assert type(raised.value) is error


@pytest.mark.parametrize("format", FORMATS)
async def test_failures_are_named_by_what_to_do_next(format: FormatName) -> None:
    async with a_model(format=format) as (simulator, model):
        simulator.inject(InjectedFault(status=429, retry_after_s=7))
        with pytest.raises(RetryLaterError) as later:
            await model.ask("sky", Colour, instructions="")
        assert later.value.after_s == 7
        simulator.inject(InjectedFault(status=429, reason="insufficient_quota"))
        with pytest.raises(LimitReachedError):
            await model.ask("sky", Colour, instructions="")
    async with a_model(name="another", format=format) as (_, model):
        with pytest.raises(NotFoundError):
            await model.ask("sky", Colour, instructions="")
    async with a_model(key="wrong", format=format) as (_, model):
        with pytest.raises(ReauthRequiredError):
            await model.ask("sky", Colour, instructions="")


async def test_a_server_error_is_tried_again() -> None:
    async with a_model(limits=CallLimits(attempts_max=2)) as (simulator, model):
        simulator.inject(InjectedFault(status=503))
        await model.ask("sky", Colour, instructions="")
    assert [call.status for call in simulator.calls] == [503, 200]


async def test_an_answer_that_takes_too_long_is_given_up() -> None:
    async with a_model(limits=CallLimits(call_s=0.1, attempts_max=1)) as (simulator, model):
        simulator.inject(InjectedFault(hang=True))
        with pytest.raises(RetryLaterError):
            await model.ask("sky", Colour, instructions="")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
async def test_a_key_that_the_server_quotes_is_in_no_error(status: int) -> None:
    key = "sk-very-secret"
    body = {"error": {"message": f"Bad key {key}", "code": f"bad_{key}"}}
    wire = Recording(name="quoted key", status=status, body=body).wire
    async with serving(answering(wire)) as api, aiohttp.ClientSession() as session:
        limits = CallLimits(attempts_max=1)
        model = LanguageModel(session, key, clock=HastyClock(), base_url=api.url(), model="m", limits=limits)
        with pytest.raises(HoldfastError) as raised:
            await model.ask("sky", Colour, instructions="")
    assert str(raised.value).startswith(f"chat.completions was answered {status}")
    assert key not in str(raised.value)
