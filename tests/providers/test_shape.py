"""Every provider is a folder of one shape, and its fixtures say what each refusal raises."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from holdfast import errors, providers
from holdfast.errors import RetryLaterError
from holdfast.providers.rest import Call, CallLimits, RestClient, RestResponse
from holdfast.testing import Recording, load_recordings
from tests.kit.receiver import answering, serving
from tests.providers.provider_fixture import HastyClock

APIS = sorted(path.parent for path in Path(providers.__path__[0]).glob("*/__init__.py"))


def _refusals() -> Iterator[tuple[str, Recording]]:
    for folder in APIS:
        for refusal in load_recordings(folder / "fixtures" / "refusals.json"):
            yield folder.name, refusal


@pytest.mark.parametrize("folder", APIS, ids=[folder.name for folder in APIS])
def test_a_provider_has_a_client_types_a_page_and_fixtures(folder: Path) -> None:
    wanted = {"__init__.py", "client.py", "types.py", "README.md", "fixtures"}
    assert wanted <= {path.name for path in folder.iterdir()}
    assert (folder / "README.md").read_text().startswith(f"# {folder.name}\n")


@pytest.mark.parametrize(
    ("name", "refusal"),
    [pytest.param(name, one, id=f"{name}: {one.name}") for name, one in _refusals()],
)
def test_a_refusal_is_raised_as_what_to_do_next(name: str, refusal: Recording) -> None:
    client = importlib.import_module(f"holdfast.providers.{name}.client")
    assert refusal.status is not None
    fault = client.fault_of("the act", RestResponse(refusal.status, refusal.lower_headers, refusal.content))
    assert type(fault) is getattr(errors, refusal.raises)
    assert str(fault).startswith("the act ")


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        pytest.param(name, one, id=f"{name}: {one.name}")
        for name, one in _refusals()
        if one.after_s is not None
    ],
)
async def test_a_refusal_over_http_says_how_long_to_wait(name: str, refusal: Recording) -> None:
    client = importlib.import_module(f"holdfast.providers.{name}.client")
    limits = CallLimits(attempts_max=1)
    async with serving(answering(refusal.wire)) as api, aiohttp.ClientSession() as session:
        rest = RestClient(session, api.url(), fault_of=client.fault_of, clock=HastyClock(), limits=limits)
        with pytest.raises(RetryLaterError) as raised:
            await rest.call(Call("the act", "GET", ""))
    assert raised.value.after_s == refusal.after_s


def test_the_fixtures_cover_each_way_a_provider_can_refuse() -> None:
    for name in [folder.name for folder in APIS]:
        kinds = {refusal.raises for owner, refusal in _refusals() if owner == name}
        assert {"RetryLaterError", "ReauthRequiredError", "ForbiddenError", "InvalidError"} <= kinds, name
