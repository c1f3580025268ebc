"""The examples of the connections page run in the order in which they stand."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from holdfast.app import open_store
from holdfast.kit.connections import (
    Connection,
    Connections,
    Consent,
    ConsentPurpose,
    FinishedConsent,
)
from holdfast.kit.leases import LeaseDocument
from holdfast.kit.vault import Vault, new_key
from holdfast.model import SERVICE_ONLY, Document, ProvidedId, document
from holdfast.service import Parts
from holdfast.store import Transaction, Write, put
from holdfast.testing import ManualClock
from holdfast.web import callback_url, start_url
from tests.kit.fake_oauth_provider import FakeOAuthProvider

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "connections.md"
PUBLIC_URL = "https://app.example"


@document("page_accounts/{id}", id=ProvidedId(), tenant="tenant_id", access=SERVICE_ONLY)
class ChatAccount(Document):
    id: str
    tenant_id: str
    email: str


async def _run(source: str, names: dict[str, object]) -> None:
    code = compile(source, str(PAGE), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    result = eval(code, names)
    if inspect.iscoroutine(result):
        await result


async def test_the_examples_of_purposes_and_start_links_run(tmp_path: Path) -> None:
    declare, make = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)[1:3]
    google, clock = FakeOAuthProvider(ManualClock()), ManualClock()
    store = await open_store(
        f"sqlite:///{tmp_path}/page.db", [Connection, Consent, LeaseDocument, ChatAccount], clock=clock
    )
    await store.migrate()
    names: dict[str, object] = {
        "Transaction": Transaction, "FinishedConsent": FinishedConsent, "Sequence": Sequence, "Write": Write,
        "put": put, "ConsentPurpose": ConsentPurpose, "ChatAccount": ChatAccount, "Parts": Parts,
        "SCOPE": "calendar", "google": google, "store": store, "PUBLIC_URL": PUBLIC_URL,
        "callback_url": callback_url, "start_url": start_url,
    }  # fmt: skip
    try:
        await _run(declare, names)
        parts = names["parts"]
        assert isinstance(parts, Parts)
        purposes = {one.name: one for one in parts.consent_purposes}
        vault = Vault.from_settings(new_key("k"))
        connections = names["connections"] = Connections(
            store, vault, parts.oauth_providers, purposes=purposes
        )
        await _run(make, names)
        (token,) = parse_qs(urlsplit(str(names["url"])).query)["link"]
        opened = await connections.open_link(token, bound_to="browser")
        (code,) = parse_qs(urlsplit(opened.url).query)["code"]
        await asyncio.gather(connections.finish(opened.state, code, bound_to="browser"))
        account = await store.tenant("acme").get(ChatAccount, "-100~1042")
        assert account is not None
        assert account.doc.email == "ann@hoge.jp"
    finally:
        await store.close()
