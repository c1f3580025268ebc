"""A service that takes large messages and writes down what each was."""

from __future__ import annotations

import hashlib
from typing import Final

from holdfast.kit.inbox import InboxItem, Source
from holdfast.model import Document, document
from holdfast.providers.github import GithubVerifier
from holdfast.service import Context, Parts, Service, Webhook
from holdfast.store import Transaction, put

SECRET: Final = "a secret of the two"
PATH: Final = "/digests/webhook"
BYTES_MAX: Final = 25_000_000


@document("digests/{id}")
class Digest(Document):
    id: str
    digest: str


async def _write_down(item: InboxItem, tx: Transaction) -> None:
    tx.write(put(Digest(id=item.message_id, digest=hashlib.sha256(item.body).hexdigest())))


def _build(context: Context) -> Parts:
    source = Source(name="digests", verifier=GithubVerifier(SECRET), body_bytes_max=BYTES_MAX)
    return Parts(webhooks=[Webhook(path="/webhook", source=source)], handlers={"digests": _write_down})


SERVICE: Final = Service(name="digests", summary="Digests.", documents=[Digest], build=_build)
