"""What a process does that uses a connected account while a test pauses and kills it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import aiohttp
import msgspec

from holdfast.app import open_store
from holdfast.clock import SystemClock
from holdfast.kit.connections import Connection, Connections, Consent
from holdfast.kit.leases import LeaseDocument
from holdfast.kit.vault import Vault
from holdfast.model import Document
from holdfast.providers.google_oauth import OAuthClient, UserGrant, UserGrants
from tests.faults.controlled_process import Hear, Order, Role

ALL: list[type[Document]] = [Connection, Consent, LeaseDocument]


class Faint(UserGrants):
    """Stands still once it has Google's answer, before anything is kept; goes on when told by a signal."""

    async def refresh(self, refresh_token: str) -> UserGrant:
        answer = await super().refresh(refresh_token)
        os.kill(os.getpid(), signal.SIGSTOP)
        return answer


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


ROLES: dict[str, Role] = {"use": use}
