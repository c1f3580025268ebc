"""Settings: `holdfast.toml`, overridden by the environment, overridden by arguments."""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Meta

from holdfast.errors import ConfigError

FILE_NAME = "holdfast.toml"
VARIABLES: dict[str, tuple[str, ...]] = {
    "home": ("HOLDFAST_HOME",),
    "store": ("HOLDFAST_STORE",),
    "environment": ("HOLDFAST_ENV",),
    "host": ("HOLDFAST_HOST",),
    "port": ("HOLDFAST_PORT", "PORT"),
    "public_url": ("HOLDFAST_PUBLIC_URL",),
    "keys": ("HOLDFAST_KEYS",),
    "legacy_key": ("HOLDFAST_LEGACY_KEY",),
    "audit_url": ("HOLDFAST_AUDIT_URL",),
    "allow": ("HOLDFAST_ALLOW",),
    "proxies": ("HOLDFAST_PROXIES",),
    "oidc": ("HOLDFAST_OIDC",),
    "limits": ("HOLDFAST_LIMITS",),
    "services": ("HOLDFAST_SERVICES",),
}
# The tables of services' settings, [service.NAME]; no variable holds all of them.
SETTINGS = "service"
_PREFIXES = {"production": "prod", "staging": "staging", "ci": "ci"}
_URLS = {
    "store": "sqlite:///data/holdfast.db",
    "public_url": "https://hooks.example.com",
    "audit_url": "https://log.example",
}
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://")
# Up to the last @: a password that should have been escaped must not be shown either.
_PASSWORD = re.compile(r"(?<=://)([^/@:?#]*):.*@", re.DOTALL)
_SECRET_PARAMETER = re.compile(r"(?i)([?&][^=&#]*(?:password|secret|token|key)[^=&#]*=)[^&#]*")


_LOOPBACK = ("127.0.0.1", "localhost", "::1")
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Rate = Annotated[float, Meta(gt=0, le=1_000_000)]
Burst = Annotated[int, Meta(ge=1, le=1_000_000)]


# Ids of callers that no issuer may give: of users, tokens, commands and visitors.
RESERVED_PREFIXES = ("user:", "token:", "cli:", "visitor:")


class IssuerGrant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The role of an issuer's subject, identified by `subject` or by a verified `email`."""

    subject: str = ""
    email: str = ""
    role: Literal["viewer", "developer", "admin", "owner", "service"] = "viewer"
    tenant: str = "-"

    def __post_init__(self) -> None:
        if bool(self.subject) == bool(self.email):
            raise ValueError("give either `subject` or `email`")


class Issuer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trusted issuer of identity tokens. Without `jwks_url` its keys are discovered at the issuer.

    With a `client_id`, people sign in to the console with it, and it speaks for the users whose names are
    the addresses it has verified. `user_prefix` and `user_id` make up the ids by which memberships and the
    audit trail name its people.

    Example, in holdfast.toml:
        [[oidc]]
        issuer = "https://accounts.google.com"
        audiences = ["https://holdfast.example.com"]
        allow = [{ email = "timer@project.iam.gserviceaccount.com", role = "admin" }]
    """

    issuer: str
    audiences: tuple[str, ...] = ()
    allow: tuple[IssuerGrant, ...] = ()
    jwks_url: str = ""
    leeway_s: Annotated[float, Meta(ge=0, le=300)] = 30.0
    name: str = ""
    client_id: str = ""
    client_secret: str = ""
    user_id: Literal["email", "subject"] = "email"
    user_prefix: str = "oidc:"

    @property
    def label(self) -> str:
        """The name for people: as set, or the issuer's host."""
        return self.name or urlsplit(self.issuer).netloc

    def __post_init__(self) -> None:
        if not self.audiences and not self.client_id:
            raise ValueError("give `audiences` for identity tokens, `client_id` for sign-in, or both")
        if self.user_prefix in RESERVED_PREFIXES:
            raise ValueError(f"`user_prefix` {self.user_prefix!r} is taken; choose another")
        for url in (self.issuer, self.jwks_url):
            if url and not is_private(url):
                raise ValueError(f"{url!r} must be an https:// address")
        if not all(self.audiences):
            raise ValueError("an audience is empty")


