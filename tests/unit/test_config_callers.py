"""Settings about who comes in and how much they may ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.config import IssuerGrant, RequestLimits, load_config
from holdfast.errors import ConfigError

ISSUER = """
[[oidc]]
issuer = "https://accounts.google.com"
audiences = ["https://holdfast.example"]
allow = [{ email = "timer@project.iam.example", role = "admin" }]
"""


def _file(folder: Path, text: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(text)
    return path


def test_an_issuer_is_a_table_of_the_file(tmp_path: Path) -> None:
    (issuer,) = load_config(environ={}, file=_file(tmp_path, ISSUER)).oidc
    assert (issuer.issuer, issuer.audiences) == ("https://accounts.google.com", ("https://holdfast.example",))
    assert issuer.allow == (IssuerGrant(email="timer@project.iam.example", role="admin"),)


def test_tables_are_json_in_the_environment() -> None:
    config = load_config(environ={
        "HOLDFAST_LIMITS": '{"request_s": 5}', "HOLDFAST_PROXIES": "10.0.0.0/8, ::1/128",
        "HOLDFAST_OIDC": '[{"issuer":"https://a.example","audiences":["b"],"allow":[{"subject":"1"}]}]',
    })  # fmt: skip
    assert config.limits == RequestLimits(request_s=5)
    assert config.proxies == ("10.0.0.0/8", "::1/128")
    assert config.oidc[0].allow == (IssuerGrant(subject="1", role="viewer", tenant="-"),)
    assert config.redacted()["oidc"] == "https://a.example"
    assert "request_s 5" in str(config.redacted()["limits"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ISSUER.replace("https://accounts", "http://accounts"), "must be an https:// address"),
        (ISSUER.replace("allow", "jwks_url = 'ftp://a'\nallow"), "must be an https:// address"),
        (ISSUER.replace('["https://holdfast.example"]', "[]"), "oidc: give `audiences`"),
        (ISSUER.replace('["https://holdfast.example"]', '[""]'), "an audience is empty"),
        (ISSUER.replace("email", "mail"), "unknown field `mail`"),
        (ISSUER.replace('role = "admin"', 'subject = "1"'), "give either `subject` or `email`"),
        (ISSUER.replace("allow", "user_prefix = 'token:'\nallow"), "`user_prefix` 'token:' is taken"),
        (ISSUER + ISSUER, "two issuers have the issuer"),
        (
            ISSUER + ISSUER.replace("accounts", "other"),
            "two issuers have the user_prefix 'oidc:'",
        ),
        (ISSUER.replace("admin", "king"), "Invalid enum value 'king'"),
        ("[oidc]\nissuer = 1", "oidc: Expected `array`"),
        ("[limits]\nrequest_s = 0", "limits: Expected `float` > 0.0"),
        ("[limits]\nper_minute = 1", "unknown field `per_minute`"),
        ('proxies = ["proxy.example"]', "proxies: 'proxy.example' is not a network such as 10.0.0.0/8"),
        ("proxies = 7", "proxies is a list"),
    ],
)
def test_a_bad_table_is_told_with_its_source(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(environ={}, file=_file(tmp_path, text))
    assert words in caught.value.message
    assert "settings.toml: " in caught.value.message


def test_a_variable_that_is_no_json_is_told_by_its_name() -> None:
    with pytest.raises(ConfigError, match="HOLDFAST_OIDC: oidc: JSON is malformed"):
        load_config(environ={"HOLDFAST_OIDC": "https://accounts.google.com"})
