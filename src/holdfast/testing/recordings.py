"""Recorded messages of a provider, each with what our code must make of it.

A recording file is a list in JSON, or tables `[[recordings]]` in TOML. A recording with a `status` is a
response of the provider's API, without one a request to our webhook; `request` is the request line. A `body`
is a text, taken as it is, or any JSON value.

    [[recordings]]
    name = "a message in a group"
    request = "POST /telegram-webhook"
    headers = { X-Telegram-Bot-Api-Secret-Token = "s3cret" }
    body = '''{"update_id": 7}'''
    expect = { update_id = 7 }

Example:
    @pytest.mark.parametrize("one", load_recordings(FIXTURES / "updates.toml"), ids=str)
    def test_updates_are_read_as_recorded(one: Recording) -> None:
        one.check(lambda: msgspec.json.decode(one.content, type=Update))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec


class Recording(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One message, and what it must be parsed to (`expect`) or raise (`raises`, the error's class)."""

    name: str
    request: str = ""
    status: int | None = None
    headers: Mapping[str, str] = {}
    body: Any = ""
    expect: Any = None
    raises: str = ""
    after_s: float | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def content(self) -> bytes:
        """The body's bytes."""
        return self.body.encode() if isinstance(self.body, str) else msgspec.json.encode(self.body)

    @property
    def lower_headers(self) -> dict[str, str]:
        """The headers with names in lower case, as verifiers and `RestResponse` have them."""
        return {name.lower(): value for name, value in self.headers.items()}

    @property
    def wire(self) -> bytes:
        """The whole message as HTTP/1.1 sends it."""
        first = f"{self.request} HTTP/1.1" if self.status is None else f"HTTP/1.1 {self.status} Recorded"
        headers = {"content-length": str(len(self.content))} | self.lower_headers
        lines = [first, *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        return "\r\n".join(lines).encode() + self.content

    def check(self, parse: Callable[[], Any]) -> None:
        """Raise AssertionError unless `parse` gives what is expected; of objects, the expected keys count."""
        try:
            result = parse()
        except Exception as error:
            if type(error).__name__ != self.raises:
                raise
            return
        if self.raises:
            raise AssertionError(f"{self.name}: expected {self.raises}, got {result!r}")
        result = msgspec.to_builtins(result, str_keys=True)
        if not _includes(result, self.expect):
            raise AssertionError(f"{self.name}: expected {self.expect!r}, got {result!r}")


def load_recordings(path: Path) -> list[Recording]:
    """Return the recordings of a JSON or TOML file."""
    content = path.read_bytes()
    if path.suffix == ".toml":
        return msgspec.toml.decode(content, type=dict[str, list[Recording]])["recordings"]
    return msgspec.json.decode(content, type=list[Recording])


def _includes(value: Any, expected: Any) -> bool:
    if isinstance(expected, Mapping) and isinstance(value, Mapping):
        return all(key in value and _includes(value[key], one) for key, one in expected.items())
    if isinstance(expected, list) and isinstance(value, list):
        return len(value) == len(expected) and all(map(_includes, value, expected))
    return bool(value == expected)