def is_private(url: str) -> bool:
    """Whether the URL is protected in transit: https, or this machine."""
    parts = urlsplit(url)
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    )


class RequestLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits per caller, per address without credentials, and per request.

    A burst is how many requests may come at once; after it, so many a second. `read_s` is for a request to
    arrive, `request_s` for its response. At most `webhook_concurrency` webhooks are stored at once and
    `webhook_waiting_max` more wait; past them, or while `backlog_max` messages are due to be handled, they
    are answered 503.
    """

    caller_per_s: Rate = 100.0
    caller_burst: Burst = 500
    address_per_s: Rate = 20.0
    address_burst: Burst = 200
    request_s: Seconds = 30.0
    read_s: Seconds = 15.0
    webhook_concurrency: Burst = 64
    webhook_waiting_max: Burst = 1_000
    backlog_max: Burst = 50_000


_TABLES: dict[str, Any] = {"oidc": tuple[Issuer, ...], "limits": RequestLimits}


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one process.

    Its repr never shows a secret; `store` itself holds the full URL.

    Example: `load_config({"port": 9000}).port` gives `9000`
    """

    home: Path
    store: str
    environment: str = "development"
    host: str = "127.0.0.1"
    port: int = 8000
    public_url: str = ""
    keys: str = ""
    legacy_key: str = ""
    audit_url: str = ""
    allow: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    oidc: tuple[Issuer, ...] = ()
    limits: RequestLimits = RequestLimits()
    services: tuple[str, ...] | None = None  # None is every installed one
    service_settings: Mapping[str, Mapping[str, Any]] = {}

    @property
    def prefix(self) -> str:
        """The prefix of collection names in this environment."""
        return _PREFIXES.get(self.environment, "dev")

    def redacted(self) -> dict[str, str | int]:
        """Every setting, printable: passwords and keys inside URLs are masked."""
        return {
            "home": str(self.home),
            "store": redact(self.store),
            "environment": self.environment,
            "host": self.host,
            "port": self.port,
            "public_url": self.public_url,
            "keys": "***" if self.keys else "",
            "legacy_key": "***" if self.legacy_key else "",
            "audit_url": redact(self.audit_url),
            "allow": ", ".join(self.allow),
            "proxies": ", ".join(self.proxies),
            "oidc": ", ".join(issuer.issuer for issuer in self.oidc),
            "limits": ", ".join(f"{name} {n:g}" for name, n in msgspec.structs.asdict(self.limits).items()),
            "services": "all" if self.services is None else ", ".join(self.services),
        }

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{name}={value!r}' for name, value in self.redacted().items())})"

    def __rich_repr__(self) -> Any:
        yield from self.redacted().items()


def load_config(
    arguments: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Config:
    """Read the settings, or raise `ConfigError` naming the source and what to do.

    Arguments that are None count as not given. Without `file`, `holdfast.toml` in the working directory is
    read if it exists.
    """
    settings = _from_file(file)
    settings |= _from_environment(os.environ if environ is None else environ)
    settings |= _from_arguments(arguments or {})
    values = {name: _check(name, value, source) for name, (value, source) in settings.items()}
    home = Path(values.pop("home", ".holdfast")).expanduser().absolute()
    if SETTINGS in values:
        values["service_settings"] = values.pop(SETTINGS)
    values.setdefault("store", f"sqlite:///{quote(str(home / 'holdfast.db'))}")
    return Config(home=home, **values)


def redact(url: str) -> str:
    """The URL with its password and secret parameters replaced by `***`."""
    return _SECRET_PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))


def _from_file(file: Path | None) -> dict[str, tuple[object, str]]:
    path = file or Path(FILE_NAME)
    if file is None and not path.exists():
        return {}
    try:
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} can't be read: {_reason(error)}; check its path and permissions") from None
    except tomllib.TOMLDecodeError as error:
        both = re.search(r"(?m)^\s*\[services\.", text) and re.search(r"(?m)^\s*services\s*=", text)
        remedy = "write settings of services under [service.NAME]" if both else "fix that line"
        raise ConfigError(f"{path} is not valid TOML: {error}; {remedy}") from None
    if isinstance(table.get("services"), dict):
        table[SETTINGS] = _merge_former(table, path)
    _refuse_unknown([name for name in table if name != SETTINGS], f"{path}: ")
    return {name: (value, str(path)) for name, value in table.items()}


