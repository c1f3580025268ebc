"""Secrets that must never be shown: in no text, no encoding, no log line, no traceback."""

from __future__ import annotations

import copy
import io
import json
import logging
import pickle
import sys
import traceback
from typing import Any

import msgspec
import pytest
import rich.console
import rich.pretty
import structlog

from holdfast.kit.vault import Secret, Vault, new_key

OLD, NEW = new_key("2025-07"), new_key("2026-03")
VAULT = Vault.from_settings(NEW)
PLACE = ("connections", "c-1", "refresh_token")

HIDDEN = "swordfish-94c1"


class Wrapper(msgspec.Struct):
    secret: Secret


def shown(secret: Secret) -> list[str]:
    """Every way in which a value usually ends up in a text."""
    ways: list[Any] = [
        str, repr, format, lambda s: f"{s}", lambda s: f"{s!r:>40}", lambda s: "%s %r" % (s, s),  # noqa: UP031
        lambda s: str([s]), lambda s: str({"k": s}), lambda s: repr(Wrapper(s)), lambda s: str(ValueError(s)),
        lambda s: json.dumps(s, default=str), rich.pretty.pretty_repr, lambda s: str(dir(s)),
        lambda s: repr(copy.copy(s)) + repr(copy.deepcopy(s)),
    ]  # fmt: skip
    return [way(secret) for way in ways]


def test_a_secret_shows_in_no_text_but_its_own_reveal() -> None:
    secret = Secret(HIDDEN)
    assert [text for text in shown(secret) if HIDDEN in text] == []
    assert secret.reveal() == HIDDEN


@pytest.mark.parametrize("encode", [json.dumps, msgspec.json.encode, msgspec.msgpack.encode, pickle.dumps])
def test_a_secret_goes_into_no_encoding(encode: Any) -> None:
    with pytest.raises(TypeError) as caught:
        encode(Secret(HIDDEN))
    assert HIDDEN not in str(caught.value)


def test_secrets_compare_by_value_and_are_no_keys_of_a_dict() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert not Secret("")
    with pytest.raises(TypeError):
        hash(Secret("a"))


def failures() -> list[Exception]:
    """What goes wrong with a secret at hand, each way once."""
    sealed = VAULT.seal(HIDDEN, *PLACE)
    legacy = Vault.from_settings(NEW, legacy_key=HIDDEN)
    acts: list[Any] = [
        lambda: VAULT.open(sealed, "elsewhere"),
        lambda: VAULT.open(sealed[:-5], *PLACE),
        lambda: legacy.open(sealed[12:], *PLACE),
        lambda: Vault.from_settings(OLD).open(sealed, *PLACE),
        lambda: Vault.from_settings(f"k1:{HIDDEN}"),
        lambda: Vault.from_settings(HIDDEN),
        lambda: VAULT.seal(Secret(HIDDEN * 10_000), *PLACE),
        lambda: json.dumps(Secret(HIDDEN)),
        lambda: VAULT.seal(Secret(HIDDEN)),
    ]
    found = []
    for act in acts:
        try:
            act()
        except Exception as fault:
            found.append(fault)
    assert len(found) == len(acts)
    return found


def test_no_log_line_exception_text_traceback_or_repr_shows_a_secret_or_a_key(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    written = io.StringIO()
    without_locals = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    log = structlog.wrap_logger(
        structlog.PrintLogger(written),
        processors=[
            structlog.processors.ExceptionRenderer(without_locals),
            structlog.processors.JSONRenderer(default=repr),
        ],
    )
    console = rich.console.Console(file=written)
    secret, vault = Secret(HIDDEN), Vault.from_settings(f"{NEW},{OLD}", legacy_key=HIDDEN)
    for fault in failures():
        log.error("failed", exc_info=fault, secret=secret, vault=vault, sealed=vault.field)
        logging.getLogger("holdfast").error("failed %s %r", secret, vault, exc_info=fault)
        written.write("".join(traceback.format_exception(fault)))
        console.print(fault, secret, vault)
        print(fault, repr(fault), secret, vault, file=sys.stderr)
    captured = capsys.readouterr()
    everything = written.getvalue() + caplog.text + captured.out + captured.err
    assert everything.count("failed") >= 18
    keys = [text.partition(":")[2].rstrip("=") for text in (OLD, NEW)]
    assert [hidden for hidden in (HIDDEN, *keys) if hidden in everything] == []
