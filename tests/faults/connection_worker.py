"""What a process does that uses a connected account while a test pauses and kills it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence

import aiohttp
import msgspec

from holdfast.app import open_store
from holdfast.clock import SystemClock
from holdfast.errors import UnverifiedError
from holdfast.kit.connections import Connection, Connections, Consent, ConsentPurpose, FinishedConsent
from holdfast.kit.leases import LeaseDocument
from holdfast.kit.vault import Vault
from holdfast.model import SERVICE_ONLY, Document, ProvidedId, document
from holdfast.providers.google_calendar import CALENDAR_SCOPE
from holdfast.providers.google_oauth import OAuthClient, UserGrant, UserGrants
from holdfast.store import Transaction, Write, put
from tests.faults.controlled_process import Hear, Order, Role


@document("chat_accounts/{id}", id=ProvidedId(), tenant="tenant_id", access=SERVICE_ONLY)
class ChatAccount(Document):
    """A service's own row of a connected account."""

    id: str
    tenant_id: str
    chat: str


ALL: list[type[Document]] = [Connection, Consent, LeaseDocument, ChatAccount]


class Faint(UserGrants):
    """Stands still once it has Google's answer, before anything is kept; goes on when told by a signal."""

    async def refresh(self, refresh_token: str) -> UserGrant:
        answer = await super().refresh(refresh_token)
        os.kill(os.getpid(), signal.SIGSTOP)
        return answer


class FaintAtExchange(UserGrants):
    """Stands still once the code is spent, before the grant is stored."""

    async def exchange(self, code: str, *, verifier: str, redirect_uri: str) -> UserGrant:
        answer = await super().exchange(code, verifier=verifier, redirect_uri=redirect_uri)
        os.kill(os.getpid(), signal.SIGSTOP)
        return answer


async def _store_account(tx: Transaction, finished: FinishedConsent) -> Sequence[Write]:
    one = finished.connection
    return [put(ChatAccount(id=one.account, tenant_id=one.tenant_id, chat=finished.payload["chat"]))]


PURPOSE = ConsentPurpose(name="chat", provider="google", scopes=[CALENDAR_SCOPE], hook=_store_account)


async def finish(order: Order, say: Callable[[str], None], hear: Hear) -> None:
    """For each state and code it hears, say whether that made a connection."""
    client = msgspec.json.decode(order["client"], type=OAuthClient)
    store = await open_store(order["url"], ALL)
    async with aiohttp.ClientSession() as session:
        kind = FaintAtExchange if order["faint"] else UserGrants
        grants = kind(session, client, clock=SystemClock())
        connections = Connections(
            store, Vault.from_settings(order["keys"]), {"google": grants}, purposes={"chat": PURPOSE}
        )
        say("ready")
        while brought := await hear():
            try:
                await connections.finish(*brought.split(), bound_to="browser")
                say("connected")
            except UnverifiedError:
                say("refused")
    await store.close()


async def use(order: Order, say: Callable[[str], None], hear: Hear) -> None:
    """For each token it hears was rejected, say another."""
    client = msgspec.json.decode(order["client"], type=OAuthClient)
    store = await open_store(order["url"], ALL)
    async with aiohttp.ClientSession() as session:
        grants = (Faint if order["faint"] else UserGrants)(session, client, clock=SystemClock())
        vault = Vault.from_settings(order["keys"])
        connections = Connections(store, vault, {"google": grants}, lease_s=order["lease_s"])
        say("ready")
        while rejected := await hear():
            say(await connections.token(order["connection"], rejected=rejected))
    await store.close()


ROLES: dict[str, Role] = {"use": use, "finish": finish}
