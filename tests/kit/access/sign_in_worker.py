"""A process that finishes sign-ins: `python -m tests.kit.access.sign_in_worker URL ISSUER KEY CALLBACKS`.

CALLBACKS is JSON: the state, code and browser of each. It prints the states that it finished.
"""

from __future__ import annotations

import asyncio
import json
import sys

import uvloop

from holdfast.app import open_store
from holdfast.clock import SystemClock
from holdfast.config import Issuer
from holdfast.errors import UnverifiedError
from holdfast.kit.access import User
from holdfast.kit.access.oidc import Oidc
from holdfast.kit.access.oidc_sign_in import OidcSignIn
from holdfast.kit.connections import Consent
from holdfast.kit.vault import Vault
from holdfast.runtime.issuers import HttpIssuer, key_fetcher
from holdfast.store import Store

CLIENT_ID = "holdfast"
PUBLIC_URL = "http://holdfast.test"


def sign_in_on(store: Store, issuer_url: str, key: str) -> OidcSignIn:
    clock, issuer = SystemClock(), Issuer(issuer=issuer_url, client_id=CLIENT_ID)
    oidc = Oidc([issuer], lambda one: key_fetcher(one, clock=clock), clock=clock)
    return OidcSignIn(
        store, Vault.from_settings(key), oidc=oidc, issuers=[issuer], public_url=PUBLIC_URL,
        client_of=lambda one: HttpIssuer(one, clock=clock),
    )  # fmt: skip


async def main(url: str, issuer_url: str, key: str, callbacks: str) -> None:
    store = await open_store(url, [Consent, User])
    sign_in = sign_in_on(store, issuer_url, key)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)

    async def finish(state: str, code: str, browser: str) -> str | None:
        try:
            await sign_in.finish(state, code, browser=browser)
        except UnverifiedError:
            return None
        return state

    done = await asyncio.gather(*(finish(*one) for one in json.loads(callbacks)))
    print(json.dumps([state for state in done if state is not None]))
    await store.close()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:5]))
