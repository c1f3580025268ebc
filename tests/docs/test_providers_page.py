"""The examples of the providers' page run in the order in which they stand."""

from __future__ import annotations
import __future__

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import msgspec
from joserfc import jwt
from joserfc.jwk import RSAKey

from holdfast.net import LazySession
from holdfast.providers import credentials, rest
from holdfast.testing import load_recordings
from tests.kit.receiver import answering, serving
from tests.providers.provider_fixture import HastyClock
from tests.providers.test_credentials import PEM

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "providers.md"
FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | __future__.annotations.compiler_flag
FOUND = b'HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n{"name": "seven"}'
MOVED = b"HTTP/1.1 302 Found\r\nlocation: welcome\r\ncontent-length: 0\r\n\r\n"


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)


async def _run(source: str, names: dict[str, Any]) -> None:
    code = compile(source, str(PAGE), "exec", FLAGS, dont_inherit=True)
    result = eval(code, names)
    if inspect.iscoroutine(result):
        await result


async def test_the_examples_run(tmp_path: Path) -> None:
    client, signer, judged = _blocks("python")
    clock, session = HastyClock(), LazySession()
    names: dict[str, Any] = {
        **vars(rest), **vars(credentials), "msgspec": msgspec, "load_recordings": load_recordings,
        "clock": clock, "PRIVATE_KEY": PEM, "path": tmp_path / "things.toml",
    }  # fmt: skip
    await _run(client, names)
    async with serving(answering(FOUND, MOVED)) as api:
        things = names["Things"](session, "key-1", clock=clock, base_url=f"http://127.0.0.1:{api.port}/v1")
        assert (await things.get("7")).name == "seven"
        assert await things.sign_in("ann", "secret")
        assert [request.headers["X-API-Key"] for request in api.requests] == ["key-1"] * 2
        await session.close()
    await _run(signer, names)
    claims = jwt.decode(await names["tokens"](), RSAKey.import_key(PEM), algorithms=["RS256"]).claims
    assert claims["iss"] == "12345"
    (recordings,) = _blocks("toml")
    (tmp_path / "things.toml").write_text(recordings, encoding="utf-8")
    await _run(judged, names)
