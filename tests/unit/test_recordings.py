"""Recorded messages: read from JSON and TOML alike, and compared with what the code makes of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast.errors import InvalidError
from holdfast.testing import Recording, load_recordings

TOML = """
[[recordings]]
name = "an update"
request = "POST /telegram-webhook"
headers = { X-Secret = "s3cret" }
body = '''{"update_id": 7, "message": {"text": "é"}}'''
expect = { update_id = 7 }
"""


class Update(msgspec.Struct):
    update_id: int
    message: dict[str, str] = {}


def _recording(path: Path, **more: object) -> Recording:
    fields = {"name": "an update", "status": 200, "body": {"update_id": 7, "message": {"text": "é"}}} | more
    path.write_bytes(msgspec.json.encode([fields]))
    (one,) = load_recordings(path)
    return one


def test_json_and_toml_say_the_same(tmp_path: Path) -> None:
    file = tmp_path / "updates.toml"
    file.write_text(TOML, encoding="utf-8")
    (received,) = load_recordings(file)
    answered = _recording(tmp_path / "updates.json", expect={"message": {"text": "é"}})
    for one in (received, answered):
        one.check(lambda one=one: msgspec.json.decode(one.content, type=Update))  # type: ignore[misc]
    assert received.lower_headers == {"x-secret": "s3cret"}
    assert received.wire.startswith(b"POST /telegram-webhook HTTP/1.1\r\ncontent-length: 43\r\n")
    assert answered.wire.startswith(b"HTTP/1.1 200 Recorded\r\n")


@pytest.mark.parametrize("expect", [{"update_id": 8}, {"missing": 1}, {"message": {"text": "e"}}])
def test_what_differs_from_the_recording_is_reported(tmp_path: Path, expect: object) -> None:
    one = _recording(tmp_path / "updates.json", expect=expect)
    with pytest.raises(AssertionError, match="an update: expected"):
        one.check(lambda: msgspec.json.decode(one.content, type=Update))


def test_an_error_is_compared_by_its_class(tmp_path: Path) -> None:
    def refuse() -> None:
        raise InvalidError("no update")

    _recording(tmp_path / "a.json", raises="InvalidError").check(refuse)
    with pytest.raises(InvalidError):
        _recording(tmp_path / "b.json", raises="GoneError").check(refuse)
    with pytest.raises(AssertionError, match="expected GoneError"):
        _recording(tmp_path / "c.json", raises="GoneError").check(lambda: None)


def test_a_misspelt_field_is_refused(tmp_path: Path) -> None:
    with pytest.raises(msgspec.ValidationError, match="expects"):
        _recording(tmp_path / "a.json", expects={})
