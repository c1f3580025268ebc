"""A serving process as in production: `python -m bench.overload_server URL KEYS`.

It takes webhooks, handles each with one write, and delivers what is in its outbox. Prints its port, then the
number of messages handled so far, four times a second.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import uvloop

from bench.ingest_server import SECRET
from holdfast.config import load_config
from holdfast.kit.inbox import InboxItem, Source
from holdfast.model import Document, document
from holdfast.providers.github import GithubVerifier
from holdfast.runtime import Runtime
from holdfast.server import listen, live
from holdfast.service import Context, Parts, Service, Webhook
from holdfast.store import Transaction, create

EVERY_S = 0.25


@document("bench_handled/{id}")
class Handled(Document):
    """The effect of a message."""

    id: str
    body: str


class _Handling:
    handled = 0

    async def handle(self, item: InboxItem, tx: Transaction) -> None:
        tx.write(create(Handled(id=item.message_id, body=item.body.decode())))
        self.handled += 1

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            print(self.handled, flush=True)
            await asyncio.sleep(EVERY_S)


def _build(context: Context) -> Parts:
    handling = _Handling()
    source = Source(name="bench", verifier=GithubVerifier(SECRET))
    return Parts(
        webhooks=[Webhook(path="/webhook", source=source)],
        handlers={"bench": handling.handle},
        loops={"figures": handling},
    )


async def _greet(runtime: Runtime, address: str) -> None:
    print(address.rpartition(":")[2], flush=True)


async def main(url: str, keys: str) -> None:
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    settings = {"store": url, "home": home, "keys": keys, "allow": ("127.0.0.1",)}
    config = load_config(settings, environ={})
    service = Service(name="bench", summary="", documents=[Handled], build=_build)
    with listen("127.0.0.1", 0) as listener:
        await live(config, listener, services=[service], greet=_greet)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1], sys.argv[2]))
