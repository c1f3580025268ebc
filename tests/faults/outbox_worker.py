"""A dispatcher in a process of its own, to be killed: `python -m tests.faults.outbox_worker URL NAME`."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence

import uvloop

from holdfast.app import open_store
from holdfast.kit.outbox import OUTBOX_MODELS, Delivery, Dispatcher, Endpoint, Sign, WebhookSigner
from holdfast.kit.outbox.signing import new_secret
from holdfast.net import AddressGuard, RawSender

LEASE_S = 3.0


async def main(url: str, name: str) -> None:
    store = await open_store(url, OUTBOX_MODELS.all)
    secret = new_secret()

    async def signing(endpoint: Endpoint) -> Sign:
        return WebhookSigner([secret]).headers

    def headers(delivery: Delivery, endpoint: Endpoint) -> Sequence[tuple[str, str]]:
        return [("x-fence", str(delivery.fence)), ("x-worker", name)]

    sender = RawSender(AddressGuard(allow=["127.0.0.1"]))
    dispatcher = Dispatcher(store, sender, signing=signing, headers=headers, owner=name, lease_s=LEASE_S)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print("ready", flush=True)
    await dispatcher.run(stop)
    # Results that came too late: on a busy machine a lease can end while its holder lives.
    print(dispatcher.status().lost + dispatcher.status().unsettled, flush=True)
    await sender.close()
    await store.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2]))