def _merge_former(table: dict[str, Any], path: Path) -> object:
    """The settings of services, also under their former name `[services.NAME]`."""
    former = table.pop("services")
    if SETTINGS in table:
        raise ConfigError(f"{path}: write all settings of services under [service.NAME]", SETTINGS)
    return former


def _from_environment(environ: Mapping[str, str]) -> dict[str, tuple[object, str]]:
    settings: dict[str, tuple[object, str]] = {}
    for name, variables in VARIABLES.items():
        for variable in variables:
            # Shells and compose files leave an empty variable for "not set".
            if environ.get(variable):
                settings[name] = (environ[variable], variable)
                break
    return settings


def _from_arguments(arguments: Mapping[str, object]) -> dict[str, tuple[object, str]]:
    _refuse_unknown(arguments, "")
    return {name: (value, f"argument {name}") for name, value in arguments.items() if value is not None}


def _refuse_unknown(names: Iterable[str], source: str) -> None:
    for name in names:
        if name not in VARIABLES:
            close = difflib.get_close_matches(name, VARIABLES, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(VARIABLES))}"
            raise ConfigError(f"{source}unknown setting {name!r}; {hint}", name)


def _check(name: str, value: object, source: str) -> Any:
    if name == "port":
        return _check_port(value, source)
    if name == SETTINGS:
        return _check_settings(value, source)
    if name == "services":
        return _check_list(name, value, source, what="names of services")
    if name in _TABLES:
        table = _check_table(name, value, source)
        return _check_issuers(table, source) if name == "oidc" else table
    if name == "allow":
        return _check_list(name, value, source)
    if name == "proxies":
        return _check_networks(name, value, source)
    if isinstance(value, Path):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{source}: {name} must be text, not empty", name)
    # Invalid bytes come from the environment as surrogates.
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        raise ConfigError(f"{source}: {name} must be text in UTF-8", name)
    if name in _URLS and not (_SCHEME.match(value) and _is_parseable(value)):
        # The value is not shown: it may be a password pasted by mistake.
        raise ConfigError(f"{source}: {name} must be a URL such as {_URLS[name]}", name)
    return value


def _is_parseable(url: str) -> bool:
    try:
        urlsplit(url)
    except ValueError:
        return False
    return True


def _check_settings(value: object, source: str) -> dict[str, dict[str, Any]]:
    if not isinstance(value, dict) or not all(isinstance(table, dict) for table in value.values()):
        raise ConfigError(f"{source}: write settings of a service under [service.NAME]", SETTINGS)
    return value


def _check_table(name: str, value: object, source: str) -> Any:
    """A table of the file, or the same as JSON in a variable."""
    try:
        if isinstance(value, str):
            return msgspec.json.decode(value, type=_TABLES[name])
        return msgspec.convert(value, _TABLES[name])
    except msgspec.DecodeError as fault:
        raise ConfigError(f"{source}: {name}: {fault}", name) from None


def _check_issuers(issuers: tuple[Issuer, ...], source: str) -> tuple[Issuer, ...]:
    """Two issuers may know different people by the same subject, so each has its own prefix."""
    for field in ("issuer", "user_prefix"):
        values = [getattr(one, field) for one in issuers]
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise ConfigError(f"{source}: oidc: two issuers have the {field} {twice!r}; change one", "oidc")
    return issuers


def _check_list(
    name: str, value: object, source: str, what: str = "host names and networks"
) -> tuple[str, ...]:
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
        raise ConfigError(f"{source}: {name} is a list of {what}", name)
    return tuple(word.strip() for word in words if word.strip())


def _check_networks(name: str, value: object, source: str) -> tuple[str, ...]:
    words = _check_list(name, value, source)
    for word in words:
        try:
            ipaddress.ip_network(word)
        except ValueError:
            raise ConfigError(
                f"{source}: {name}: {word!r} is not a network such as 10.0.0.0/8", name
            ) from None
    return words


def _check_port(value: object, source: str) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 65535:
        raise ConfigError(f"{source}: port must be a whole number from 0 to 65535, not {value!r}", "port")
    return value


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8"
