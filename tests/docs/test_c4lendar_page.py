"""The page of the service against what the program asks for: settings, commands, routes, steps."""

from __future__ import annotations

import asyncio
import re
import tomllib
from pathlib import Path

import msgspec

from holdfast.model import schema_of
from holdfast.services.c4lendar.checks import check_settings
from holdfast.services.c4lendar.commands import commands
from holdfast.services.c4lendar.domain.commands import NAMES, SLASHES
from holdfast.services.c4lendar.models import DOCUMENTS
from holdfast.services.c4lendar.routes import ROUTES
from holdfast.services.c4lendar.settings import EVENTS_SCOPE, C4lendarSettings
from holdfast.web import callback_url

PAGE = (Path(__file__).parents[2] / "docs" / "services" / "c4lendar.md").read_text()


def test_every_setting_is_on_the_page_with_its_default() -> None:
    rows = dict(re.findall(r"^\| (`[a-z_`, ]+`) \|([^|]*)\|", PAGE, flags=re.MULTILINE))
    shown = {name: cell.strip() for names, cell in rows.items() for name in re.findall(r"`(\w+)`", names)}
    for field in msgspec.structs.fields(C4lendarSettings):
        assert field.name in shown, field.name
        if isinstance(field.default, bool):
            assert shown[field.name] == f"`{str(field.default).lower()}`"


def test_the_settings_of_the_setup_are_accepted_and_whole() -> None:
    block = re.search(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    assert block is not None
    given = tomllib.loads(block[1])
    secret = {"webhook_secret": "0123456789abcdef"}
    settings = msgspec.convert(given["service"]["c4lendar"] | secret, C4lendarSettings)
    assert settings.in_use
    assert asyncio.run(check_settings(settings)).fine
    required = ("bot_token", "owner_id", "webhook_secret", "google_client")
    assert all(f"\n{name} = " in block[1] for name in required)


def test_the_setup_names_what_google_and_telegram_are_told() -> None:
    assert callback_url("https://<your address>") in PAGE
    assert EVENTS_SCOPE in PAGE
    for step in (
        "@BotFather",
        "/newbot",
        "/setprivacy",
        "holdfast serve",
        "holdfast doctor",
        "polling = true",
    ):
        assert step in PAGE, step


def test_every_chat_command_route_command_and_collection_is_on_the_page() -> None:
    assert [name for name in NAMES if f"`#{name}" not in PAGE] == []
    assert [name for name in SLASHES if name not in ("start", "help") and f"`/{name}`" not in PAGE] == []
    paths = {re.sub(":[a-z]+", "", path) for one in ROUTES for path in one.paths}
    assert {
        path for path in paths if f"/c4lendar{path}" not in PAGE and not path.endswith("/revoke")
    } == set()
    names = [one.name or one.callback.__name__ for one in commands.registered_commands if one.callback]
    assert [name for name in names if f"`{name}`" not in PAGE] == []
    assert [cls for cls in DOCUMENTS if f"`{schema_of(cls).path.names[0]}`" not in PAGE] == []
